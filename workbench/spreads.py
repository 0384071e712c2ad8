"""Whether an interval says anything: one of a ratio wider than a factor of ten is not spelled out.

Two or three repeats that scatter give intervals such as 0.758 to 68,000. What is stored keeps
them; tables and sentences say TOO_FEW instead, and pictures do not make room for them.
"""

from __future__ import annotations

import math

WIDEST = 10.0
"""High over low beyond which an interval over repeats is not told."""
TOO_FEW = "too few repeats to say"


def too_wide(low: float | None, high: float | None) -> bool:
    """True where `high` is more than WIDEST times `low`.

    For intervals over repeats and for ratios. False without an interval, and where `low` is not
    positive: such a quantity has no ratio.
    """
    if low is None or high is None or not (math.isfinite(low) and low > 0):
        return False
    return not high <= WIDEST * low


def drawn_ends(low: float | None, high: float | None) -> tuple[float, float]:
    """The ends that a picture makes room for: NaN where there are none or they say nothing."""
    if low is None or high is None or too_wide(low, high):
        return math.nan, math.nan
    return low, high
