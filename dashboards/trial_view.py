"""One trial: the short form beside the front, and the whole of what was measured."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, markup, metric_view, parts, reading
from dashboards.markup import Cell, text
from workbench.figures import (
    MISSING,
    Look,
    axis_phrase,
    cell_words,
    conduct_table,
    configuration_table,
    neighbour,
    number,
    plural,
    point_plan,
    repeats_words,
    requests_timeline,
    span_words,
    value_text,
)

SHORT_METRICS = ("ttft_s_p50", "tpot_s_p50", "e2e_s_p50", "acceptance_length", "error_rate")
LOG_LINES = 40
MARKS = {
    "axis": "varied by the plan",
    "set": "set by the plan",
    "resolved": "chosen by the engine for this host",
}
MAX_FAILURES = 50
GATES = {"littles_law": "Little's law"}  # names that are no words


def drawer(reader: reading.Reader, trial_id: str | None, first: tuple[str, str]) -> None:
    """The chosen trial beside a figure; how to choose one where none is."""
    with st.container(border=True, key="drawer"):
        if trial_id is None or trial_id not in reader.run.trial_ids():
            parts.html(
                markup.section("Choose a trial")
                + markup.note("Click a point, or select a row below, to see what was measured.")
            )
            return
        trial = reader.run.trial(trial_id)
        parts.html(
            f'<div class="wb-eyebrow"><span>Trial</span><span>{markup.plain(trial_id)}</span>'
            f"<span>{markup.pill(str(trial.state))}</span></div>" + _reason(trial.reason)
        )
        parts.html(markup.section(_cell_words(trial.point.axes) or "The only configuration"))
        parts.html(_repeats_note(reader.points(), trial_id))
        names = dict.fromkeys((*first, *SHORT_METRICS))
        parts.html(_short_metrics(trial.metrics, list(names)))
        parts.html(_gates_short(trial))
        st.page_link(
            "views/run.py",
            label="Open this trial",
            icon=":material/open_in_full:",
            query_params={"run": reader.run.run_id, "trial": trial_id},
        )
        st.page_link(
            "views/compare.py",
            label="Compare with…",
            icon=":material/compare_arrows:",
            query_params=_compare_query(reader, trial),
        )
        with st.popover("Reproduce", type="tertiary", icon=":material/replay:"):
            st.caption("Save as plan.yaml, then `workbench run plan.yaml`.")
            st.code(point_plan(reader.run.plan, trial), "yaml")


def _compare_query(reader: reading.Reader, trial: wb.TrialRecord) -> dict[str, str]:
    """The trial's point as side A, and one that differs in a single axis as side B."""
    run_id, points = reader.run.run_id, reader.points()
    other = neighbour(points, trial.trial_id)
    query = {"a": run_id, "a_where": _where(trial.point.axes), "b": run_id}
    if other is None:
        return query
    return query | {"b_where": _where({name: other[f"axis.{name}"] for name in trial.point.axes})}


def _where(axes: Mapping[str, object]) -> str:
    texts = [f"{name}={value_text(value)}" for name, value in axes.items()]
    return ",".join(text for text in texts if "," not in text)


def _repeats_note(points: pd.DataFrame, trial_id: str) -> str:
    """That the point beside is a mean, where it is one."""
    found = points.loc[points["trial_id"] == trial_id, "repeats"]
    if found.empty or found.iloc[0] == 1:
        return ""
    return markup.note(
        f"The point is the {repeats_words(int(found.iloc[0]))}; below are the numbers of the first."
    )


def failures(trials: pd.DataFrame, summary: wb.RunSummary) -> None:
    """Each trial that is not valid, with its reason and a link."""
    bad = trials[trials["state"] != "ok"].head(MAX_FAILURES)
    if bad.empty:
        return
    rows = [
        (
            Cell(html=markup.pill(str(row.state))),
            Cell(
                html=markup.anchor(
                    words or row.trial_id,
                    address.link("run", run=summary.run_id, trial=row.trial_id),
                ),
                title=row.trial_id,
            ),
            text(row.reason or "no reason kept", "free"),
        )
        for words, row in zip(cell_words(trials, bad), bad.itertuples(), strict=True)
    ]
    parts.html(markup.section("Not valid"))
    parts.html(markup.table(("State", "Trial", "Reason"), rows))


def whole(reader: reading.Reader, trial_id: str) -> None:
    """Everything that was measured in one trial."""
    trial = reader.run.trial(trial_id)
    told = _cell_words(trial.point.axes) or "The only configuration"
    parts.html(_heading(trial) + _reason(trial.reason) + markup.section(told))
    requests(reader, trial)
    left, right = st.columns([1.25, 1], gap="large")
    with left:
        parts.html(markup.section("Metrics"))
        metric_view.show(trial)
    with right:
        parts.html(markup.section("Gates"))
        parts.html(gates_table(trial))
        parts.html(markup.section("Configuration"))
        _configuration(trial, reader.run.plan)
        parts.html(markup.section("How it was measured"))
        parts.html(_conduct(trial))
    _files(reader, trial)


def _gates_short(trial: wb.TrialRecord) -> str:
    """How many gates passed, and the findings of those that did not; what was not judged."""
    if not trial.gates:
        return markup.note("No gate was checked.")
    judged = [gate for gate in trial.gates if gate.judged]
    passed = sum(gate.passed for gate in judged)
    told = [f"{passed} of {plural(len(judged), 'judged gate')} passed"]
    if len(judged) < len(trial.gates):
        told.append(f"{len(trial.gates) - len(judged)} not judged")
    return markup.note("; ".join([*told, *(g.message for g in judged if not g.passed)]))


