"""The Pareto picture: which configurations nothing else beats, and by how much they differ."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.figures_chart import is_log, is_simulated
from workbench.figures_front_axes import set_axes, top
from workbench.figures_labels import free_positions
from workbench.figures_marks import (
    CROWDED_FROM,
    SURE_UP_TO,
    finding_of,
    hovers,
    label_axes,
    marks_table,
    subtitle,
)
from workbench.figures_text import axis_mark, axis_words, in_order, safe, short, value_text
from workbench.figures_theme import MAX_GROUPS, OKABE_ITO, Look, base_figure, ink, with_alpha
from workbench.fronts import Front

WHISKERS_UP_TO = 60  # points; above this only the front keeps its whiskers
HEADROOM = 90  # pixels of a figure's height that its plot has not: axes and legend
LINE_DOTS = 24  # in one step of a staircase: near enough that no word fits between two
MAX_LABELS = 24
LEAST_ALPHA = 0.3  # of a valid point that is never on the front
OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Group:
    """The points of one colour."""

    name: str
    colour: str
    rows: pd.DataFrame


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
    rows = marks_table(points, front, by)
    drawn = rows[rows["drawn"]].copy()
    drawn["hover"] = hovers(drawn, front.x, front.y)
    title = look.title or finding_of(drawn, front)
    below = subtitle(look.subtitle, rows, drawn, by)
    figure = base_figure(title, below, dark=look.dark, height=look.height, columns=look.columns)
    groups = _groups(drawn, by)
    if len(points) <= SURE_UP_TO:
        _add_bands(figure, front, groups)
    _add_staircases(figure, front, drawn, groups)
    for group in groups:
        _add_group(figure, group, many=len(drawn) > CROWDED_FROM, dark=look.dark)
    _add_labels(figure, drawn, front, by, look)
    _add_selected(figure, drawn, look)
    set_axes(figure, front, look, drawn)
    if by is not None:
        figure.update_layout(legend={"title": {"text": safe(axis_words(by)) + "  "}})
    figure.update_layout(uirevision="pareto", hovermode="closest", clickmode="event+select")
    return figure


def _groups(drawn: pd.DataFrame, by: str | None) -> list[Group]:
    names = in_order(drawn["group"].unique())
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


def _add_group(figure: go.Figure, group: Group, *, many: bool, dark: bool) -> None:
    rows, colour = group.rows, group.colour
    solid = rows[~rows["hollow"]]
    members = solid[solid["on_front"]].sort_values(["x", "y"])
    others = solid[~solid["on_front"]]
    faint = {"size": 8, "color": _by_chance(others, colour, 0.7 if dark else 0.5)}
    faint["line"] = {"width": 0}
    hollow = {"size": 9, "color": colour, "line": {"width": 1.5}}
    strong = {"size": 11, "color": _by_chance(members, colour, 1.0)}
    strong["line"] = {"width": 1, "color": colour}
    few = len(rows) <= WHISKERS_UP_TO
    parts = (
        (others, faint, few),
        (rows[rows["hollow"]], hollow, few),
        (members, strong, True),
    )
    for part, marker, whiskers in parts:
        if not part.empty:
            kind = go.Scattergl if many else go.Scatter
            whisker = colour if whiskers else None
            marker["symbol"] = _shapes(part, "-open" if marker is hollow else "")
            figure.add_trace(kind(legendgroup=group.name, **_marker_trace(part, marker, whisker)))
    figure.add_trace(_legend_entry(group))


def _shapes(rows: pd.DataFrame, kind: str) -> list[str] | str:
    """Squares for what another tool measured, circles for what was measured here."""
    if not rows["imported"].any():
        return f"circle{kind}"
    return [f"square{kind}" if imported else f"circle{kind}" for imported in rows["imported"]]


def _by_chance(rows: pd.DataFrame, colour: str, unknown: float) -> list[str] | str:
    """The more likely on the front, the more opaque; `unknown` where the chance is not known."""
    if rows["chance"].isna().all():
        return with_alpha(colour, unknown) if unknown < 1 else colour
    alphas = (LEAST_ALPHA + (1 - LEAST_ALPHA) * rows["chance"]).fillna(unknown)
    return [with_alpha(colour, round(alpha, 2)) for alpha in alphas]


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
        "array": above,
        "arrayminus": below,
        "symmetric": False,
        "color": with_alpha(colour, 0.35),
        "thickness": 1,
        "width": 0,
    }


def _add_bands(figure: go.Figure, front: Front, groups: list[Group]) -> None:
    """Where the true front of each group lies, at each x in 95 of 100 studies."""
    colours = {trial: group.colour for group in groups for trial in group.rows["trial_id"]}
    for name, members in front.groups.items():
        if not members or members[0] not in colours:
            continue
        band = front.band(name)
        known = np.isfinite(band.low) & np.isfinite(band.high)
        if not known.any():
            continue
        x, low, high = (part[known].tolist() for part in (band.x, band.low, band.high))
        figure.add_trace(
            go.Scatter(
                x=[*x, *reversed(x)],
                y=[*high, *reversed(low)],
                mode="none",
                fill="toself",
                fillcolor=with_alpha(colours[members[0]], 0.13),
                hoverinfo="skip",
                showlegend=False,
                meta="band",
            )
        )


def _add_staircases(
    figure: go.Figure, front: Front, drawn: pd.DataFrame, groups: list[Group]
) -> None:
    """The attainable edges: what the measured configurations give, never an interpolation."""
    colours = {trial: group.colour for group in groups for trial in group.rows["trial_id"]}
    shown = set(drawn["trial_id"])
    for name, members in front.groups.items():
        if members and members[0] in shown:
            x, y = front.staircase(name)
            dash = "dash" if is_simulated(drawn) else "solid"
            line = {"color": with_alpha(colours[members[0]], 0.75), "width": 2, "dash": dash}
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
    shape = "square" if group.rows["imported"].all() else "circle"
    return go.Scatter(
        x=[None],
        y=[None],
        mode="markers",
        marker={"size": 10, "color": group.colour, "symbol": shape},
        name=safe(short(group.name, 40)),
        legendgroup=group.name,
        showlegend=bool(group.name),
        hoverinfo="skip",
    )


def _add_labels(
    figure: go.Figure, drawn: pd.DataFrame, front: Front, by: str | None, look: Look
) -> None:
    members = drawn[drawn["on_front"]].sort_values("y", ascending=False).head(MAX_LABELS)
    axes = label_axes(members, by)
    if members.empty or not axes:
        return
    texts = [
        " ".join(f"{axis_mark(name)}{short(value_text(row[name]), 12)}" for name in axes)
        for _, row in members.iterrows()
    ]
    corner = np.array([[top(drawn, side)[0] for side in ("x", "y")]])
    crowd = [_obstacles(drawn, front)] if len(drawn) <= CROWDED_FROM else []
    obstacles = np.concatenate([corner, *crowd])
    marks, height_px = members[["x", "y"]].to_numpy(float), 0.8 * (look.height - HEADROOM)
    spots = free_positions(marks, texts, obstacles, is_log, height=height_px)
    kept = [place for place, spot in enumerate(spots) if spot is not None]
    figure.add_trace(
        go.Scatter(
            x=members["x"].iloc[kept].tolist(),
            y=members["y"].iloc[kept].tolist(),
            mode="markers+text",
            marker={"size": 12, "opacity": 0},  # keeps the words off the visible mark
            text=[safe(texts[place]) for place in kept],
            textposition=[spots[place] for place in kept],
            cliponaxis=False,
            textfont={"size": 11, "color": ink(dark=look.dark).muted},
            hoverinfo="skip",
            showlegend=False,
        )
    )


def _obstacles(drawn: pd.DataFrame, front: Front) -> np.ndarray:
    """[spots, 2] in axis units that no word may cover: every mark, and every line in dots."""
    dots = [drawn[["x", "y"]].to_numpy(float)]
    for name in front.groups:
        corners = np.stack(front.staircase(name), axis=1)
        for start, end in itertools.pairwise(corners):
            dots.append(np.linspace(start, end, LINE_DOTS)[1:-1])
    return np.concatenate(dots)


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
