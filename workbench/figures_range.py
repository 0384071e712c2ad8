"""How far an axis reaches: values decide, and an interval a hundred times as long is cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import plotly.graph_objects as go

CUT = "intervals reach beyond the picture"
ROOM = 1.0  # times the spread of the values, for intervals
EDGE = 0.05
FILLED = ("heatmap", "parcoords")  # traces that are drawn without x and y of their own


def is_empty(figure: go.Figure) -> bool:
    """True where nothing would be seen but the axes."""
    return not any(
        trace.type in FILLED or (_some(trace.x) and _some(trace.y)) for trace in figure.data
    )


def reach(values: np.ndarray, ends: np.ndarray) -> tuple[float, float, bool]:
    """Lowest and highest of the values and their intervals' ends, and whether ends are cut."""
    low, high = float(values.min()), float(values.max())
    room = ROOM * ((high - low) or abs(high) or 1.0)
    every = np.append(ends, (low, high))
    least, most = float(every.min()), float(every.max())
    floor, roof = max(least, low - room), min(most, high + room)
    return floor, roof, least < floor or most > roof


def hold_range(figure: go.Figure, *, side: str = "y", zero: bool = False) -> None:
    """Keep a linear axis of values in sight where intervals would crush them; says so.

    `zero` lets the axis start at 0.
    """
    values, ends = _extent(figure.data, side)
    if not len(values):
        return
    if zero:
        values = np.append(values, 0.0)
    low, high, cut = reach(values, ends)
    if not cut:
        return
    edge = EDGE * (high - low)
    span = [low if zero and low == 0 else low - edge, high + edge]
    figure.update_layout({f"{side}axis": {"range": span, "autorange": None}})
    say_cut(figure, side)


def say_cut(figure: go.Figure, side: str = "y") -> None:
    """Tell beside the name of an axis, which `name_axes` gave, that intervals are cut."""
    if side == "x":
        title = figure.layout.xaxis.title
        title.text = f"{title.text}<br>{CUT}"
        return
    for note in figure.layout.annotations:
        if note.name == "y":
            note.text = f"{note.text}; {CUT}"


def _extent(traces: Iterable[go.Scatter], side: str) -> tuple[np.ndarray, np.ndarray]:
    """Values of the traces along `side`, and the ends of their bands and whiskers."""
    values, ends = [np.empty(0)], [np.empty(0)]
    for trace in traces:
        found = np.array([_number(cell) for cell in _cells(trace[side])])
        if trace.type.startswith("scatter") and trace.mode == "none":
            ends.append(found)
            continue
        values.append(found)
        whiskers = trace[f"error_{side}"]
        for sign, name in ((1, "array"), (-1, "arrayminus")):
            if whiskers is not None and whiskers[name] is not None:
                ends.append(found + sign * np.asarray(whiskers[name], dtype=float))
    return tuple(one[np.isfinite(one)] for one in map(np.concatenate, (values, ends)))


def _some(cells: object) -> bool:
    """True where a cell is a category or a finite number."""
    return any(isinstance(cell, str) or np.isfinite(_number(cell)) for cell in _cells(cells))


def _cells(cells: object) -> list[object]:
    if cells is None or isinstance(cells, Mapping):
        return []
    return list(cells)


def _number(cell: object) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return np.nan
