"""Fronts as pages ask for them: the usual axes, what there is to choose, a sentence for none."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import parts
from workbench.columns import words_of
from workbench.figures import (
    CROWDED_FROM,
    SURE_UP_TO,
    Look,
    axis_words,
    basis_phrase,
    finding,
    in_order,
    interval,
    kind_words,
    number,
    pareto,
    percent,
    plural,
    samples_words,
    span_words,
)

MAX_SENTENCES = 4
GROUPED_PREFIXES = ("axis.", "workload.", "engine.")


def axis(metric: str) -> wb.Axis:
    """`metric` with the direction of its definition."""
    return wb.Axis(metric=metric, direction=str(wb.METRICS[metric].direction))


def front(
    points: pd.DataFrame, x: str, y: str, by: str | None, runs: Sequence[wb.Run] = ()
) -> wb.Front | None:
    """The front of two metrics; None where no trial has both columns.

    `runs` hold what is behind the points, so that bands keep what x and y have in common; of very
    many points it would take too long to read.
    """
    if x not in points or y not in points:
        return None
    behind = () if len(points) > CROWDED_FROM else runs
    return wb.pareto(points, axis(x), axis(y), by=by, runs=behind)


def metrics(points: pd.DataFrame) -> list[str]:
    """Metrics with a good direction of which at least one trial has a value."""
    return [
        name
        for name, spec in wb.METRICS.items()
        if spec.direction != "none" and name in points and points[name].notna().any()
    ]


def groupings(points: pd.DataFrame) -> list[str]:
    """Columns that can give the colour: those that vary, axes first, none said twice."""
    found: dict[str, str] = {}
    for prefix in GROUPED_PREFIXES:
        for name in points:
            bare = name.removeprefix(prefix)
            if name.startswith(prefix) and bare not in found and len(values(points, name)) > 1:
                found[bare] = name
    return list(found.values())


def varying_axes(points: pd.DataFrame) -> list[str]:
    """The axis columns that vary."""
    return [name for name in groupings(points) if name.startswith("axis.")]


def default_grouping(points: pd.DataFrame) -> str | None:
    """Unlike workloads are told apart first, then draft lengths; None where nothing varies."""
    options = groupings(points)
    workloads = [name for name in options if name.split(".")[-1] in ("name", "kind", "trace")]
    wanted = [*workloads, "axis.draft_length", *options]
    return next((name for name in wanted if name in options), None)


def values(points: pd.DataFrame, column: str) -> list[str]:
    """The different values of a column in words, numbers in their order."""
    return in_order(words_of(points[column]).unique())


def in_words(points: pd.DataFrame, column: str) -> pd.Series:
    """The cells of a column in the words of `values`."""
    return words_of(points[column])


def ranked(points: pd.DataFrame, found: wb.Front, target: float | None) -> pd.DataFrame:
    """Valid rows that reach `target` on x (None: all), best y first, with `on_front` and `kind`.

    Rows of unlike models or workloads are ranked apart. `chance` is that of being on the front;
    with a target, that of being the best of the group that reaches it. NaN without an interval.
    """
    usable = points["valid"] & points[[found.x.metric, found.y.metric]].notna().all(axis=1)
    rows = points[usable].copy()
    rows["on_front"] = found.on_front[usable.to_numpy(bool)]
    rows["kind"] = [kind_words(name) for name in wb.comparison_groups(rows)]
    sure = len(points) <= SURE_UP_TO
    rows["chance"] = found.probability[usable.to_numpy(bool)] if sure else float("nan")
    if target is not None:
        if sure:
            best = rows["trial_id"].map(_best_chances(found, target)).fillna(0.0)
            rows["chance"] = best.where(rows["chance"].notna())
        reach = rows[found.x.metric]
        rows = rows[reach >= target if found.x.direction == "max" else reach <= target]
    upwards = [True, found.y.direction == "min"]
    return rows.sort_values(["kind", found.y.metric], ascending=upwards, kind="stable")


def _best_chances(found: wb.Front, target: float) -> dict[str, float]:
    """Trial -> the chance that it gives the best y of its group's points that reach the target."""
    tables = [found.ranked_at(target, group) for group in found.groups]
    return {
        trial: chance
        for table in tables
        for trial, chance in zip(table["trial_id"], table["best"], strict=True)
    }


