"""Speculation: does drafting pay, and where?"""

from __future__ import annotations

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, controls, fronts, markup, parts, reading
from workbench.figures import (
    TALLY,
    Look,
    by_position,
    by_text_kind,
    drafted,
    speed_up,
    varied,
    verified_tokens,
)

PLAN = "axes:\n  - product: {draft_length: [0, 1, 3, 5], batch_size: [1, 4, 16]}"
CONDITIONS = ("of those proposed", "given those before")


def main() -> None:
    """Acceptance by position and by text, speed-up by load, and what was wasted."""
    summary = parts.opened()
    if summary is None:
        return
    points = reading.reader(summary.run_id).points()
    with st.sidebar:
        metric = controls.metric(points, "Speed-up of", "metric", wb.DEFAULT_X.metric)
        condition = address.choose("Acceptance", CONDITIONS, "of", default=CONDITIONS[0])
        kept = controls.filters(points, ("axis.draft_length",))
    parts.live(lambda: _body(summary.run_id, metric, condition, kept), summary.run_id)


def _body(run_id: str, metric: str | None, condition: str, kept: dict[str, list[str]]) -> None:
    reader = reading.reader(run_id)
    summary = reader.refresh()
    points = controls.filtered(reader.points(), kept)
    parts.heading(summary, "Does drafting pay, and where?")
    if metric is None or drafted(points).empty:
        _why_empty(points, summary)
        return
    look = Look(subtitle=fronts.subtitle(summary, points), dark=parts.is_dark(), height=320)
    if "axis.draft_length" in varied(points):
        parts.figure(*speed_up(points, metric, look=look), "speed")
    else:
        parts.html(markup.note("The plan has one draft length, so there is no speed-up to show."))
    left, right = st.columns(2, gap="medium")
    with left:
        before = condition == CONDITIONS[1]
        parts.figure(*by_position(points, given_before=before, look=look), "position")
    with right:
        parts.figure(*by_text_kind(points, look=look), "kind")
    drawn, rows = verified_tokens(points, look=look)
    parts.figure(drawn, rows, "verified")
    parts.html(markup.section("Tokens by draft length, all points together"))
    parts.html(_tally(rows))


def _why_empty(points: pd.DataFrame, summary: wb.RunSummary) -> None:
    if fronts.metrics(points):
        parts.nothing("No valid point of this run drafted a token. A plan that does:", PLAN)
    else:
        parts.html(markup.note(fronts.sentence(points, None, summary)))


def _tally(rows: pd.DataFrame) -> str:
    heads = [name.replace("_", " ").capitalize() for name in TALLY]
    cells = [
        (markup.text(row[0]), *(markup.text(f"{count:,.0f}", "num") for count in row[1:]))
        for row in rows.itertuples(index=False)
    ]
    return markup.table(heads, cells)


if __name__ == "__main__":
    main()
