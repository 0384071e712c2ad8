"""Run and trial: what exactly was measured?"""

from __future__ import annotations

import pandas as pd
import streamlit as st
import yaml

import workbench as wb
from dashboards import address, environment_view, markup, parts, reading, trial_view
from workbench.corrections import correction_lines
from workbench.figures import by_axes, cell_words, headline, number, span_words
from workbench.search_result import search_lines, search_verdict

MAX_TRIALS = 200


def main() -> None:
    """One run: its trials, its plan and its environment, or one trial in full."""
    summary = parts.opened()
    if summary is None:
        return
    parts.live(lambda: _body(summary.run_id), summary.run_id)


def _body(run_id: str) -> None:
    reader = reading.reader(run_id)
    summary = reader.refresh()
    trial_id = address.parameter("trial")
    parts.html(_heading(summary, trial_id))
    parts.banners(summary)
    for line in correction_lines(reader.run.folder, reader.run.documents()):
        parts.html(markup.note(line))
    if trial_id is not None and reader.holds(trial_id):
        trial_view.whole(reader, trial_id)
        return
    if trial_id is not None:
        st.warning("The trial of this address is not stored in this run.")
    parts.html(markup.progress(dict(summary.counts), summary.planned))
    _search(reader.run)
    trials, plan, environment = st.tabs(["Trials", "Locked plan", "Environment"])
    with trials:
        _trials(reader.trials(), summary)
    with plan:
        st.code(yaml.safe_dump(reader.run.plan, sort_keys=False, allow_unicode=True), "yaml")
    with environment:
        environment_view.whole(reader.run.environment)


def _search(run: wb.Run) -> None:
    """What a search looked for and found; nothing where the plan has none."""
    lines = search_lines(run)
    if lines:
        with st.container(border=True, key="search"):
            parts.html(markup.section("What the search found") + "".join(map(markup.note, lines)))
            verdict = search_verdict(run)
            if verdict is not None and (found := verdict.best or verdict.nearest) is not None:
                target = address.link("run", run=run.run_id, trial=found.trial_id)
                parts.html(f'<p class="wb-note">{markup.anchor("Open its trial", target)}</p>')


def _heading(summary: wb.RunSummary, trial_id: str | None) -> str:
    name = markup.plain(summary.run_id)
    if trial_id is not None:
        name = markup.anchor(f"← {summary.run_id}", address.link("run", run=summary.run_id))
    front = markup.anchor("Pareto", address.link("pareto", run=summary.run_id, trial=trial_id))
    started = summary.started_utc[:16].replace("T", " ") + " UTC"
    pieces = [name, markup.pill(summary.state), *parts.where(summary)]
    return markup.headline(summary.question or summary.name, [*pieces, started, front])


def _trials(trials: pd.DataFrame, summary: wb.RunSummary) -> None:
    if trials.empty:
        parts.html(markup.note("No trial is stored yet."))
        return
    shown = [name for name in headline(trials).columns if name in trials]
    heads = ["State", "Trial"]
    heads += [wb.METRICS[name].heading for name in shown]
    first = by_axes(trials).head(MAX_TRIALS)
    names = _names(trials, first)
    rows = [
        _trial_row(row, name, shown, summary)
        for name, (_, row) in zip(names, first.iterrows(), strict=True)
    ]
    parts.html(markup.table(heads, rows, stacked=True))
    if len(trials) > MAX_TRIALS:
        parts.html(markup.note(f"The first {MAX_TRIALS} of {len(trials):,} trials."))


def _names(trials: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    """What each trial of `rows` is called: its cell, and its repeat where there are several."""
    names = [
        words or trial
        for words, trial in zip(cell_words(trials, rows), rows["trial_id"], strict=True)
    ]
    if trials["repeat"].nunique() < 2:
        return names
    return [f"{name}, repeat {repeat}" for name, repeat in zip(names, rows["repeat"], strict=True)]


def _trial_row(
    row: pd.Series, name: str, shown: list[str], summary: wb.RunSummary
) -> tuple[markup.Cell, ...]:
    target = address.link("run", run=summary.run_id, trial=row["trial_id"])
    numbers = [_number_cell(row, metric) for metric in shown]
    reason = row["reason"] if isinstance(row["reason"], str) else ""
    told = f"<small>{markup.plain(reason)}</small>" if reason else ""
    link = markup.anchor(name, target)
    return (
        markup.Cell(html=markup.pill(str(row["state"]))),
        markup.Cell(html=link + told, kind="wide whole", title=row["trial_id"]),
        *numbers,
    )


def _number_cell(row: pd.Series, name: str) -> markup.Cell:
    span = span_words(row[f"{name}.low"], row[f"{name}.high"], 1, name)
    told = row[f"{name}.reason"] if isinstance(row[f"{name}.reason"], str) else "not measured"
    title = f"95 % interval {span}" if span else told
    return markup.Cell(html=number(row[name]), kind="num", title=title)


if __name__ == "__main__":
    main()
