"""The Pareto picture: which configurations nothing else beats, and by how much they differ."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from experiments.metrics import METRICS, MetricSpec
from workbench.figures_labels import free_positions
from workbench.figures_text import (
    axis_mark,
    axis_phrase,
    axis_words,
    interval,
    number,
    plural,
    safe,
    short,
    value_text,
)
from workbench.figures_theme import MAX_GROUPS, OKABE_ITO, base_figure, ink, with_alpha
from workbench.fronts import Front
from workbench.pareto import Axis

LOG_RANGE = 30.0  # an axis that spans more than this factor is logarithmic
WEBGL_FROM = 1000  # points; above this the browser draws them on its graphics card
WHISKERS_UP_TO = 60  # points; above this only the front keeps its whiskers
MAX_LABELS = 24
OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a figure is dressed; nothing here changes what it says."""

    title: str = ""  # empty: what the figure finds
    subtitle: str = ""
    dark: bool = False
    height: int = 520
    selected: str | None = None  # the trial id that gets a ring


@dataclass(frozen=True, kw_only=True)
class Group:
    """The points of one colour."""

    name: str
    colour: str
    rows: pd.DataFrame


def spec_of(metric: str) -> MetricSpec:
    """The definition of `metric`; KeyError for a name that is none."""
    return METRICS[metric]


def pareto(
    points: pd.DataFrame, front: Front, *, by: str | None = None, look: Look | None = None
) -> go.Figure:
    """Every trial of `points` that has both numbers, with the staircase of each group's front.

    `points` has the columns of `Run.points()`, `front` was made of the same rows, and `by` names
    the column that gives the colour. Each mark carries `customdata = [trial_id, run_id]`. Invalid
    trials are hollow, with the first failed gate in the hover; trials without both numbers are
    counted in the subtitle.
    """
    look = look or Look()
    rows = _marks(points, front, by)
    drawn = rows[rows["drawn"]]
    title = look.title or _finding(drawn, front)
    subtitle = _subtitle(look.subtitle, rows, drawn)
    figure = base_figure(title, subtitle, dark=look.dark, height=look.height)
    groups = _groups(drawn, by)
    _add_staircases(figure, front, drawn, groups)
    for group in groups:
        _add_group(figure, group, many=len(drawn) > WEBGL_FROM)
    _add_labels(figure, drawn, look)
    _add_selected(figure, drawn, look)
    _set_axes(figure, drawn, front)
    if by is not None:
        figure.update_layout(legend={"title": {"text": safe(axis_words(by)) + "  "}})
    figure.update_layout(uirevision="pareto", hovermode="closest", clickmode="event+select")
    return figure


def finding(points: pd.DataFrame, front: Front) -> str:
    """What the front shows, in one sentence computed from its members."""
    rows = _marks(points, front, None)
    return _finding(rows[rows["drawn"]], front)


def _finding(drawn: pd.DataFrame, front: Front) -> str:
    x, y = front.x, front.y
    members = drawn[drawn["on_front"]]
    if members.empty:
        return "No valid point has both numbers yet"
    most_y = members.loc[_best(members["y"], y)]
    most_x = members.loc[_best(members["x"], x)]
    axes = [name for name in _axes(members) if most_x[name] != most_y[name]]
    if most_x["trial_id"] == most_y["trial_id"] or not axes:
        where = _describe(most_y, _varying(drawn))
        both = f"{_quantity(y, most_y['y'])} and {_quantity(x, most_y['x'])}"
        return f"One configuration is best on both axes: {both}" + (
            f" with {where}" if where else ""
        )
    return (
        f"{_quantity(y, most_y['y'])} with {_describe(most_y, axes)}; "
        f"{_quantity(x, most_x['x'])} with {_describe(most_x, axes)}"
    )


