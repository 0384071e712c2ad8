"""How long a step takes on a chip that nobody has at hand: the roofline, and no more.

seconds = max(flops / flops_per_s, bytes / bytes_per_s) + launch_s. It leaves out what real
kernels lose to either bound, so it is a floor: good for comparing schedules, not machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The bounds of one device, and what starting a step costs."""

    flops_per_s: float
    bytes_per_s: float
    launch_s: float = 0.0

    def seconds(self, *, flops: float, moved_bytes: float) -> float:
        """Time of a step that computes and moves this much."""
        return max(flops / self.flops_per_s, moved_bytes / self.bytes_per_s) + self.launch_s


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """What the steps of one model compute and move.

    Routed weights are read as far as the rows of a step touch them: a share of
    `routed_share` by one row, and of what is left by every other.
    """

    weight_bytes: float
    flops_per_row: float
    routed_weight_bytes: float = 0.0
    routed_share: float = 1.0
    context_flops: float = 0.0  # a row and a token before it
    context_bytes: float = 0.0  # a sequence and a token before its rows

    def flops(self, rows: Sequence[int], contexts: Sequence[int]) -> float:
        """Of a step with rows[i] rows after contexts[i] cached tokens of each sequence."""
        attended = sum(
            count * context + count * (count + 1) / 2
            for count, context in zip(rows, contexts, strict=True)
        )
        return sum(rows) * self.flops_per_row + attended * self.context_flops

    def moved_bytes(self, rows: Sequence[int], contexts: Sequence[int]) -> float:
        """Of the same step."""
        touched = 1 - (1 - self.routed_share) ** sum(rows)
        weights = self.weight_bytes + touched * self.routed_weight_bytes
        return weights + sum(contexts) * self.context_bytes
