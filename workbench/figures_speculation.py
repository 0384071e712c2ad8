"""Does drafting pay, and where? Acceptance, speed-up and what verification is spent on."""

from __future__ import annotations

import math

import pandas as pd
import plotly.graph_objects as go

from experiments.metric_rows import MAX_DRAFT_POSITIONS
from experiments.proportions import share_between
from workbench.catalogue import METRICS
from workbench.columns import words_of
from workbench.figures_chart import (
    Series,
    add_dots,
    add_level,
    add_series,
    chart,
    colours,
    is_simulated,
    metric_title,
    name_axes,
    plain_title,
)
from workbench.figures_loads import load_axis
from workbench.figures_marks import stamp
from workbench.figures_range import hold_range
from workbench.figures_ratios import counted, levels, matched_ratios, usable
from workbench.figures_text import (
    axis_phrase,
    axis_words,
    in_order,
    interval,
    number,
    plural,
    safe,
)
from workbench.figures_theme import MAX_GROUPS, Look

DRAFT_AXIS, DRAFT = "axis.draft_length", "engine.draft_length"
INDEPENDENT = "95 % Wilson intervals, steps taken as independent"


def text_kind(points: pd.DataFrame) -> str:
    """The column that names what was asked."""
    return "axis.workload" if "axis.workload" in points else "workload.name"


def drafted(points: pd.DataFrame) -> pd.DataFrame:
    """The valid points in which drafts were verified."""
    return usable(points, "acceptance_length")


def by_position(
    points: pd.DataFrame, *, given_before: bool, look: Look
) -> tuple[go.Figure, pd.DataFrame]:
    """Acceptance at each draft position: one line a text kind, or a draft length for one kind.

    `given_before`: of the drafts whose every earlier token was accepted, else of all proposed.
    """
    rows = drafted(points)
    kind = text_kind(points)
    by = kind if kind in rows and len(levels(rows, kind)) > 1 else DRAFT
    stem = "acceptance_c" if given_before else "acceptance_p"
    found = pd.DataFrame(
        [row for value in levels(rows, by) for row in _positions(rows, by, value, stem)],
        columns=["group", "position", "share", "low", "high", "n"],
    )
    figure = chart(look, _first_and_last(found), stamp(points), INDEPENDENT)
    paint = colours(found["group"])
    for name in list(dict.fromkeys(found["group"]))[:MAX_GROUPS]:
        part = found[found["group"] == name]
        add_series(figure, _position_line(name, by, part, paint[name], points))
    words = "accepted, given those before" if given_before else "accepted, of those proposed"
    title = plain_title(f"draft tokens {words}", "%", "↑")
    name_axes(figure, plain_title("position in the draft"), title, dark=look.dark)
    figure.update_xaxes(type="category")
    figure.update_yaxes(range=[0, 104])
    figure.update_layout(legend={"title": {"text": safe(axis_words(by)) + "  "}})
    figure.update_layout(uirevision="position", showlegend=found["group"].nunique() > 1)
    return figure, found


def _positions(rows: pd.DataFrame, by: str, value: str, stem: str) -> list[dict[str, object]]:
    part = rows[words_of(rows[by]) == value]
    found = []
    for place in range(1, MAX_DRAFT_POSITIONS + 1):
        name = f"{stem}{place}"
        count, n = counted(part, name)
        if n > 0:
            share = count / n
            low, high = share_between(round(count), round(n))
            ends = {"low": 100 * (low or 0.0), "high": 100 * (high or 0.0)}
            found.append({"group": value, "position": place, "share": 100 * share, "n": int(n)}
                         | ends)  # fmt: skip
    return found


def _position_line(
    name: str, by: str, rows: pd.DataFrame, colour: str, points: pd.DataFrame
) -> Series:
    hover = [
        f"{safe(axis_phrase(by, name))}, position {row.position}<br><b>{number(row.share)}</b> %, "
        f"95 % interval {interval(row.low, row.high)}<br>n={row.n:,} steps"
        for row in rows.itertuples()
    ]
    return Series(
        name=name,
        colour=colour,
        x=[str(place) for place in rows["position"]],
        y=rows["share"].tolist(),
        low=rows["low"].tolist(),
        high=rows["high"].tolist(),
        hover=hover,
        dashed=is_simulated(points),
    )


def _first_and_last(found: pd.DataFrame) -> str:
    if found.empty:
        return "No draft was verified"
    first = found[found["position"] == found["position"].min()]["share"]
    last = found[found["position"] == found["position"].max()]["share"]
    return (
        f"{_range(first)} % of first draft tokens are accepted, "
        f"{_range(last)} % at position {found['position'].max()}"
    )


def _range(values: pd.Series) -> str:
    low, high = number(float(values.min())), number(float(values.max()))
    return low if low == high else f"{low} to {high}"


def by_text_kind(points: pd.DataFrame, *, look: Look) -> tuple[go.Figure, pd.DataFrame]:
    """Acceptance length against draft length, one series a text kind."""
    rows, kind = drafted(points), text_kind(points)
    found = pd.DataFrame(
        [
            {"kind": name, "draft_length": length, **_pooled_length(part)}
            for name in levels(rows, kind)
            for length in levels(rows, DRAFT)
            if len(part := _of(rows, {kind: name, DRAFT: length}))
        ],
        columns=["kind", "draft_length", "tokens", "low", "high", "n"],
    )
    figure = chart(look, _longest(found), stamp(points), "tokens emitted / verify steps")
    paint = colours(found["kind"])
    for name in list(dict.fromkeys(found["kind"]))[:MAX_GROUPS]:
        part = found[found["kind"] == name]
        hover = [
            f"{safe(name)}, draft length {safe(row.draft_length)}<br>"
            f"<b>{number(row.tokens)}</b> tokens a step"
            + (f"<br>95 % interval {span}" if (span := interval(row.low, row.high)) else "")
            + f"<br>n={row.n:,} steps"
            for row in part.itertuples()
        ]
        add_dots(figure, Series(
            name=name, colour=paint[name], x=part["draft_length"].tolist(),
            y=part["tokens"].tolist(), low=part["low"].tolist(), high=part["high"].tolist(),
            hover=hover,
        ))  # fmt: skip
    title = metric_title("acceptance_length")
    name_axes(figure, plain_title("draft length"), title, dark=look.dark)
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    hold_range(figure, zero=True)
    figure.update_layout(uirevision="kind", showlegend=found["kind"].nunique() > 1)
    return figure, found