def axis_title(axis: Axis) -> str:
    """Label, statistic, basis and unit, then an arrow that points the good way."""
    spec = spec_of(axis.metric)
    qualifiers = [part for part in (spec.statistic, spec.basis) if part]
    words = ", ".join([spec.label, *qualifiers])
    arrow = "better →" if axis.direction == "max" else "← better"
    unit = f" ({safe(spec.unit)})" if spec.unit else ""
    return f"{safe(words)}{unit}   <b>{arrow}</b>"


def _marks(points: pd.DataFrame, front: Front, by: str | None) -> pd.DataFrame:
    kept = [name for name in ("trial_id", "run_id", "repeat", "state", "reason") if name in points]
    rows = points[kept + _axes(points)].copy()
    for side, axis in (("x", front.x), ("y", front.y)):
        for part in ("", ".low", ".high", ".n"):
            column = axis.metric + part
            value = points.get(column)
            rows[side + part] = pd.to_numeric(value) if value is not None else np.nan
    rows["drawn"] = np.isfinite(rows["x"].astype(float)) & np.isfinite(rows["y"].astype(float))
    rows["on_front"] = front.on_front
    rows["hollow"] = rows["trial_id"].isin(set(front.excluded)) | (rows["state"] != "ok")
    rows["why"] = [front.excluded.get(trial, "") for trial in rows["trial_id"]]
    rows["group"] = "" if by is None else points[by].map(value_text)
    rows["hover"] = _hovers(rows, front.x, front.y)
    return rows


def _axes(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame.columns if str(name).startswith("axis.")]


def _varying(frame: pd.DataFrame) -> list[str]:
    return [name for name in _axes(frame) if frame[name].map(value_text).nunique() > 1]


def _describe(row: pd.Series, axes: list[str]) -> str:
    return ", ".join(axis_phrase(name, short(value_text(row[name]), 24)) for name in axes)


def _quantity(axis: Axis, value: float) -> str:
    spec = spec_of(axis.metric)
    if "/" in spec.unit:
        return f"{number(value)} {spec.unit}"
    return f"{spec.label} {number(value)} {spec.unit}".strip()


def _best(values: pd.Series, axis: Axis) -> object:
    return values.idxmax() if axis.direction == "max" else values.idxmin()


def _hovers(rows: pd.DataFrame, x: Axis, y: Axis) -> list[str]:
    heads = _hover_heads(rows)
    xs, ys = _hover_numbers(rows, "x", x), _hover_numbers(rows, "y", y)
    ends = _hover_ends(rows)
    return [
        "<br>".join(part for part in parts if part)
        for parts in zip(heads, ys, xs, ends, strict=True)
    ]


def _hover_heads(rows: pd.DataFrame) -> list[str]:
    """The axes that vary, one a line."""
    names = _varying(rows)
    columns = [
        [f"{safe(axis_words(name))} {safe(short(value_text(cell), 40))}" for cell in rows[name]]
        for name in names
    ]
    return ["<br>".join(cells) for cells in zip(*columns, strict=True)] or [""] * len(rows)


def _hover_numbers(rows: pd.DataFrame, side: str, axis: Axis) -> list[str]:
    """The number with its interval and sample size; the number alone on a crowded figure."""
    spec = spec_of(axis.metric)
    head, unit = f"{safe(spec.label)} <b>", f"</b> {safe(spec.unit)}"
    values = [head + number(value) + unit for value in rows[side].tolist()]
    if len(rows) > WEBGL_FROM:
        return values
    cells = zip(
        values, *(rows[side + part].tolist() for part in (".low", ".high", ".n")), strict=True
    )
    return [
        value
        + (f" ({span})" if (span := interval(low, high)) else "")
        + (f", n={n:.0f}" if n == n else "")
        for value, low, high, n in cells
    ]


def _hover_ends(rows: pd.DataFrame) -> list[str]:
    reasons = [
        why or reason if hollow else ""
        for why, reason, hollow in zip(rows["why"], rows["reason"], rows["hollow"], strict=True)
    ]
    cells = zip(rows["state"], reasons, rows["trial_id"], strict=True)
    return [
        (f"<b>{safe(state)}</b>: {safe(short(str(reason), 90))}<br>" if reason else "")
        + f"trial {safe(trial)}"
        for state, reason, trial in cells
    ]


