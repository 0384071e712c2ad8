"""Replay and cache: what does the replay cost and save?"""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dashboards import controls, fronts, markup, parts, reading
from workbench.figures import (
    Look,
    costs_and_savings,
    interval,
    number,
    prefill_figure,
    replay_summary,
    waits,
)

HEADS = (
    "Replay",
    "Points",
    "Decoder rows run",
    "Rows spared",
    "Tokens flipped (%)",
    "Prefix cache hits (%)",
)
UNCOUNTED = "this engine does not count decoder rows"


def main() -> None:
    """Waits by prompt length, rows spared beside tokens flipped, cache hits."""
    summary = parts.opened()
    if summary is None:
        return
    points = reading.reader(summary.run_id).points()
    with st.sidebar:
        kept = controls.filters(points)
    parts.live(lambda: _body(summary.run_id, kept), summary.run_id)


def _body(run_id: str, kept: dict[str, list[str]]) -> None:
    reader = reading.reader(run_id)
    summary = reader.refresh()
    points = controls.filtered(reader.points(), kept)
    parts.heading(summary, "What does the replay cost and save?")
    if not fronts.metrics(points):
        parts.html(markup.note(fronts.sentence(points, None, summary)))
        return
    look = Look(subtitle=fronts.subtitle(summary, points), dark=parts.is_dark(), height=340)
    found = waits(points, lambda name: reading.requests(reading.store_path(), run_id, name))
    table = replay_summary(points)
    left, right = st.columns([1.25, 1], gap="medium")
    with left:
        parts.figure(*prefill_figure(points, found, look=look), "prefill")
    with right:
        parts.figure(*costs_and_savings(points, table, look=look), "savings")
    parts.html(markup.section("By replay setting, all valid points together"))
    parts.html(_table(table))
    _hits(table)


def _table(found: pd.DataFrame) -> str:
    return markup.table(HEADS, [_row(row) for _, row in found.iterrows()])


def _row(row: pd.Series) -> tuple[markup.Cell, ...]:
    return (
        markup.text(row["setting"], "fixed"),
        markup.text(f"{row['points']:,}", "num soft"),
        _count(row["rows_run"]),
        _count(row["rows_skipped"]),
        _share(row["flips"], row["flips_low"], row["flips_high"], row["flips_reason"]),
        _share(row["hit_rate"], None, None, "no request succeeded"),
    )


def _count(value: float | None) -> markup.Cell:
    if value is None or pd.isna(value):
        return markup.figure_cell(None, UNCOUNTED)
    return markup.text(f"{value:,.0f}", "num")


def _share(value: float | None, low: float | None, high: float | None, reason: str) -> markup.Cell:
    if value is None or pd.isna(value):
        return markup.figure_cell(None, reason)
    span = interval(low, high)
    small = f"<small>{markup.plain(span)}</small>" if span else ""
    return markup.Cell(html=f"{number(value)}{small}", kind="num")


def _hits(found: pd.DataFrame) -> None:
    if not (found["hit_rate"].fillna(0).astype(float) > 0).any():
        parts.html(markup.note("No valid point found a prompt token in the prefix cache."))


if __name__ == "__main__":
    main()
