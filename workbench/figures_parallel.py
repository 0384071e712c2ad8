"""Every point as a line through its settings and its numbers: which settings go together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.catalogue import METRICS
from workbench.columns import words_of
from workbench.figures_chart import chart
from workbench.figures_marks import stamp
from workbench.figures_ratios import levels, usable, varied
from workbench.figures_text import axis_words, number, plural, safe, short, wrap
from workbench.figures_theme import Look, ink

CIVIDIS = "Cividis"  # reads the same to every kind of colour vision
ON_DARK = [
    [0.0, "#4f7fb8"],
    [0.5, "#a9a79a"],
    [1.0, "#ffe945"],
]  # the same, without its darkest end
MAX_TICKS = 12


def parallel_coordinates(
    points: pd.DataFrame, metric: str, also: tuple[str, ...] = (), *, look: Look
) -> go.Figure:
    """One line a valid point, coloured by the metric. Drag along an axis to keep a range."""
    rows = usable(points, metric)
    left_out = len(points) - len(rows)
    told = f"{plural(left_out, 'point')} not drawn: not valid, or without it" if left_out else ""
    title = f"{plural(len(rows), 'point')} by setting, coloured by {METRICS[metric].label}"
    figure = chart(look, title, stamp(points), told, "drag along an axis to keep a range")
    dimensions = [_setting(rows, name) for name in varied(points)]
    shown = (metric, *(name for name in also if name != metric and name in rows))
    dimensions += [found for name in shown if (found := _quantity(rows, name))]
    least = str(METRICS[metric].direction) == "min"
    colours = ink(dark=look.dark)
    figure.add_trace(
        go.Parcoords(
            dimensions=dimensions,
            line={
                "color": rows[metric].to_numpy(float),
                "colorscale": ON_DARK if look.dark else CIVIDIS,
                "reversescale": least,
            },
            labelfont={"color": colours.text, "size": 12},
            tickfont={"color": colours.muted, "size": 11},
            rangefont={"color": colours.muted, "size": 10},
            labelside="bottom",
        )
    )
    figure.update_layout(margin={"l": 56, "r": 56, "b": 48, "t": figure.layout.margin.t + 16})
    figure.update_layout(height=figure.layout.height + 16)
    return figure


def _setting(rows: pd.DataFrame, name: str) -> dict[str, object]:
    """Values evenly apart, in their order, with their words at the ticks."""
    found = levels(rows, name)
    places = {value: place for place, value in enumerate(found)}
    step = max(1, -(-len(found) // MAX_TICKS))
    return {
        "label": wrap(short(axis_words(name), 40), 20),
        "values": words_of(rows[name]).map(places).to_numpy(float),
        "tickvals": list(range(0, len(found), step)),
        "ticktext": [safe(short(value, 14)) for value in found[::step]],
        "range": [0, max(1, len(found) - 1)],
    }


def _quantity(rows: pd.DataFrame, name: str) -> dict[str, object] | None:
    """A metric on its own scale; None where some point lacks it, for a line has no holes."""
    values = rows[name].to_numpy(float)
    if not len(values) or not np.isfinite(values).all():
        return None
    low, high = float(values.min()), float(values.max())
    ticks = np.linspace(low, high, 5).tolist() if high > low else [low]
    return {
        "label": wrap(METRICS[name].heading, 20),
        "values": values,
        "tickvals": ticks,
        "ticktext": [number(tick) for tick in ticks],
        "range": [low, high] if high > low else [low - 1, low + 1],
    }
