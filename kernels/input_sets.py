"""Sets of inputs of one case for calls in turn, so that each finds its parameters out of cache.

In a step of a model the parameters of an operation were read a whole step ago: one set, or a few
that lie in the cache beside each other, would time what never happens there. Activations have
just been written, so that those alone do not ask for as many sets.
"""

from __future__ import annotations

import torch

from kernels.case import VALUE_BYTES, Arguments, Case

CACHE_BYTES = 128_000_000  # more than any L2 of today
MOST_SETS = 80
FEW_SETS = 12  # of inputs whose parameters are too small to fill the cache


def input_sets(case: Case, rows: int, device: torch.device) -> list[Arguments]:
    """At least two, of bfloat16 activations; together they exceed the cache where parameters of
    at least CACHE_BYTES / MOST_SETS are among them, or where FEW_SETS do.
    """
    return [case.make(rows, torch.bfloat16, device) for _ in range(sets_of(case, rows))]


def sets_of(case: Case, rows: int) -> int:
    """How many sets a case is timed with."""
    parameters = case.fixed_bytes + case.bytes_shared(rows, VALUE_BYTES)
    most = MOST_SETS if MOST_SETS * parameters >= CACHE_BYTES else FEW_SETS
    return min(most, max(2, CACHE_BYTES // case.cost(rows, VALUE_BYTES).bytes + 1))
