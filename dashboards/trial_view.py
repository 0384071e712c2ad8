"""One trial: the short form beside the front, and the whole of what was measured."""

from __future__ import annotations

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, markup, parts, reading
from dashboards.markup import Cell, figure_cell, text
from workbench.figures import (
    METRICS,
    Look,
    axis_phrase,
    configuration_table,
    interval,
    metric_table,
    number,
    requests_timeline,
    value_text,
)

SHORT_METRICS = ("ttft_s_p50", "tpot_s_p50", "e2e_s_p50", "acceptance_length", "error_rate")
LOG_LINES = 40
MAX_FAILURES = 50


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
        parts.html(_cell(trial.point.axes))
        names = dict.fromkeys((*first, *SHORT_METRICS))
        parts.html(_short_metrics(trial.metrics, list(names)))
        parts.html(gates_table(trial))
        st.page_link(
            "pages/run.py",
            label="Open this trial",
            icon=":material/open_in_full:",
            query_params={"run": reader.run.run_id, "trial": trial_id},
        )


def failures(points: pd.DataFrame, summary: wb.RunSummary) -> None:
    """Each trial that is not valid, with its reason and a link."""
    bad = points[points["state"] != "ok"].head(MAX_FAILURES)
    if bad.empty:
        return
    rows = [
        (
            Cell(html=markup.pill(str(row.state))),
            Cell(
                html=markup.anchor(
                    row.trial_id, address.link("run", run=summary.run_id, trial=row.trial_id)
                )
            ),
            text(row.reason or "no reason kept", "free"),
        )
        for row in bad.itertuples()
    ]
    parts.html(markup.section("Not valid"))
    parts.html(markup.table(("State", "Trial", "Reason"), rows))


def whole(reader: reading.Reader, trial_id: str) -> None:
    """Everything that was measured in one trial."""
    trial = reader.run.trial(trial_id)
    parts.html(_heading(trial) + _reason(trial.reason))
    left, right = st.columns([1.25, 1], gap="large")
    with left:
        parts.html(markup.section("Metrics"))
        parts.html(metrics_html(trial))
    with right:
        parts.html(markup.section("Gates"))
        parts.html(gates_table(trial))
        parts.html(markup.section("Configuration"))
        parts.html(_configuration(trial))
    parts.html(markup.section("Requests"))
    _requests(reader, trial)
    _files(reader, trial)


def metrics_html(trial: object) -> str:
    """Every metric with its interval, sample size and, on the name, its definition."""
    found = metric_table(trial)
    if found.empty:
        return markup.note("Nothing was measured.")
    rows = [
        (
            text(row.metric, "name", row.definition),
            figure_cell(row.value, row.reason),
            Cell(html=interval(row.low, row.high), kind="num soft"),
            text(row.unit, "soft fixed"),
            text(f"{row.n:,}", "num soft"),
            text(row.reason if pd.isna(row.value) else "", "soft"),
        )
        for row in found.itertuples()
    ]
    heads = ("Metric", "Value", "95 % interval", "Unit", "n", "Why missing")
    return markup.table(heads, rows)


def gates_table(trial: object) -> str:
    """The conditions of a valid trial and how each went."""
    if not trial.gates:
        return markup.note("No gate was checked: nothing was measured.")
    rows = [
        (
            Cell(html=markup.pill("ok" if gate.passed else "failed")),
            Cell(
                html=f"{markup.plain(gate.name.replace('_', ' '))}"
                f"<small>{markup.plain(gate.message)}</small>",
                kind="free",
            ),
        )
        for gate in trial.gates
    ]
    return markup.table(("Passed", "Gate and finding"), rows)


def _heading(trial: object) -> str:
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


def _cell(axes: dict) -> str:
    """The trial's cell in words, as a heading."""
    words = [axis_phrase(name, value_text(value)) for name, value in sorted(axes.items())]
    return markup.section(", ".join(words))


def _short_metrics(metrics: dict, names: list[str]) -> str:
    rows = []
    for name in names:
        found = metrics.get(name)
        if found is not None:
            spec = METRICS[name]
            label = f"{spec.label} ({spec.unit})" if spec.unit else spec.label
            span = interval(found.low, found.high) or (found.reason or "")
            rows.append(
                (
                    text(label, "soft", spec.definition),
                    Cell(
                        html=f"{number(found.value)}<small>{markup.plain(span)}</small>",
                        kind="num",
                    ),
                )
            )
    if not rows:
        return markup.note("Nothing was measured.")
    return markup.table(("Metric", "Value and 95 % interval"), rows)


def _configuration(trial: object) -> str:
    table = configuration_table(trial)
    rows, marks = [], []
    for row in table.itertuples():
        changed = row.mark != ""
        marks.append("set" if changed else "")
        default = f"default {row.default}" if row.mark and row.default else ""
        rows.append(
            (
                text(f"{row.part}.{row.field}", "soft", row.sentence),
                text(row.value, "mark free", default),
                text({"axis": "varied", "set": "not the default"}.get(row.mark, ""), "soft fixed"),
            )
        )
    return markup.table(("Field", "Value", ""), rows, marks)


def _requests(reader: reading.Reader, trial: object) -> None:
    rows = reading.requests(reading.store_path(), reader.run.run_id, trial.trial_id)
    if rows.empty:
        parts.html(markup.note("No request was sent."))
        return
    look = Look(dark=parts.is_dark(), height=340 if len(rows) <= 40 else 440)
    drawn = requests_timeline(rows, trial.window_s, look=look)
    parts.figure(drawn, rows, "requests", alt="Requests over time")


def _files(reader: reading.Reader, trial: object) -> None:
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
