"""Log-probabilities of tokens as logits give them, and the most likely tokens: the definition."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from kernels.precision import at_least_float32


class LogprobRows(NamedTuple):
    """Of K rows: that of one token each, and the most likely ones; at least float32."""

    of_token: Tensor  # [K]
    top: Tensor  # [K, top], best first
    top_ids: Tensor  # [K, top] int64


def log_probabilities(logits: Tensor, rows: Tensor, token_ids: Tensor, top: int) -> LogprobRows:
    """Log-probabilities of token_ids [K] in the rows [K] of logits [L, vocab], and of the `top`
    highest logits (the vocabulary at most), the lowest id on ties.

    Those of rows that are not finite mean nothing.
    """
    chosen = logits[rows]
    logprobs = chosen.to(at_least_float32(logits.dtype)).log_softmax(dim=-1)
    of_token = logprobs.gather(1, token_ids[:, None]).squeeze(1)
    if not top:
        return LogprobRows(of_token, logprobs[:, :0], rows.new_empty(len(rows), 0))
    ids = chosen.sort(dim=-1, descending=True, stable=True).indices[:, :top]
    return LogprobRows(of_token, logprobs.gather(1, ids), ids)
