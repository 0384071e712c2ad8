"""Imports: what do others report?"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pandas as pd
import streamlit as st
from pandas.api.types import is_bool_dtype, is_numeric_dtype

import workbench as wb
from dashboards import address, controls, markup, parts, reading
from workbench.columns import by_axes
from workbench.figures import MISSING, number, plural, value_text, varied
from workbench.files import explained

MAX_METRICS = 12
MAX_NUMBERS = 400  # of one result's file
MOST_NAME_BYTES = 200  # of the 255 that a folder takes
EXAMPLE = "workbench import result.json --gpus 8"
STATES = {True: "checked on a real file", False: "as its documentation says; no real file seen"}


def main() -> None:
    """Take files in, then what was recognised, dropped and kept of each, with its basis."""
    parts.html(markup.headline("What do others report?"))
    _drop()
    runs = [run for run in reading.summaries() if run.engine == "imported"]
    if runs:
        _one(runs)
    else:
        parts.nothing("No other tool's result is stored yet. Drop files above; or:", EXAMPLE)
    _formats()


def _drop() -> None:
    with st.form("import", border=True):
        files = st.file_uploader(
            "Result files of other tools", accept_multiple_files=True, key="import.files"
        )
        stated = st.number_input(
            "Devices behind each result, where the files do not tell", min_value=0, step=1,
            help="0: not stated. It is never guessed: without it there is no rate per device.",
        )  # fmt: skip
        sent = st.form_submit_button("Import", icon=":material/upload_file:")
    if sent and files:
        _take_in([(file.name, file.getvalue()) for file in files], int(stated) or None)


def _take_in(files: list[tuple[str, bytes]], devices: int | None) -> None:
    """Store the files as runs, and tell each that was refused."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            paths = [_written(Path(folder), *file) for file in files]
            found = wb.import_files(paths, wb.Store(reading.store_path()), devices=devices)
    except wb.BenchError as error:
        _refused(error)
        return
    for error in found.refused.values():
        _refused(error)
    _told(found)
    if found.runs:
        address.remember("run", found.runs[-1].run_id)
        st.cache_data.clear()  # the list of runs is one longer


def _refused(error: wb.BenchError) -> None:
    where = Path(error.where or "").name
    st.error(markup.plain(f"{where}: {error.what} {error.remedy or ''}"))


def _told(found: wb.Intake) -> None:
    for path, run_id in found.known.items():
        parts.html(markup.note(f"{path.name} is in the store already, as {run_id}."))
    for path, first in found.copies.items():
        parts.html(markup.note(f"{path.name} says what {first.name} says: stored once."))
    for path, result in found.joined.items():
        parts.html(markup.note(f"{path.name} is telemetry of {result.name}: stored with it."))
    for run in found.runs:
        told = f"{plural(run.planned, 'result')} of {(run.origin or {}).get('tool')}"
        parts.html(markup.note(f"{told} stored as {run.run_id}."))


def _written(folder: Path, name: str, content: bytes) -> Path:
    """The file, beside the others of the call; of several of one name, in a folder of its own."""
    last = Path(name.replace("\0", "")).name.encode()[:MOST_NAME_BYTES].decode(errors="ignore")
    plain = last if last not in ("", "..") else "file"
    places = (folder / str(place) for place in itertools.count())
    with explained(folder):
        home = next(place for place in places if not (place / plain).exists())
        home.mkdir(exist_ok=True)
        (home / plain).write_bytes(content)
    return home / plain


def _one(runs: list[wb.RunSummary]) -> None:
    """One imported run: its files and notes, its rows with their basis, and all it tells."""
    names = {run.run_id: run for run in runs}
    picked = address.choose(
        "Imported run", list(names), "run", default=next(iter(names)),
        words=lambda name: parts.run_words(names[name]),
    )  # fmt: skip
    reader = reading.reader(picked)
    parts.html(_origin(reader.run.origin or {}, names[picked]))
    points = reader.points()
    told = [n for n in wb.METRICS if f"{n}.n" in points and points[n].notna().any()]
    parts.html(markup.section(f"{plural(len(points), 'result')}, by our metrics"))
    if told:
        _basis(points, told)
    else:
        parts.html(markup.note("No number of these files means the same as one of ours."))
    _results(points, told)
    _numbers(reader, picked)