def _subtitle(given: str, rows: pd.DataFrame, drawn: pd.DataFrame) -> str:
    parts = [given] if given else []
    parts.append(f"{plural(len(drawn), 'point')}, {drawn['on_front'].sum():,} on the front")
    if drawn["hollow"].any():
        parts.append(f"{drawn['hollow'].sum():,} hollow: not valid")
    missing = rows.loc[~rows["drawn"], "state"].value_counts()
    if not missing.empty:
        states = ", ".join(f"{count:,} {state}" for state, count in missing.items())
        parts.append(f"not drawn: {states}")
    return "; ".join(parts)


def _groups(drawn: pd.DataFrame, by: str | None) -> list[Group]:
    names = sorted(drawn["group"].unique(), key=_natural)
    shown = names if len(names) <= MAX_GROUPS else names[: MAX_GROUPS - 1]
    groups = [
        Group(name=name, colour=OKABE_ITO[place], rows=drawn[drawn["group"] == name])
        for place, name in enumerate(shown)
    ]
    rest = drawn[~drawn["group"].isin(shown)]
    if not rest.empty:
        name = f"{OTHER} ({len(names) - len(shown)} values)"
        groups.append(Group(name=name, colour=OKABE_ITO[-1], rows=rest))
    return groups


def _natural(text: str) -> tuple[bool, float, str]:
    try:
        return (False, float(text), text)
    except ValueError:
        return (True, 0.0, text)


def _add_group(figure: go.Figure, group: Group, *, many: bool) -> None:
    rows, colour = group.rows, group.colour
    solid = rows[~rows["hollow"]]
    members = solid[solid["on_front"]].sort_values(["x", "y"])
    faint = {"size": 8, "color": with_alpha(colour, 0.42), "line": {"width": 0}}
    hollow = {"size": 9, "symbol": "circle-open", "color": colour, "line": {"width": 1.5}}
    strong = {"size": 11, "color": colour, "line": {"width": 1, "color": "rgba(255,255,255,.7)"}}
    few = len(rows) <= WHISKERS_UP_TO
    parts = (
        (solid[~solid["on_front"]], faint, few),
        (rows[rows["hollow"]], hollow, few),
        (members, strong, True),
    )
    for part, marker, whiskers in parts:
        if not part.empty:
            kind = go.Scattergl if many else go.Scatter
            whisker = colour if whiskers else None
            figure.add_trace(kind(legendgroup=group.name, **_marker_trace(part, marker, whisker)))
    figure.add_trace(_legend_entry(group))


def _marker_trace(rows: pd.DataFrame, marker: dict, whisker: str | None) -> dict:
    trace = {
        "x": rows["x"].to_numpy(float),  # arrays: plotly walks a list item by item
        "y": rows["y"].to_numpy(float),
        "mode": "markers",
        "marker": marker,
        "hovertext": rows["hover"].to_numpy(object),
        "hoverinfo": "text",
        "customdata": rows[["trial_id", "run_id"]].to_numpy(object),
        "selected": {"marker": {"opacity": 1}},
        "unselected": {"marker": {"opacity": 1}},
        "showlegend": False,
    }
    if whisker is not None:
        trace["error_x"] = _whiskers(rows, "x", whisker)
        trace["error_y"] = _whiskers(rows, "y", whisker)
    return trace


def _whiskers(rows: pd.DataFrame, side: str, colour: str) -> dict:
    value = rows[side].to_numpy(float)
    above = np.nan_to_num(rows[side + ".high"].to_numpy(float) - value).clip(min=0)
    below = np.nan_to_num(value - rows[side + ".low"].to_numpy(float)).clip(min=0)
    return {
        "type": "data",
        "array": above.tolist(),
        "arrayminus": below.tolist(),
        "symmetric": False,
        "color": with_alpha(colour, 0.35),
        "thickness": 1,
        "width": 0,
    }


