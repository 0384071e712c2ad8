"""Log-probabilities as the model gives them: before temperature, top-k, top-p and bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.request import TokenLogprob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from engine.step import ScheduledSequence
    from engine.step_tensors import LogitSpan


def of_tokens(logits: Tensor, token_ids: Sequence[int], *, top: int) -> tuple[TokenLogprob, ...]:
    """One entry for each row of logits [n, vocab] and the token it chose.

    `top` most likely tokens beside it, best first, the lowest id on ties.
    """
    logprobs = logits.log_softmax(dim=-1)
    chosen = logprobs[range(len(token_ids)), list(token_ids)].tolist()
    if not top:
        return tuple(
            TokenLogprob(token_id=token_id, logprob=value)
            for token_id, value in zip(token_ids, chosen, strict=True)
        )
    values, ids = logprobs.sort(dim=-1, descending=True, stable=True)
    best = zip(ids[:, :top].tolist(), values[:, :top].tolist(), strict=True)
    return tuple(
        TokenLogprob(token_id=token_id, logprob=value, top=tuple(zip(*pairs, strict=True)))
        for token_id, value, pairs in zip(token_ids, chosen, best, strict=True)
    )


def of_prompt(entry: ScheduledSequence, span: LogitSpan, logits: Tensor) -> dict[int, TokenLogprob]:
    """Log-probabilities of prompt tokens, by position, that this step's rows predict."""
    params = entry.sequence.request.sampling
    first = entry.first + 1
    token_ids = entry.sequence.tokens[first : first + span.prompt_rows]
    rows = logits[span.start : span.choice_start]
    found = of_tokens(rows, token_ids, top=params.logprobs or 0)
    return dict(enumerate(found, first))
