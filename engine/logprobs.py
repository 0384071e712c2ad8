"""Log-probabilities as the model gives them: before temperature, top-k, top-p and bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.request import TokenLogprob

if TYPE_CHECKING:
    from torch import Tensor


class LogprobRows(NamedTuple):
    """Of K rows: that of one token each, and the most likely ones, the lowest id on ties."""

    of_token: Tensor  # [K]
    top: Tensor  # [K, top], best first
    top_ids: Tensor  # [K, top]


def gather(logits: Tensor, token_ids: Tensor, *, top: int) -> LogprobRows:
    """Log-probabilities of token_ids [K] in the rows of logits [K, vocab], without waiting."""
    logprobs = logits.log_softmax(dim=-1)
    of_token = logprobs.gather(1, token_ids[:, None]).squeeze(1)
    if not top:
        none = logprobs[:, :0]
        return LogprobRows(of_token, none, none.long())
    values, ids = logprobs.sort(dim=-1, descending=True, stable=True)
    return LogprobRows(of_token, values[:, :top], ids[:, :top])


def entries(rows: LogprobRows, token_ids: list[int], *, top: int) -> tuple[TokenLogprob, ...]:
    """One entry for each row, in host memory; `top` may be less than was gathered."""
    of_token = rows.of_token.tolist()
    if not top:
        return tuple(
            TokenLogprob(token_id=token_id, logprob=value)
            for token_id, value in zip(token_ids, of_token, strict=True)
        )
    best = zip(rows.top_ids[:, :top].tolist(), rows.top[:, :top].tolist(), strict=True)
    return tuple(
        TokenLogprob(token_id=token_id, logprob=value, top=tuple(zip(*pairs, strict=True)))
        for token_id, value, pairs in zip(token_ids, of_token, best, strict=True)
    )
