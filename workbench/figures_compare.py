"""B against A as pictures: what changed by how much, and how likely B's front lies beyond A's."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.catalogue import METRICS
from workbench.compare import Comparison
from workbench.figures_chart import (
    ACROSS,
    Series,
    add_dots,
    add_level,
    add_series,
    chart,
    colours,
    metric_title,
    name_axes,
    plain_title,
)
from workbench.figures_range import hold_range
from workbench.figures_text import number, plural, safe, short
from workbench.figures_theme import MAX_GROUPS, OKABE_ITO, Look
from workbench.fronts import Front, pareto
from workbench.pareto import Axis

ARM = "arm"
VERDICT_COLOURS = {"better": OKABE_ITO[2], "worse": OKABE_ITO[3], "changed": OKABE_ITO[0]}
PLAIN = OKABE_ITO[-1]
SURE = 0.95
UNJUDGED = "Not judged: a chance within these two runs, without what differs from run to run"


def change_words(ratio: float | None, low: float | None, high: float | None) -> str:
    """`+4.1 % (2.9 to 5.2)` of a ratio B / A; an em dash where there is none."""
    if ratio is None or not math.isfinite(ratio):
        return number(None)
    told = f"{_signed(ratio)} %"
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return told
    return f"{told} ({_signed(low)} to {_signed(high)})"


def _signed(ratio: float) -> str:
    change = round(100 * (ratio - 1), 9) + 0.0  # no digits of the arithmetic itself, nor a -0
    return ("+" if change > 0 else "") + number(change)


def changes_figure(comparison: Comparison, *, look: Look) -> tuple[go.Figure, pd.DataFrame]:
    """The change of each metric over all matched points, coloured by its verdict."""
    rows = comparison.overall
    rows = rows[rows["ratio"].notna()]
    matched = plural(len(comparison.matches.rows), "matched point")
    figure = chart(look, changes_finding(comparison), f"B against A, {matched}")
    for verdict in dict.fromkeys(map(str, rows["verdict"])):
        part = rows[rows["verdict"].map(str) == verdict]
        percent = [(100 * (part[name].astype(float) - 1)).tolist() for name in
                   ("ratio", "low", "high")]  # fmt: skip
        hover = [
            f"{safe(row.label)}<br><b>{change_words(row.ratio, row.low, row.high)}</b><br>"
            f"{safe(short(row.sentence, 110))}<br>{safe(row.basis)}"
            for row in part.itertuples()
        ]
        colour = VERDICT_COLOURS.get(verdict, PLAIN)
        series = Series(
            name=verdict, colour=colour, x=part["label"].tolist(), y=percent[0], low=percent[1],
            high=percent[2], hover=hover,
        )  # fmt: skip
        add_dots(figure, series, across=True)
    add_level(figure, 0.0, "no change", dark=look.dark, across="linear")
    name_axes(figure, plain_title("change from A to B", "%"), "", dark=look.dark)
    hold_range(figure, side="x")
    order = rows["label"].tolist()
    figure.update_yaxes(type="category", autorange="reversed", categoryorder="array",
                        categoryarray=order)  # fmt: skip
    figure.update_layout(uirevision="changes")
    return figure, rows


def changes_finding(comparison: Comparison) -> str:
    """What is better, what is worse, and of how many metrics nothing is shown."""
    rows = comparison.overall
    verdicts = rows["verdict"].map(str)
    told = [
        f"{words}: {', '.join(rows.loc[verdicts == verdict, 'label'].tolist()[:3])}"
        for verdict, words in (("better", "B is better in"), ("worse", "B is worse in"))
        if (verdicts == verdict).any()
    ]
    if len(rows) and (verdicts == "not judged").all():
        return f"Nothing can be judged: {rows['sentence'].iloc[0].removeprefix('not judged: ')}"
    return "; ".join(told) or "No difference is shown in any metric"


def arms_front(comparison: Comparison, x: str, y: str) -> tuple[pd.DataFrame, Front]:
    """The matched points of both arms in one table with the column `arm`, and its fronts."""
    sides = []
    for place, (arm, name) in enumerate(((comparison.a, "A"), (comparison.b, "B"))):
        rows = [pair[place] for pair in comparison.matches.rows]
        sides.append(arm.points.iloc[rows].assign(**{ARM: name}))
    points = pd.concat(sides, ignore_index=True)
    axes = [Axis(metric=name, direction=str(METRICS[name].direction)) for name in (x, y)]
    runs = {arm.run.run_id: arm.run for arm in (comparison.a, comparison.b)}
    return points, pareto(points, axes[0], axes[1], by=ARM, runs=list(runs.values()))


def judged(comparison: Comparison, *metrics: str) -> bool:
    """True where a verdict was given on each of the metrics."""
    rows = comparison.overall[comparison.overall["metric"].isin(metrics)]
    return bool(len(rows)) and "not judged" not in set(rows["verdict"].map(str))


def beats_table(front: Front) -> pd.DataFrame:
    """kind, x, probability, ratio, low, high: B against A along x, for each kind of points.

    Only where both sides have a front and were both measured; unlike workloads stay apart.
    """
    found = []
    for kind, (ours, theirs) in _pairs(front).items():
        ends = [front.vertices[group][:, 0] for group in (ours, theirs)]
        if max(part.min() for part in ends) <= min(part.max() for part in ends):
            found.append(front.beats(ours, theirs).assign(kind=kind))
    names = ["kind", "x", "probability", "ratio", "low", "high"]
    return pd.concat(found, ignore_index=True)[names] if found else pd.DataFrame(columns=names)


def _pairs(front: Front) -> dict[str, tuple[str, str]]:
    """Kind of points in words -> the groups of B and of A that are of that kind."""
    sides = {
        arm: {
            group.removeprefix(f"{ARM}={arm}").removeprefix(", "): group
            for group, members in front.groups.items()
            if members and group.startswith(f"{ARM}={arm}")
        }
        for arm in ("A", "B")
    }
    return {kind: (group, sides["A"][kind]) for kind, group in sides["B"].items()
            if kind in sides["A"]}  # fmt: skip


def beats_figure(
    front: Front, *, look: Look, judged: bool = True
) -> tuple[go.Figure, pd.DataFrame]:
    """The chance that B attains more than A, along x; one line a kind of points.

    Without `judged` the chance is that of these two runs: what differs from run to run is not in
    it, and the title says so.
    """
    rows = beats_table(front)
    finding = _beats_finding(rows, front) if judged or rows.empty else UNJUDGED
    figure = chart(look, finding, "over the range that both reach")
    kinds = list(dict.fromkeys(rows["kind"]))[:MAX_GROUPS]
    paint = colours(kinds)
    for kind in kinds:
        part = rows[rows["kind"] == kind]
        hover = [
            f"at {number(row.x)}: B beats A in <b>{number(100 * row.probability)}</b> % of draws"
            f"<br>B / A {number(row.ratio)} ({number(row.low)} to {number(row.high)})"
            for row in part.itertuples()
        ]
        chances = (100 * part["probability"].astype(float)).tolist()
        add_series(figure, Series(name=kind, colour=paint[kind], x=part["x"].tolist(), y=chances,
                                  hover=hover, steps=len(part) > 1))  # fmt: skip
    if kinds:
        add_level(figure, 50.0, "as likely as not", dark=look.dark)
    x = metric_title(front.x.metric, ACROSS, direction=front.x.direction)
    name_axes(figure, x, plain_title("P(B beats A)", "%"), dark=look.dark)
    figure.update_yaxes(range=[-3, 103])
    figure.update_layout(uirevision="beats", showlegend=len(kinds) > 1)
    return figure, rows


def _beats_finding(rows: pd.DataFrame, front: Front) -> str:
    if rows.empty:
        return "The fronts of A and B have no range in common"
    sure = rows[rows["probability"] > SURE]["x"].to_numpy(float)
    if len(sure) == len(rows):
        return "B's front beats A's everywhere in their common range"
    if not len(sure):
        share = float(np.nanmax(rows["probability"].astype(float)))
        return f"Nowhere is it sure that B beats A: at most {number(100 * share)} %"
    reach = f"{number(sure.min())} to {number(sure.max())} {METRICS[front.x.metric].unit}"
    return f"B surely beats A at some places from {reach}"


def point_order(names: pd.Series) -> list[int]:
    """Places of the names by their words, numbers in them as numbers: `4 in flight`, `16 ...`."""
    split = [re.split(r"(\d+(?:\.\d+)?)", name) for name in names]
    keys = [[float(part) if k % 2 else part for k, part in enumerate(one)] for one in split]
    return sorted(range(len(keys)), key=keys.__getitem__)