def _add_staircases(
    figure: go.Figure, front: Front, drawn: pd.DataFrame, groups: list[Group]
) -> None:
    """The attainable edges: what the measured configurations give, never an interpolation."""
    colours = {trial: group.colour for group in groups for trial in group.rows["trial_id"]}
    shown = set(drawn["trial_id"])
    for name, members in front.groups.items():
        if members and members[0] in shown:
            x, y = front.staircase(name)
            line = {"color": with_alpha(colours[members[0]], 0.75), "width": 2}
            figure.add_trace(
                go.Scatter(
                    x=x.tolist(),
                    y=y.tolist(),
                    mode="lines",
                    line=line,
                    hoverinfo="skip",
                    showlegend=False,
                )
            )


def _legend_entry(group: Group) -> go.Scatter:
    return go.Scatter(
        x=[None],
        y=[None],
        mode="markers",
        marker={"size": 10, "color": group.colour},
        name=safe(short(group.name, 40)),
        legendgroup=group.name,
        showlegend=bool(group.name),
        hoverinfo="skip",
    )


def _add_labels(figure: go.Figure, drawn: pd.DataFrame, look: Look) -> None:
    members = drawn[drawn["on_front"]].sort_values("y", ascending=False).head(MAX_LABELS)
    axes = _varying(members)[:4]
    if members.empty or not axes:
        return
    texts = [
        " ".join(f"{axis_mark(name)}{short(value_text(row[name]), 12)}" for name in axes)
        for _, row in members.iterrows()
    ]
    obstacles = drawn[["x", "y"]].to_numpy(float) if len(drawn) <= WEBGL_FROM else None
    spots = free_positions(members[["x", "y"]].to_numpy(float), texts, obstacles, is_log)
    kept = [place for place, spot in enumerate(spots) if spot is not None]
    figure.add_trace(
        go.Scatter(
            x=members["x"].iloc[kept].tolist(),
            y=members["y"].iloc[kept].tolist(),
            mode="text",
            text=[safe(texts[place]) for place in kept],
            textposition=[spots[place] for place in kept],
            textfont={"size": 11, "color": ink(dark=look.dark).muted},
            hoverinfo="skip",
            showlegend=False,
        )
    )


def _add_selected(figure: go.Figure, drawn: pd.DataFrame, look: Look) -> None:
    chosen = drawn[drawn["trial_id"] == look.selected]
    if chosen.empty:
        return
    ring = {"size": 20, "symbol": "circle-open", "color": ink(dark=look.dark).text}
    figure.add_trace(
        go.Scatter(
            x=chosen["x"].tolist(),
            y=chosen["y"].tolist(),
            mode="markers",
            marker={**ring, "line": {"width": 2}},
            hoverinfo="skip",
            showlegend=False,
        )
    )


def is_log(values: np.ndarray) -> bool:
    """True where a linear axis would crush the small values."""
    finite = values[np.isfinite(values)]
    if finite.size == 0 or finite.min() <= 0:
        return False
    return bool(finite.max() / finite.min() > LOG_RANGE)


def _set_axes(figure: go.Figure, drawn: pd.DataFrame, front: Front) -> None:
    for update, side, axis in (
        (figure.update_xaxes, "x", front.x),
        (figure.update_yaxes, "y", front.y),
    ):
        values = drawn[side].to_numpy(float)
        update(title={"text": axis_title(axis)})
        if is_log(values):
            low, high = math.log10(values.min()), math.log10(values.max())
            update(type="log", range=[low - 0.12, high + 0.16], dtick="D2" if high < 2 else None)
        elif values.size:
            update(range=_padded(values))


def _padded(values: np.ndarray) -> list[float]:
    low, high = float(values.min()), float(values.max())
    start = 0.0 if 0 <= low < 0.5 * high else low
    room = (high - start) or abs(high) or 1.0
    return [start - 0.02 * room if start == 0 else start - 0.12 * room, high + 0.14 * room]
