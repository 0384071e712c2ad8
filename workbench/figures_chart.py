"""What lines, bars and cells share: a dressed figure, named axes, bands, whiskers, colours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.catalogue import METRICS
from workbench.figures_text import in_order, safe, short
from workbench.figures_theme import MAX_GROUPS, OKABE_ITO, Look, base_figure, ink, with_alpha

LOG_RANGE = 30.0  # an axis that spans more than this factor is logarithmic
ACROSS, UP = {"max": "→", "min": "←"}, {"max": "↑", "min": "↓"}
SIMULATED = "simulated"
CROWDED_LINE = 400  # points; above this a line has no marks


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line or row of bars. `low` and `high` are NaN where there is no interval."""

    name: str
    colour: str
    x: Sequence[object]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    hover: Sequence[str] = ()
    dashed: bool = False  # simulated
    steps: bool = False  # without marks, each value holding until the next
    keys: Sequence[str] = field(default_factory=tuple)  # the trial that each mark stands for


def chart(look: Look, finding: str, *told: str) -> go.Figure:
    """An empty figure titled by the look or by what was found, with what is told below it."""
    below = "; ".join(filter(None, [look.subtitle, *told]))
    title = look.title or finding
    figure = base_figure(title, below, dark=look.dark, height=look.height, columns=look.columns)
    figure.update_layout(hovermode="closest")
    return figure


def name_axes(figure: go.Figure, x: str, y: str, *, dark: bool) -> None:
    """Name both axes (ready text). That of y stands above the plot: nobody turns their head."""
    figure.update_xaxes(title={"text": x})
    margin, room = figure.layout.margin, 21 + 17 * (y.count("<br>") or 0)
    figure.update_layout(margin={"t": margin.t + room}, height=figure.layout.height + room)
    figure.add_annotation(
        text=y,
        name="y",
        x=0,
        y=1,
        xref="paper",
        yref="paper",
        xanchor="left",
        yanchor="bottom",
        xshift=4 - margin.l,  # below the title's first letter
        yshift=6,
        align="left",
        showarrow=False,
        font={"size": 12, "color": ink(dark=dark).muted},
    )


def metric_title(
    name: str, arrows: Mapping[str, str] = UP, *, log: bool = False, direction: str = ""
) -> str:
    """Label, unit and the good direction of a metric; below them statistic, basis and `log`.

    `direction` is asked for where it is not the metric's own.
    """
    spec = METRICS[name]
    over = f"over {spec.basis}"
    if spec.statistic not in spec.label:
        over = f"{spec.statistic} {over}"
    way = arrows.get(direction or str(spec.direction))
    better = f" better {way}" if way else ""
    return f"<b>{safe(spec.heading)}</b>{better}<br>{safe(over)}{', log scale' if log else ''}"


def plain_title(words: str, unit: str = "", better: str = "") -> str:
    """An axis of something that is no metric."""
    named = f"<b>{safe(words)}{f' ({safe(unit)})' if unit else ''}</b>"
    return named + (f" better {better}" if better else "")


def is_log(values: np.ndarray) -> bool:
    """True where a linear axis would crush the small values."""
    finite = values[np.isfinite(values)]
    if finite.size == 0 or finite.min() <= 0:
        return False
    return bool(finite.max() / finite.min() > LOG_RANGE)