def attained(found: wb.Front, target: float) -> list[str]:
    """What each group gives at the target, in a sentence with its interval."""
    spec, at = wb.METRICS[found.y.metric], wb.METRICS[found.x.metric]
    told = []
    for group in list(found.groups)[:MAX_SENTENCES]:
        gives = found.at(target, group)
        span = interval(gives.low, gives.high)
        amount = f"{number(gives.value)} {spec.unit}" + (f" ({span})" if span else "")
        named = "" if len(found.groups) == 1 else f"{kind_words(group)}: "
        told.append(f"{named}{amount if gives.value is not None else gives.reason}")
    return [f"At {number(target)} {at.unit}: {'; '.join(told)}."] if told else []


def ranking_table(
    rows: pd.DataFrame, points: pd.DataFrame, shown: tuple[str, ...], chance: str
) -> pd.DataFrame:
    """The cells of `rows` in words, their numbers with intervals, and the `chance` by its name."""
    axes = varying_axes(points)
    columns = {axis_words(name).capitalize(): _cells(rows, name) for name in axes}
    if rows["kind"].nunique() > 1:
        columns = {"Kind": rows["kind"].tolist()} | columns
    columns["Front"] = ["●" if member else "" for member in rows["on_front"]]
    columns[chance] = [percent(value) for value in rows["chance"]]
    common = bases(rows, shown)
    for name in dict.fromkeys(shown):
        parts_ = (rows[f"{name}.{part}"] for part in ("low", "high", "n"))
        cells = zip(*parts_, rows["repeats"], strict=True)
        columns[head(name, shown)] = rows[name].tolist()
        columns["95 % interval" + " " * len(columns)] = [
            (interval(low, high) if len(common) < 2 else span_words(low, high, int(count), name))
            or f"none, {samples_words(n)}"
            for low, high, n, count in cells
        ]
    return pd.DataFrame(columns)


def bases(rows: pd.DataFrame, shown: tuple[str, ...]) -> list[str]:
    """What the intervals of a ranking cover; a single thing is told once, above it."""
    counts = {name: rows.loc[rows[f"{name}.low"].notna(), "repeats"].unique() for name in shown}
    return list(dict.fromkeys(basis_phrase(int(n), name) for name in shown for n in counts[name]))


def head(metric: str, shown: tuple[str, ...]) -> str:
    """The unit where it says of what it is, as tok/s/device does; else the label with it."""
    spec = wb.METRICS[metric]
    return spec.unit if spec.unit.count("/") > 1 and len(set(shown)) > 1 else spec.heading


def _cells(rows: pd.DataFrame, column: str) -> list:
    """The cells of an axis: numbers where all are, so that they sort as numbers."""
    cells = rows[column].tolist()
    whole = all(isinstance(cell, int) and not isinstance(cell, bool) for cell in cells)
    return cells if whole else in_words(rows, column).tolist()


def sentence(points: pd.DataFrame, found: wb.Front | None, summary: wb.RunSummary) -> str:
    """The finding, or why there is none."""
    if found is not None and found.members:
        return finding(points, found)
    stored = sum(summary.counts.values())
    if not stored:
        return "No trial is stored yet"
    if len(points) and points["valid"].any():
        return f"{plural(int(points['valid'].sum()), 'valid point')}, none with both numbers"
    return f"No valid trial in {plural(stored, 'trial')}: {wb.counts_words(summary.counts)}"


def subtitle(summary: wb.RunSummary, points: pd.DataFrame) -> str:
    """Workload, model, accelerator and repeats of what is drawn."""
    named = [name for name in ("workload.name", "workload.kind") if name in points][:1]
    workloads = [value for name in named for value in values(points, name)]
    repeats = int(points["repeats"].max())
    told = "within-run only (one repeat)" if repeats == 1 else f"means of {repeats} repeats"
    parts_ = [", ".join(workloads[:3]), summary.model, summary.accelerator, told]
    return ", ".join(part for part in parts_ if part)


def show_small(points: pd.DataFrame, found: wb.Front, summary: wb.RunSummary) -> None:
    """The front of the overview; a click on a point opens its trial."""
    look = Look(
        title=summary.question or "Which configurations does nothing else beat?",
        subtitle=subtitle(summary, points),
        dark=parts.is_dark(),
        height=340,
    )
    drawn = pareto(points, found, look=look)
    parts.figure(drawn, points, "front", on_click=lambda: None, alt=finding(points, found))
    trial = parts.clicked("front")
    if trial is not None:
        st.switch_page("views/run.py", query_params={"run": summary.run_id, "trial": trial})


def group_words(name: str) -> str:
    """A grouping column in words; the empty text is what an address says for no grouping."""
    return axis_words(name) if name else "nothing"