def _origin(origin: dict[str, object], summary: wb.RunSummary) -> str:
    """What was recognised, and what was dropped and why."""
    files = [file for file in _listed(origin.get("files")) if isinstance(file, dict)]
    stated = origin.get("devices_stated")
    rows = [
        ("tool", origin.get("tool")),
        ("version", origin.get("tool_version") or "not told by the file"),
        ("format", f"{origin.get('format')}: {STATES[bool(origin.get('format_seen'))]}"),
        *(("file", f"{file.get('name')}, {file.get('sha256', '')[:16]}") for file in files),
        ("devices", "not stated" if stated is None else f"{stated}, stated at the import"),
        ("model", summary.model),
        ("accelerator", summary.accelerator),
    ]
    cells = [(markup.text(name, "soft"), markup.text(value, "free")) for name, value in rows]
    notes = [str(note) for note in _listed(origin.get("notes"))]
    dropped = "".join(map(markup.note, notes)) or markup.note("Nothing.")
    link = markup.anchor("Beside others on a front", address.link("pareto", run=summary.run_id))
    return (
        markup.section("What was recognised")
        + markup.table(("", ""), cells)
        + markup.section("What was dropped, or is to be minded")
        + dropped
        + f'<p class="wb-note">{link}</p>'
    )


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _basis(points: pd.DataFrame, told: list[str]) -> None:
    """How the tool came by each metric that it fills."""
    metric = address.choose("Metric", told, "by", default=told[0], words=controls.heading)
    bases = points.get(f"{metric}.basis", pd.Series(dtype=object)).dropna().unique()
    for basis in bases[:3]:
        parts.html(markup.note(f"{wb.METRICS[metric].label} there: {basis}."))
    parts.html(markup.note(f"Ours: {wb.METRICS[metric].definition}."))


def _results(points: pd.DataFrame, told: list[str]) -> None:
    """One row a result, a column each setting that varies; numbers stay numbers: they sort."""
    rows = by_axes(points)
    settings = {controls.capital(name): _setting(rows[name]) for name in varied(points)}
    table = pd.DataFrame({**settings, "State": rows["state"].tolist()})
    for name in told[:MAX_METRICS]:
        table[controls.heading(name)] = rows[name].to_numpy(float)
    whole = {name: value_text for name, column in settings.items() if column.dtype != object}
    digits = dict.fromkeys(table.select_dtypes("float"), number) | whole
    height = "auto" if len(table) < 12 else 430
    st.dataframe(table.style.format(digits), hide_index=True, height=height, placeholder=MISSING)
    if len(told) > MAX_METRICS:
        more = len(told) - MAX_METRICS
        parts.html(markup.note(f"{plural(more, 'more metric')} on the other pages."))


def _setting(values: pd.Series) -> pd.Series:
    """Numbers as such where there is nothing else, else words."""
    plain = values.reset_index(drop=True)
    if is_numeric_dtype(plain) and not is_bool_dtype(plain):
        return plain
    return plain.map(value_text).astype(object)


def _numbers(reader: reading.Reader, run_id: str) -> None:
    """Every cell of one result, under its tool's name."""
    trials = reader.trials()
    names = controls.trial_names(trials, trials.head(controls.MAX_TRIALS))
    options = list(names)
    picked = address.choose(
        "Every number of", options, "trial", default=options[0], words=names.__getitem__
    )
    record = reading.trial(run_id, picked)
    cells = [
        (
            markup.text(one.key, "name"),
            markup.text(_value(one), "num", one.reason or ""),
            markup.text(one.unit, "soft"),
            markup.text(one.metric or "—", "soft"),
            markup.text(one.meaning, "free soft"),
        )
        for one in record.foreign[:MAX_NUMBERS]
    ]
    with st.expander(f"{plural(len(record.foreign), 'cell')} of its file"):
        parts.html(markup.table(("Its name", "Value", "Unit", "Our metric", "Meaning"), cells))


def _value(one: wb.ForeignNumber) -> str:
    return one.value if isinstance(one.value, str) else number(one.value)


def _formats() -> None:
    with st.expander("What can be imported"):
        rows = [
            (
                markup.text(one.tool, "name"),
                markup.text(one.title, "free"),
                markup.text(one.expects, "free soft"),
                markup.text(
                    STATES[one.seen] + (f"; no {one.unseen} seen" if one.unseen else ""),
                    "soft free",
                ),
            )
            for one in wb.IMPORT_FORMATS
        ]
        parts.html(markup.table(("Tool", "File", "Recognised by", "State"), rows))


if __name__ == "__main__":
    main()
