"""Whether an interval says anything: one of a ratio wider than a factor of ten is not spelled out.

Two or three repeats that scatter give intervals such as 0.758 to 68,000. What is stored keeps
them; tables and sentences say TOO_FEW instead. How far a picture reaches, `figures_range` decides.
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


def says_nothing(low: float | None, high: float | None, repeats: int) -> bool:
    """True for an interval over several repeats that is too wide."""
    return repeats > 1 and too_wide(low, high)
