"""The two axes of a Pareto picture: how far they reach, and what stands beside them."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.figures_chart import ACROSS, UP, is_log, name_axes
from workbench.figures_marks import axis_title
from workbench.figures_range import reach, say_cut
from workbench.figures_theme import Look
from workbench.fronts import Front


def top(drawn: pd.DataFrame, side: str) -> tuple[float, bool]:
    """How far an axis reaches, and whether intervals of the front's members go beyond."""
    values = drawn[side].to_numpy(float)
    if is_log(values):
        return float(values.max()), False
    ends = drawn.loc[drawn["on_front"], side + ".high"].dropna().to_numpy(float)
    _, high, cut = reach(np.append(values, min(0.0, values.min())), ends)
    return high, cut


def set_axes(figure: go.Figure, front: Front, look: Look, drawn: pd.DataFrame) -> None:
    """Range, scale and words of both axes."""
    log = {side: is_log(drawn[side].to_numpy(float)) for side in ("x", "y")}
    across = axis_title(front.x, ACROSS, log=log["x"])
    name_axes(figure, across, axis_title(front.y, UP, log=log["y"]), dark=look.dark)
    if drawn.empty:
        return
    cut = [_set_range(figure, drawn, side) for side in ("x", "y")]
    if any(cut):
        say_cut(figure)


def _set_range(figure: go.Figure, drawn: pd.DataFrame, side: str) -> bool:
    update = figure.update_xaxes if side == "x" else figure.update_yaxes
    values = drawn[side].to_numpy(float)
    high, cut = top(drawn, side)
    if is_log(values):
        low, high = math.log10(values.min()), math.log10(high)
        update(type="log", range=[low - 0.12, high + 0.16], dtick="D2" if high < 2 else None)
    else:
        update(range=_padded(float(values.min()), high))
    return cut


def _padded(low: float, high: float) -> list[float]:
    """A range with room for labels; it starts at zero, so that lengths compare as numbers do."""
    start = min(0.0, low)
    room = (high - start) or abs(high) or 1.0
    return [start - 0.02 * room if start == 0 else start - 0.12 * room, high + 0.14 * room]
