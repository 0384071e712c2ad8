"""Log-probabilities as the model gives them: before temperature, top-k, top-p and bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.request import TokenLogprob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernels.logprobs.reference import LogprobRows


def entries(rows: LogprobRows, token_ids: Sequence[int], *, top: int) -> tuple[TokenLogprob, ...]:
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
