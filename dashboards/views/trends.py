"""Trends: did a commit make it slower?"""

from __future__ import annotations

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, controls, markup, parts, reading
from workbench.figures import (
    Look,
    Told,
    cells_of,
    commit_of,
    headline,
    number,
    plural,
    span_words,
    trend,
    trend_figure,
)

HEADS = ("Started (UTC)", "Commit", "Run", "Value", "95 % interval", "Change", "")
CHANGES = {"better": "passed", "worse": "failed", "changed": "running"}
MAX_RUNS = 60
MAX_CELLS = 500


def main() -> None:
    """One point of one plan over the runs of the store."""
    runs = [*parts.stored_runs().values()]
    if not runs:
        return
    with st.sidebar:
        names = list(dict.fromkeys(run.name for run in runs))
        name = address.choose("Plan", names, "plan", default=names[0])
        found = _told([run for run in runs if run.name == name][:MAX_RUNS])
        cells = cells_of(found)
        metric = _metric(found)
        cell = _cell(cells) if cells else None
    told = _told_runs(name, found)
    parts.html(markup.headline("Did a commit make it slower?", [markup.plain(told)]))
    labels = dict.fromkeys(label for run in runs if run.name == name for label in run.labels)
    parts.banner(labels)
    if metric is None or cell is None:
        parts.html(markup.note("No run of this plan has measured anything yet."))
        return
    rows = trend(found, cell, metric)
    look = Look(subtitle=", ".join([*labels, name, cell]), dark=parts.is_dark(), height=340)
    parts.figure(trend_figure(rows, metric, look=look), rows, "trend")
    parts.html(_table(rows))


def _told_runs(name: str, found: list[Told]) -> str:
    return f"{plural(len(found), 'run')} of the plan {name}"


def _told(runs: list[wb.RunSummary]) -> list[Told]:
    """What each run has to tell."""
    readers = [(run, reading.reader(run.run_id)) for run in runs]
    return [
        Told(
            run_id=run.run_id,
            started_utc=run.started_utc,
            commit=commit_of(reader.run.environment, reader.run.code_version),
            points=reader.points(),
        )
        for run, reader in readers
    ]


def _metric(found: list[Told]) -> str | None:
    some = next((run.points for run in found if not run.points.empty), None)
    if some is None:
        return None
    return controls.metric(some, "Metric", "metric", headline(some).y)


def _cell(cells: dict[str, int]) -> str:
    options = list(cells)[:MAX_CELLS]
    return address.choose(
        "Point", options, "point", default=options[0],
        words=lambda name: f"{name} ({plural(cells[name], 'run')})",
    )  # fmt: skip


def _table(rows: pd.DataFrame) -> str:
    return markup.table(HEADS, [_row(row) for _, row in rows.iloc[::-1].iterrows()])


def _span(row: pd.Series) -> str:
    span = span_words(row["low"], row["high"], row["repeats"])
    return span or ("" if pd.isna(row["value"]) else f"none, n={row['n']:,}")


def _row(row: pd.Series) -> tuple[markup.Cell, ...]:
    target = address.link("run", run=row["run_id"], trial=row["trial_id"])
    before = row["before"]
    link = address.link("compare", a=before, b=row["run_id"], a_where="", b_where="")
    change = row["change"]
    return (
        markup.text(row["started_utc"][:16].replace("T", " "), "soft fixed"),
        markup.text(row["commit"], "fixed"),
        markup.Cell(html=markup.anchor(row["run_id"], target), kind="free"),
        markup.Cell(html=number(row["value"]), kind="num", title=row["reason"]),
        markup.text(_span(row), "num soft"),
        markup.Cell(html=markup.pill_of(change, CHANGES[change]) if change else ""),
        markup.Cell(html=markup.anchor("compare", link) if isinstance(before, str) else ""),
    )


if __name__ == "__main__":
    main()