def _verdict(*, passed: bool, judged: bool) -> str:
    if not judged:
        return "not judged"
    return "passed" if passed else "failed"


def gates_table(trial: wb.TrialRecord) -> str:
    """The conditions of a valid trial and how each went."""
    if not trial.gates:
        return markup.note("No gate was checked: nothing was measured.")
    rows = [
        (
            Cell(html=markup.pill(_verdict(passed=gate.passed, judged=gate.judged))),
            Cell(
                html=f"{markup.plain(GATES.get(gate.name, gate.name.replace('_', ' ')))}"
                f"<small>{markup.plain(gate.message.removeprefix('not judged: '))}</small>",
                kind="free",
            ),
        )
        for gate in trial.gates
    ]
    return markup.table(("Verdict", "Gate and finding"), rows)


def _heading(trial: wb.TrialRecord) -> str:
    pieces = (
        "Trial",
        markup.plain(trial.trial_id),
        markup.pill(str(trial.state)),
        f"repeat {trial.repeat}",
        markup.plain(trial.started_utc[:19].replace("T", " ") + " UTC"),
        f"{number(trial.duration_s)} s",
    )
    return f'<div class="wb-eyebrow">{"".join(f"<span>{piece}</span>" for piece in pieces)}</div>'


def _reason(reason: str | None) -> str:
    return f'<p class="wb-banner" role="note">{markup.plain(reason)}</p>' if reason else ""


def _cell_words(axes: dict) -> str:
    """The trial's cell in words; empty where the plan varies nothing."""
    return ", ".join(axis_phrase(name, value_text(value)) for name, value in sorted(axes.items()))


def _short_metrics(metrics: dict, names: list[str]) -> str:
    rows = []
    for name in names:
        found = metrics.get(name)
        if found is not None:
            spec = wb.METRICS[name]
            told = span_words(found.low, found.high, 1, name) or found.reason or ""
            rows.append(
                (
                    text(spec.heading, "soft", spec.definition),
                    Cell(
                        html=f"{number(found.value)}<small>{markup.plain(told)}</small>",
                        kind="num",
                    ),
                )
            )
    if not rows:
        return markup.note("Nothing was measured.")
    return markup.table(("Metric", "Value and 95 % interval"), rows)


def _conduct(trial: wb.TrialRecord) -> str:
    """Attempts, warm-up, idle power and what the load generator does by itself."""
    rows = [
        (text(row.fact, "soft"), text(row.value, "free", row.told))
        for row in conduct_table(trial).itertuples()
    ]
    return markup.table(("Fact", "Value"), rows)


def _configuration(trial: wb.TrialRecord, plan: dict) -> None:
    """What was varied, set or chosen; what is as always folded. A field's sentence is on its name.

    The workload has no defaults: all of it is in sight, apart from fields that it leaves out.
    """
    chosen = plan.get("engine")
    table = configuration_table(trial, chosen if isinstance(chosen, dict) else ())
    ranks = table["mark"].map({"axis": 0, "set": 1, "resolved": 2}).fillna(3)
    table = table.loc[ranks.sort_values(kind="stable").index]
    usual = (table["mark"] == "") & ((table["part"] == "engine") | (table["value"] == MISSING))
    parts.html(_fields(table[~usual]))
    if usual.any():
        with st.expander(f"{plural(int(usual.sum()), 'field')} as by default"):
            parts.html(_fields(table[usual]))


def _fields(table: pd.DataFrame) -> str:
    rows = []
    for row in table.itertuples():
        note = MARKS.get(row.mark, "")
        if note and row.default not in ("", MISSING):
            note += f"; default {row.default}"
        small = f"<small>{markup.plain(note)}</small>" if note else ""
        value = Cell(html=f"{markup.plain(row.value)}{small}", kind="mark free")
        rows.append((text(f"{row.part}.{row.field}", "soft", row.sentence), value))
    marks = ["set" if mark in ("axis", "set") else "" for mark in table["mark"]]
    return markup.table(("Field", "Value"), rows, marks)


def requests(reader: reading.Reader, trial: wb.TrialRecord) -> None:
    """The requests of a trial as a timeline."""
    rows = reading.requests(reading.store_path(), reader.run.run_id, trial.trial_id)
    if rows.empty:
        parts.html(markup.note("No request was sent."))
        return
    look = Look(
        subtitle=", ".join(filter(None, [*trial.labels, _cell_words(trial.point.axes)])),
        dark=parts.is_dark(),
        height=260 if len(rows) <= 40 else 360,
    )
    drawn = requests_timeline(rows, trial.window_s, look=look)
    parts.figure(drawn, rows, "requests", alt="Requests over time")


def _files(reader: reading.Reader, trial: wb.TrialRecord) -> None:
    parts.html(markup.section("Files"))
    found = reader.run.files(trial.trial_id)
    rows = [
        (text(name), text(f"{path.stat().st_size:,}", "num soft"), text(path, "soft"))
        for name, path in found.items()
    ]
    parts.html(markup.table(("File", "Bytes", "Path"), rows))
    lines = trial.engine_log.splitlines()
    parts.html(markup.section("Engine log, last lines"))
    if lines:
        st.code("\n".join(lines[-LOG_LINES:]), language=None)
    else:
        parts.html(markup.note("The engine logged nothing."))