def _of(rows: pd.DataFrame, wanted: dict[str, str]) -> pd.DataFrame:
    for name, value in wanted.items():
        rows = rows[words_of(rows[name]) == value]
    return rows


def _pooled_length(rows: pd.DataFrame) -> dict[str, object]:
    """All steps together; the points' intervals are carried through as independent."""
    n = rows["acceptance_length.n"].to_numpy(float)
    values, total = rows["acceptance_length"].to_numpy(float), float(n.sum())
    mean = float((values * n).sum() / total) if total else math.nan
    reach = [
        math.sqrt(float((((rows[f"acceptance_length.{end}"].to_numpy(float) - values) * n) ** 2)
                        .sum())) / total if total else math.nan
        for end in ("low", "high")
    ]  # fmt: skip
    return {"tokens": mean, "low": mean - reach[0], "high": mean + reach[1], "n": int(total)}


def _longest(found: pd.DataFrame) -> str:
    if found.empty:
        return "No draft was verified"
    top = found.loc[found["tokens"].idxmax()]
    several = f" on {top['kind']}" if found["kind"].nunique() > 1 else ""
    words = f"{number(top['tokens'])} tokens a verify step"
    return f"At most {words}{several}, with draft length {top['draft_length']}"


def speed_up(points: pd.DataFrame, metric: str, *, look: Look) -> tuple[go.Figure, pd.DataFrame]:
    """The metric beside no drafting (or the shortest draft), one line a load; 1 is break-even."""
    load = load_axis(points)
    found = matched_ratios(points, DRAFT_AXIS, metric, by=load)
    base = str(found["base"].iloc[0]) if len(found) else ""
    told = "geometric mean of points alike in all else"
    figure = chart(look, _where_it_pays(found, load, metric), stamp(points), told)
    paint = colours(found["by"])
    for name in in_order(found["by"].unique())[:MAX_GROUPS]:
        add_series(figure, _ratio_line(name, load, found[found["by"] == name], base,
                                       paint[name], points))  # fmt: skip
    if len(found):
        add_level(figure, 1.0, "break-even", dark=look.dark)
    spec = METRICS[metric]
    better = {"max": "↑", "min": "↓"}.get(str(spec.direction), "")
    title = plain_title(f"{spec.label} / that at draft length {base or '0'}", better=better)
    name_axes(figure, plain_title("draft length"), title, dark=look.dark)
    figure.update_xaxes(type="category", categoryorder="array",
                        categoryarray=levels(points, DRAFT_AXIS))  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    hold_range(figure, zero=True)
    if load:
        figure.update_layout(legend={"title": {"text": safe(axis_words(load)) + "  "}})
    figure.update_layout(uirevision="speed", showlegend=load is not None)
    return figure, found


def _ratio_line(
    name: str, load: str | None, rows: pd.DataFrame, base: str, colour: str, points: pd.DataFrame
) -> Series:
    where = f"{axis_phrase(load, name)}, " if load else ""
    hover = [f"{safe(where)}draft length {safe(base)}: the base of the ratios"]
    hover += [
        f"{safe(where)}draft length {safe(row.level)}<br><b>×{number(row.ratio)}</b>"
        + (f", 95 % interval {span}" if (span := interval(row.low, row.high)) else "")
        + f"<br>over {plural(row.pairs, 'pair')} alike in all else"
        for row in rows.itertuples()
    ]
    return Series(
        name=name,
        colour=colour,
        x=[base, *rows["level"]],
        y=[1.0, *rows["ratio"]],
        low=[1.0, *rows["low"]],
        high=[1.0, *rows["high"]],
        hover=hover,
        dashed=is_simulated(points),
    )


def _where_it_pays(found: pd.DataFrame, load: str | None, metric: str) -> str:
    if found.empty:
        return "No two valid points differ in the draft length alone"
    least = str(METRICS[metric].direction) == "min"
    gain = 1 / found["ratio"] if least else found["ratio"]
    best = found.assign(gain=gain).sort_values("gain").groupby("by", sort=False).tail(1)
    sure = best["high"] < 1 if least else best["low"] > 1
    pays = best[best["low"].notna() & sure]
    top = best.loc[best["gain"].idxmax()]
    if pays.empty:
        return _not_shown(top)
    told = f"×{number(top['ratio'])} with draft length {top['level']}"
    if load is None:
        return f"Drafting pays: {told}"
    if len(pays) == len(best):
        return f"Drafting pays at every load, most at {axis_phrase(load, top['by'])}: {told}"
    names = ", ".join(axis_phrase(load, name) for name in in_order(pays["by"]))
    return f"Drafting pays at {names}; most: {told}"


def _not_shown(top: pd.Series) -> str:
    """That no interval lies on the good side of break-even; the most that was measured."""
    if top["gain"] <= 1:
        return "Drafting pays nowhere here"
    span = interval(top["low"], top["high"])
    told = f"×{number(top['ratio'])} at most, {span or 'without an interval'}"
    return f"It is not shown that drafting pays: {told}"
