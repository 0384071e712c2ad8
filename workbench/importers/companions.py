"""Files that several tools leave of one run: which say the same, and which belong together.

AIPerf leaves a summary as JSON and as CSV, records of requests and telemetry of devices, all of
one prefix in one folder. Telemetry is joined to the summary and the records of its prefix, be it
named in the same call or lying beside them; where a call names one run and one telemetry of a
folder, their names may be anything.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from workbench.errors import ForeignFileError
from workbench.importers.aiperf_records import read_telemetry_of, span_of
from workbench.importers.document import Document, read_document
from workbench.importers.foreign import Foreign, ForeignPoint
from workbench.importers.trials import Imported

RESULTS = ("aiperf", "aiperf-records")
TELEMETRY = "aiperf-telemetry"
TABLE = "genai-perf-csv"
RESULT_NAME = re.compile(r"_?(profile_export)?(_aiperf)?$")
TELEMETRY_NAME = re.compile(r"_?gpu_telemetry(_export)?$")
BESIDE = ("gpu_telemetry_export.jsonl", "gpu_telemetry.jsonl")  # as the tool names it
CLOSE = 0.01  # within which a table has rounded what its summary says


def twins(read: Sequence[Imported]) -> dict[Path, Path]:
    """Each table beside the summary, of one folder and stem, that says the same."""
    summaries = {
        (one.document.path.parent, _stem(one.document.path)): one
        for one in read
        if one.format.name in ("aiperf", "genai-perf")
    }
    found = {}
    for one in read:
        other = summaries.get((one.document.path.parent, _stem(one.document.path)))
        if one.format.name == TABLE and other is not None and _agree(one.foreign, other.foreign):
            found[one.document.path] = other.document.path
    return found


def _stem(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).stem


def _agree(table: Foreign, summary: Foreign) -> bool:
    """Whether all that both tell of one metric is one number, and there is any."""
    told, other = (_by_metric(one) for one in (table, summary))
    both = told.keys() & other.keys()
    return bool(both) and all(abs(told[n] - other[n]) <= CLOSE * abs(other[n]) for n in both)


def _by_metric(foreign: Foreign) -> dict[str, float]:
    (point,) = foreign.points
    return {
        one.metric: one.value
        for one in point.numbers
        if one.metric is not None and isinstance(one.value, float)
    }


def with_telemetry(
    new: Sequence[Imported], read: Sequence[Imported]
) -> tuple[list[Imported], dict[Path, Path]]:
    """The new files, telemetry taken into the results that it belongs to.

    `read`: all files of the call, also those that the store has. The second answer names the
    result of each telemetry file that was taken in.
    """
    whole, joined = [], {}
    for one in new:
        if one.format.name not in RESULTS:
            whole.append(one)
            continue
        sensor = _named(one, read)
        if sensor is not None:
            whole.append(_joined(one, sensor.document, sensor.foreign))
            joined.setdefault(sensor.document.path, one.document.path)
        else:
            whole.append(_with_what_lies_beside(one))
    return [one for one in whole if one.document.path not in joined], joined


def _named(one: Imported, read: Sequence[Imported]) -> Imported | None:
    """The telemetry of a result: of its folder and prefix, or the only one of its folder."""
    here = [other for other in read if other.document.path.parent == one.document.path.parent]
    sensors = [other for other in here if other.format.name == TELEMETRY]
    prefix = _prefix(one.document.path, RESULT_NAME)
    for sensor in sensors:
        if _prefix(sensor.document.path, TELEMETRY_NAME) == prefix:
            return sensor
    runs = {_prefix(r.document.path, RESULT_NAME) for r in here if r.format.name in RESULTS}
    return sensors[0] if len(sensors) == len(runs) == 1 else None


def _prefix(path: Path, name: re.Pattern[str]) -> str:
    return name.sub("", _stem(path), count=1)


def _with_what_lies_beside(one: Imported) -> Imported:
    """The result with telemetry that nobody named but that has the name the tool gives it."""
    prefix = _prefix(one.document.path, RESULT_NAME)
    for name in BESIDE:
        path = one.document.path.parent / (f"{prefix}_{name}" if prefix else name)
        if not path.is_file():
            continue
        try:
            document = read_document(path)
            foreign = read_telemetry_of(document)
        except ForeignFileError as error:
            return _noted(one, f"{path.name} beside it was left out: it {error.what}")
        return one if foreign is None else _joined(one, document, foreign)
    return one


def _noted(one: Imported, *notes: str) -> Imported:
    foreign = dataclasses.replace(one.foreign, notes=(*one.foreign.notes, *notes))
    return dataclasses.replace(one, foreign=foreign)


def _joined(one: Imported, document: Document, telemetry: Foreign) -> Imported:
    notes = [f"Telemetry of devices is that of {document.path.name}.", *telemetry.notes]
    run, read, shift_s = span_of(one.document), span_of(document), 0.0
    if run is not None and read is not None:
        shift_s = (read[0] - run[0]) / 1e9
        if read[1] < run[0] or read[0] > run[1]:
            notes.append("No sample of it lies between the first request and the last answer.")
    (told,) = telemetry.points
    points = tuple(_with(point, told, shift_s) for point in one.foreign.points)
    whole = dataclasses.replace(
        one,
        foreign=dataclasses.replace(one.foreign, points=points),
        joined=(*one.joined, document),
    )
    return _noted(whole, *notes)


def _with(point: ForeignPoint, told: ForeignPoint, shift_s: float) -> ForeignPoint:
    """The result with the samples, whose time begins at its first request where both tell it."""
    samples = tuple(
        dataclasses.replace(sample, time_s=sample.time_s + shift_s) for sample in told.telemetry
    )
    return dataclasses.replace(
        point,
        engine={**told.engine, **point.engine},
        numbers=(*point.numbers, *told.numbers),
        telemetry=samples,
    )
