"""What going from one value of a setting to another does, all else equal."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.catalogue import METRICS
from workbench.figures_chart import (
    ACROSS,
    Series,
    add_dots,
    add_level,
    chart,
    colours,
    name_axes,
    plain_title,
)
from workbench.figures_marks import metric_words, stamp
from workbench.figures_ratios import levels, matched_ratios, varied
from workbench.figures_text import axis_words, interval, number, plural, safe, short
from workbench.figures_theme import Look

MAX_LEVELS = 24  # of an axis whose effect is drawn


def main_effects(points: pd.DataFrame, metric: str, *, look: Look) -> go.Figure:
    """What going from each axis's first value to every other does, all else equal."""
    axes = varied(points)
    drawn = [axis for axis in axes if len(levels(points, axis)) <= MAX_LEVELS]
    parts = {axis: matched_ratios(points, axis, metric) for axis in drawn}
    crowded = [axis_words(axis) for axis in axes if axis not in drawn]
    figure = chart(
        look,
        _largest_effect(parts, metric),
        stamp(points),
        "ratio to the first value, geometric mean of points alike in all else",
        f"not drawn, too many values: {', '.join(crowded)}" if crowded else "",
    )
    for axis, rows in parts.items():
        figure_rows = rows if not rows.empty else rows.iloc[:0]
        add_dots(figure, _effect_series(axis, figure_rows, metric, points), across=True)
    add_level(figure, 1.0, "no effect", dark=look.dark, across="log")
    spec = METRICS[metric]
    better = ACROSS.get(str(spec.direction), "")
    title = plain_title("ratio to the first value", better=better)
    name_axes(figure, title, "", dark=look.dark)
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(type="log", dtick="D1" if _narrow(parts) else "D2")
    figure.update_layout(uirevision="effects", showlegend=False)
    return figure


def _narrow(parts: dict[str, pd.DataFrame]) -> bool:
    ratios = np.concatenate([rows["ratio"].to_numpy(float) for rows in parts.values()] or [[]])
    return bool(len(ratios)) and bool(ratios.max() / ratios.min() < 4)


def _effect_series(axis: str, rows: pd.DataFrame, metric: str, points: pd.DataFrame) -> Series:
    names = [f"{axis_words(axis)} {row.base} → {row.level}" for row in rows.itertuples()]
    hover = [
        f"{safe(name)}<br><b>×{number(row.ratio)}</b> in {safe(metric_words(metric))}"
        + (f"<br>95 % interval {span}" if (span := interval(row.low, row.high)) else "")
        + f"<br>over {plural(row.pairs, 'pair')} alike in all else"
        for name, row in zip(names, rows.itertuples(), strict=True)
    ]
    return Series(
        name=axis_words(axis),
        colour=colours(varied(points))[axis],
        x=[short(name, 34) for name in names],
        y=rows["ratio"].tolist(),
        low=rows["low"].tolist(),
        high=rows["high"].tolist(),
        hover=hover,
    )


def _largest_effect(parts: dict[str, pd.DataFrame], metric: str) -> str:
    rows = pd.concat([rows.assign(axis=axis) for axis, rows in parts.items()], ignore_index=True) \
        if parts else pd.DataFrame()  # fmt: skip
    if rows.empty:
        return "No two valid points differ in one axis alone"
    most = rows.loc[np.log(rows["ratio"].astype(float)).abs().idxmax()]
    words = axis_words(most["axis"])
    return (
        f"{words[0].upper()}{words[1:]} moves {metric_words(metric)} most: "
        f"×{number(most['ratio'])} from {most['base']} to {most['level']}"
    )
