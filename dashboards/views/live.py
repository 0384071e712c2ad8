"""Live: is it going well?"""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

import workbench as wb
from dashboards import address, controls, markup, parts, reading, trial_view
from workbench.figures import (
    Look,
    axis_phrase,
    device_rows,
    duration_words,
    seconds_figure,
    seconds_table,
    value_text,
)
from workbench.progress import Progress, order_skip, order_stop

MAX_EVENTS = 12
NO_TRIAL = "No trial is in flight now."
STOPPED = {
    "finished": "Nothing is left to measure.",
    "budget": "It stopped at the end of its budget.",
    "request": "It was asked to stop.",
    "interrupt": "It was interrupted.",
    "error": "The process that measured it failed.",
}

KILLED = "Its process ended without a word."  # of a run that is over


def main() -> None:
    """The run that is being measured, or the newest: how far it is and what it does now."""
    _prefer_running()
    summary = parts.opened()
    if summary is None:
        return
    parts.live(lambda: _body(summary.run_id), summary.run_id)


def _prefer_running() -> None:
    """An address that names no run means the one that is being measured."""
    if address.parameter("run") is None:
        running = [run.run_id for run in reading.summaries() if run.state == "running"]
        address.remember("run", running[0] if running else None)


def _body(run_id: str) -> None:
    reader = reading.reader(run_id)
    summary = reader.refresh()
    progress = reader.run.progress()
    parts.heading(summary, _sentence(summary, progress))
    parts.html(markup.progress(dict(summary.counts), summary.planned))
    if summary.state == "running":
        _buttons(reader.run, progress)
        left, right = st.columns([1.7, 1], gap="medium")
        with left:
            _current(progress)
            _devices(progress)
        with right:
            _events(progress, reader)
    else:
        if summary.state != "complete":
            st.code(f"workbench resume {run_id} --store {reading.store_path()}", language="bash")
        _events(progress, reader)
    trial_view.failures(reader.trials(), summary)


def _sentence(summary: wb.RunSummary, progress: Progress | None) -> str:
    if summary.state == "running":
        left = progress.sweep.time_left_s if progress else None
        told = "" if left is None else f", about {duration_words(left)} left"
        return f"Measuring {summary.name}{told}"
    why = STOPPED.get(str(progress.sweep.stopped), KILLED) if progress else ""
    words = {"complete": "complete", "partial": "over, with trials that failed"}
    told = words.get(summary.state, "not complete, and nobody measures it now")
    return f"{summary.name} is {told}. {why}".strip()


def _buttons(run: wb.Run, progress: Progress | None) -> None:
    """Orders to whoever measures; what came of an order is said by the events."""
    current = progress.sweep.current if progress else None
    with st.container(horizontal=True):
        if st.button("Stop after this trial", icon=":material/stop_circle:", key="live.stop"):
            order_stop(run.folder)
            st.toast("Asked to stop; `workbench resume` goes on later.")
        skipped = st.button(
            "Skip this trial",
            icon=":material/skip_next:",
            key="live.skip",
            disabled=current is None,
            help="Gives the trial in flight up; it is stored as skipped.",
        )
        if skipped and current is not None:
            order_skip(run.folder, current.trial_id)
            st.toast("Asked to skip the trial in flight.")


def _current(progress: Progress | None) -> None:
    parts.html(markup.section("Trial in flight"))
    current = progress.sweep.current if progress else None
    if progress is None or current is None:
        parts.html(markup.note(NO_TRIAL))
        return
    cell = ", ".join(axis_phrase(name, value_text(v)) for name, v in sorted(current.axes.items()))
    told = [
        cell or "the only configuration",
        f"repeat {current.repeat}",
        f"attempt {current.attempt}" if current.attempt > 1 else "",
        str(current.activity),
        f"expected to take {duration_words(current.forecast_s)}",
        f"as of {progress.written_utc[11:19]} UTC",
    ]
    parts.html(markup.note("; ".join(filter(None, told))))
    if not current.seconds:
        parts.html(markup.note("Nothing has come from it yet."))
        return
    drawn = seconds_figure(current.seconds, look=Look(dark=parts.is_dark(), height=330))
    parts.figure(drawn, seconds_table(current.seconds), "live")


def _devices(progress: Progress | None) -> None:
    current = progress.sweep.current if progress else None
    parts.html(markup.section("Devices now"))
    rows = device_rows(current.devices) if current else []
    if not rows:
        parts.html(markup.note("No reading: none was taken yet, or no trial is in flight."))
        return
    heads = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    cells = [[_reading(row[name]) for name in heads] for row in rows]
    parts.html(markup.table(["" if name == "device" else name for name in heads], cells))


def _reading(value: float | str | None) -> markup.Cell:
    if isinstance(value, str):
        return markup.text(value)
    return markup.figure_cell(value, "this device does not tell")


def _events(progress: Progress | None, reader: reading.Reader) -> None:
    parts.html(markup.section("Last events"))
    events = progress.sweep.events[-MAX_EVENTS:] if progress else ()
    if not events:
        parts.html(markup.note("None was recorded."))
        return
    names = _names(reader, {event.trial_id for event in events})
    rows = [
        (
            markup.text(event.time_utc[11:19], "soft fixed"),
            markup.Cell(
                html=_event(event.words, event.trial_id, names, reader.run.run_id), kind="free"
            ),
        )
        for event in reversed(events)
    ]
    parts.html(markup.table(("UTC", "What"), rows))


def _names(reader: reading.Reader, wanted: set[str | None]) -> dict[str, str]:
    """The stored ones of the trials, each by its cell."""
    trials = reader.trials()
    return controls.trial_names(trials, trials[trials["trial_id"].isin(wanted)])


def _event(words: str, trial_id: str | None, names: Mapping[str, str], run_id: str) -> str:
    """What happened, and to which trial; a stored one is linked."""
    if trial_id is None or trial_id not in names:
        return markup.plain(words)
    link = address.link("run", run=run_id, trial=trial_id)
    return f"{markup.plain(words)}: {markup.anchor(names[trial_id], link)}"


if __name__ == "__main__":
    main()
