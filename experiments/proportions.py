"""How sure a share of counted things is."""

from __future__ import annotations

import math

Z95 = 1.959964


def share_between(count: float, of: int) -> tuple[float, float] | tuple[None, None]:
    """Wilson's 95 % interval of the share count / of; it stays inside 0 to 1, also at the ends.

    It takes the things as independent; a count in parts widens it as a whole one does.
    (None, None) of nothing.
    """
    if of <= 0:
        return None, None
    share = count / of
    wide = 1 + Z95**2 / of
    middle = (share + Z95**2 / (2 * of)) / wide
    half = Z95 * math.sqrt(share * (1 - share) / of + Z95**2 / (4 * of**2)) / wide
    low = 0.0 if not count else middle - half
    return low, 1.0 if count == of else middle + half
