"""Energy and cost: what does a million tokens cost?"""

from __future__ import annotations

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, controls, fronts, markup, parts, price_editor, reading
from workbench.figures import (
    COSTS,
    ENERGY,
    Look,
    metric_rows,
    number,
    pareto,
    power_over_time,
    span_words,
    why_none,
)

MAX_ROWS = 200
ACROSS = "tok_s_user"


def main() -> None:
    """Energy by counter and by integral, power over time, cost by prices that can be changed."""
    summary = parts.opened()
    if summary is None:
        return
    reader = reading.reader(summary.run_id)
    with st.sidebar:
        trial_id = controls.trial(reader.trials(), "Power of the trial")
        kept = controls.filters(reader.points())
    parts.live(lambda: _body(summary.run_id, trial_id, kept), summary.run_id)


def _body(run_id: str, trial_id: str | None, kept: dict[str, list[str]]) -> None:
    reader = reading.reader(run_id)
    summary = reader.refresh()
    parts.heading(summary, "What does a million tokens cost?")
    prices = price_editor.prices()
    points = controls.filtered(reader.points_at(prices), kept)
    if not fronts.metrics(points):
        parts.html(markup.note(fronts.sentence(points, None, summary)))
        return
    look = Look(subtitle=fronts.subtitle(summary, points), dark=parts.is_dark(), height=330)
    left, right = st.columns(2, gap="medium")
    with left:
        _against(points, COSTS[0], look, reader)
    with right:
        _against(points, ENERGY[0], look, reader)
    price_editor.show(prices)
    if trial_id is not None:
        trial = reading.trial(run_id, trial_id)
        drawn = power_over_time(reader.run.telemetry(trial_id), trial.window_s, look=look)
        parts.figure(*drawn, "power")
    _table("Cost by point", points, COSTS, run_id)
    _table("Energy by point: the counter, the integral of power, and their ratio", points,
           ENERGY, run_id)  # fmt: skip


def _against(points: pd.DataFrame, metric: str, look: Look, reader: reading.Reader) -> None:
    """The metric against interactivity with its front; why there is none."""
    why = why_none(points, metric)
    if why is not None:
        parts.html(markup.section(wb.METRICS[metric].heading) + markup.note(f"None: {why}."))
        return
    by = fronts.default_grouping(points)
    found = fronts.front(points, ACROSS, metric, by, [reader.run])
    if found is not None:
        parts.figure(pareto(points, found, by=by, look=look), points, metric)


def _table(title: str, points: pd.DataFrame, names: tuple[str, ...], run_id: str) -> None:
    found = metric_rows(points, names)
    shown = [name for name in names if name in found]
    parts.html(markup.section(title))
    if not shown:
        parts.html(markup.note("None of these numbers is told of this run."))
        return
    reasons = [why_none(points, name) for name in shown]
    if None not in reasons:
        parts.html(markup.note(f"None: {'; '.join(dict.fromkeys(filter(None, reasons)))}."))
        return
    rows = [
        (
            markup.Cell(
                html=markup.anchor(
                    row["where"] or row["trial_id"],
                    address.link("run", run=run_id, trial=row["trial_id"]),
                ),
                kind="wide whole",
            ),
            *(_cell(row, name) for name in shown),
        )
        for _, row in found.head(MAX_ROWS).iterrows()
    ]
    parts.html(markup.table(("Point", *(wb.METRICS[n].heading for n in shown)), rows, stacked=True))
    if len(found) > MAX_ROWS:
        parts.html(markup.note(f"The first {MAX_ROWS} of {len(found):,} points."))


def _cell(row: pd.Series, name: str) -> markup.Cell:
    span = span_words(row[f"{name}.low"], row[f"{name}.high"], row["repeats"])
    reason = row[f"{name}.reason"]
    told = f"95 % interval {span}" if span else reason if isinstance(reason, str) else ""
    small = f"<small>{markup.plain(span)}</small>" if span else ""
    return markup.Cell(html=f"{number(row[name])}{small}", kind="num", title=told)


if __name__ == "__main__":
    main()
