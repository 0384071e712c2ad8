"""Cases of log-probabilities. See `kernels.cases`."""

from __future__ import annotations

import torch

from kernels.case import Arguments, Case, Run, normal
from kernels.logprobs.reference import LogprobRows


def logprobs_case(vocab: int, top: int) -> Case:
    """Rows of a padded vocabulary in any order; in every other one most logits tie, and in some
    most are -inf.
    """

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        logits = 4 * normal((rows, vocab + 8), dtype, device)[:, :vocab]
        logits[::2] = logits[::2].round()
        logits[::3, 5 + top // 2 :] = -torch.inf  # fewer than are asked for are alive
        index = torch.randint(0, rows, (rows,), device=device) if rows else logits.new_empty(0)
        index[:3] = torch.tensor([1, 0, 2], device=device)[:rows] if rows > 1 else 0
        token_ids = torch.randint(0, 5, (rows,), device=device)
        return logits, index.long(), token_ids, top

    return Case(
        op="log_probabilities",
        name=f"{top} and one of {vocab}",
        make=make,
        bytes_per_row=lambda size: vocab * size + 20 + 12 * top,
        observe=_observed,
    )


def _observed(run: Run, arguments: Arguments) -> object:
    found = run(*arguments)
    assert isinstance(found, LogprobRows)
    dead = found.top == -torch.inf
    alive = found.top.masked_fill(dead, 0)
    # Less one: what is next to 0 is a difference, and known to so many digits only.
    return found.of_token - 1, alive - 1, found.top_ids, dead.long()
