"""Sweep explorer: what does each knob do?"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, controls, fronts, markup, parts, reading
from workbench.figures import (
    Look,
    apart,
    best_by_load,
    cells,
    headline,
    heat_map,
    interaction_lines,
    main_effects,
    number,
    parallel_coordinates,
    samples_words,
    span_words,
)

FIRST_AXES = ("axis.draft_length", "axis.replay_keep_tokens", "axis.batch_size")
ALSO = ("tok_s_user", "ttft_s_p50")
HEADS = ("Load", "Best configuration", "Value", "95 % interval", "Next best", "Value", "Apart?")
NO_AXES = "axes:\n  - product: {draft_length: [0, 1, 3, 5], batch_size: [1, 4, 16]}"


@dataclass(frozen=True, kw_only=True)
class View:
    """What the sidebar asks for."""

    metric: str
    across: str
    up: str | None
    kept: dict[str, list[str]]


def main() -> None:
    """The cells of two axes, the effect of every axis, and the best of every load."""
    summary = parts.opened()
    if summary is None:
        return
    points = reading.reader(summary.run_id).points()
    with st.sidebar:
        view = _controls(points)
    parts.live(lambda: _body(summary.run_id, view), summary.run_id)


def _controls(points: pd.DataFrame) -> View | None:
    metric = controls.metric(points, "Metric", "metric", headline(points).y)
    axes = controls.axes(points, FIRST_AXES)
    if metric is None or axes is None:
        return None
    across, up = axes
    kept = controls.filters(points, (across, up))
    return View(metric=metric, across=across, up=up, kept=kept)


def _body(run_id: str, view: View | None) -> None:
    reader = reading.reader(run_id)
    summary = reader.refresh()
    every = reader.points()
    parts.heading(summary, "What does each knob do?")
    if view is None:
        _why_empty(every, summary)
        return
    points = controls.filtered(every, view.kept)
    look = Look(subtitle=fronts.subtitle(summary, points), dark=parts.is_dark(), height=330)
    found = cells(points, view.across, view.up, view.metric)
    left, right = st.columns(2, gap="medium")
    with left:
        parts.figure(heat_map(points, found, look=look), found.rows, "heat")
    with right:
        parts.figure(interaction_lines(points, found, look=look), found.rows, "lines")
    parts.figure(main_effects(points, view.metric, look=look), points, "effects")
    _loads(points, view.metric, run_id)
    parts.figure(parallel_coordinates(points, view.metric, ALSO, look=look), points, "parallel")


def _why_empty(points: pd.DataFrame, summary: wb.RunSummary) -> None:
    if fronts.metrics(points):
        parts.nothing("This plan varies nothing, so there is no knob to look at.", NO_AXES)
    else:
        parts.html(markup.note(fronts.sentence(points, None, summary)))


def _loads(points: pd.DataFrame, metric: str, run_id: str) -> None:
    found = best_by_load(points, metric)
    if found.empty:
        return
    spec = wb.METRICS[metric]
    rows = [_load_row(row, run_id) for _, row in found.iterrows()]
    parts.html(markup.section(f"Best configuration at every load, by {spec.heading}"))
    parts.html(markup.table(HEADS, rows))


def _load_row(row: pd.Series, run_id: str) -> tuple[markup.Cell, ...]:
    target = address.link("run", run=run_id, trial=row["trial_id"])
    span = span_words(row["low"], row["high"], row["repeats"])
    return (
        markup.text(row["load"], "fixed"),
        markup.Cell(html=markup.anchor(row["best"], target), kind="free"),
        markup.Cell(html=number(row["value"]), kind="num"),
        markup.Cell(html=span or f"none, {samples_words(row['n'])}", kind="num soft"),
        markup.text(row["next"] if isinstance(row["next"], str) else "none", "free soft"),
        markup.figure_cell(row["next_value"], "only one configuration was measured here"),
        markup.text(apart(row), "soft"),
    )


if __name__ == "__main__":
    main()