def is_simulated(points: pd.DataFrame) -> bool:
    """True where no engine served any of the points."""
    labels = points.get("labels", ())
    return len(labels) > 0 and all(isinstance(f, list | tuple) and SIMULATED in f for f in labels)


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name by its place in order, the same in every figure of the names."""
    found = in_order(set(names))
    return {name: OKABE_ITO[min(place, MAX_GROUPS - 1)] for place, name in enumerate(found)}


def add_series(figure: go.Figure, series: Series, *, band: bool = True) -> None:
    """A line with its marks and the band of its intervals, if it has any."""
    if band and _any(series.low):
        figure.add_trace(_band(series))
    line = {"color": series.colour, "width": 2, "dash": "dash" if series.dashed else "solid"}
    line["shape"] = "hv" if series.steps else "linear"
    figure.add_trace(
        _scatter(series)(
            mode="lines+markers" if not series.steps and len(series.x) <= CROWDED_LINE else "lines",
            line=line,
            connectgaps=False,
            **_told(series),
        )
    )


def add_dots(figure: go.Figure, series: Series, *, across: bool = False) -> None:
    """Marks with whiskers, along y (or along x with `across`, where x and y change places)."""
    points = _told(series)
    if across:
        points["x"], points["y"] = points["y"], points["x"]
    whiskers = {"error_x" if across else "error_y": _whiskers(series)} if _any(series.low) else {}
    marker = {"size": 9, "color": series.colour}
    figure.add_trace(_scatter(series)(mode="markers", marker=marker, **points, **whiskers))


def _scatter(series: Series) -> type[go.Scatter] | type[go.Scattergl]:
    return go.Scattergl if len(series.x) > 5 * CROWDED_LINE else go.Scatter


def _told(series: Series) -> dict[str, object]:
    told: dict[str, object] = {
        "x": texts_safe(series.x),
        "y": nullable(series.y),
        "name": safe(short(series.name, 40)),
        "legendgroup": series.name,
        "showlegend": bool(series.name),
    }
    if series.hover:
        told |= {"hovertext": list(series.hover), "hoverinfo": "text"}
    if series.keys:
        told["customdata"] = [[key] for key in series.keys]
    return told


def texts_safe(values: Iterable[object]) -> list[object]:
    """Categories of an axis without mark-up; numbers as they are."""
    return [safe(value) if isinstance(value, str) else value for value in values]


def _band(series: Series) -> go.Scatter:
    """The area between the interval's ends; a point without an interval has none of it."""
    rows = [
        (x, low, high)
        for x, low, high in zip(texts_safe(series.x), series.low, series.high, strict=True)
        if np.isfinite(low) and np.isfinite(high)
    ]
    return go.Scatter(
        x=[x for x, _, _ in rows] + [x for x, _, _ in reversed(rows)],
        y=[high for _, _, high in rows] + [low for _, low, _ in reversed(rows)],
        fill="toself",
        fillcolor=with_alpha(series.colour, 0.16),
        mode="none",
        hoverinfo="skip",
        legendgroup=series.name,
        showlegend=False,
    )


def _whiskers(series: Series) -> dict[str, object]:
    value = np.asarray(series.y, dtype=float)
    above = np.nan_to_num(np.asarray(series.high, dtype=float) - value).clip(min=0)
    below = np.nan_to_num(value - np.asarray(series.low, dtype=float)).clip(min=0)
    return {
        "type": "data",
        "array": above.tolist(),
        "arrayminus": below.tolist(),
        "symmetric": False,
        "color": with_alpha(series.colour, 0.6),
        "thickness": 1.5,
        "width": 3,
    }


def _any(values: Sequence[float]) -> bool:
    return bool(len(values)) and bool(np.isfinite(np.asarray(values, dtype=float)).any())


def nullable(values: Iterable[float]) -> list[float | None]:
    """NaN and infinity as None: the browser's JSON has neither."""
    return [float(value) if np.isfinite(value) else None for value in values]


def add_level(figure: go.Figure, at: float, words: str, *, dark: bool, across: str = "") -> None:
    """A dotted line that means something, its words at the top: of y, or of an x axis `across`.

    `across` is `linear` or `log`, the kind of that axis.
    """
    colour = ink(dark=dark).muted
    line = {"dash": "dot", "width": 1.5, "color": colour}
    if across:
        figure.add_vline(x=at, line=line)
        place = {"x": math.log10(at) if across == "log" else at, "y": 1, "yref": "paper"}
        place |= {"xanchor": "left", "yanchor": "bottom"}
    else:
        figure.add_hline(y=at, line=line)
        place = {"x": 1, "xref": "paper", "y": at, "xanchor": "right", "yanchor": "bottom"}
    font = {"size": 11, "color": colour}
    figure.add_annotation(text=safe(words), showarrow=False, font=font, **place)


def add_window(figure: go.Figure, window_s: tuple[float, float] | None, *, dark: bool) -> None:
    """Shade the measured window of a figure whose x is the trial's time."""
    if window_s is None:
        return
    top, room = figure.layout.margin.t, 18  # for the word above the shade, below the head
    figure.update_layout(margin={"t": top + room}, height=figure.layout.height + room)
    for note in figure.layout.annotations:
        if note.name == "y":
            note.yshift += room
    figure.add_vrect(
        x0=window_s[0],
        x1=window_s[1],
        fillcolor=with_alpha(ink(dark=dark).muted, 0.1),
        line_width=0,
        layer="below",
        annotation_text="measured",
        annotation_position="top left",
        annotation_yanchor="bottom",
        annotation_font={"size": 11, "color": ink(dark=dark).muted},
    )
