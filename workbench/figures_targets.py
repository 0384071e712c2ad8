"""The values that a target slider stops at."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from workbench.figures_chart import is_log
from workbench.figures_ratios import usable

TARGET_MARKS = 60


def target_marks(points: pd.DataFrame, metric: str) -> list[float]:
    """Round values over the range of a metric, evenly apart, that a target may be set to."""
    found = usable(points, metric)[metric].to_numpy(float)
    if not len(found) or found.min() == found.max():
        return []
    places = np.linspace(found.min(), found.max(), TARGET_MARKS)
    if is_log(found):
        places = np.geomspace(found.min(), found.max(), TARGET_MARKS)
    digits = 1 - math.floor(math.log10(abs(found.max() - found.min()) / TARGET_MARKS))
    return sorted({round(float(place), max(0, digits)) for place in places})
