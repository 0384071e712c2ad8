"""From files to a stored run: which are new, what each point becomes, where it is kept."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.quantiles import needed_samples
from experiments.records import (
    AxisValue,
    ForeignNumber,
    MetricValue,
    Point,
    TrialId,
    TrialRecord,
    TrialState,
)
from workbench.errors import DiskFullError, UsageError
from workbench.importers.catalogue import format_of
from workbench.importers.document import Document, read_document, refused
from workbench.importers.foreign import UNTOLD, Foreign, ForeignPoint, Format
from workbench.lock import utc_now
from workbench.store import Run, RunFacts, Store

ENGINE = "imported"
MOST_DEVICES = 1_000_000  # that anybody measures on
UNKNOWN_DEVICES = "the number of devices is not told; say it with `workbench import --gpus N`"
PER_DEVICE = {"output_tok_s": "output_tok_s_device", "total_tok_s": "total_tok_s_device"}
DUPLICATE = "duplicate"  # the axis that keeps results of one configuration apart
SHARES = {"p1": 0.99, "p50": 0.5, "p90": 0.9, "p99": 0.99}
POOLED = ("icl_s", "itl_s")  # quantiles of gaps, of which a request has many


@dataclass(frozen=True, kw_only=True)
class Imported:
    """One file that was read, its format and what was found in it."""

    document: Document
    format: Format
    foreign: Foreign


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What an import did: the run of each format, and files that the store had before."""

    runs: tuple[Run, ...]
    known: Mapping[Path, str]  # file -> the run that holds it
    copies: Mapping[Path, Path]  # file -> the file of this call with the same content
    read: tuple[Imported, ...]


def import_files(paths: Sequence[Path], store: Store, *, devices: int | None = None) -> Intake:
    """Read every file, then store one run a format; nothing is stored where one cannot be read.

    `devices` states how many each result was measured on, where the file does not.
    ForeignFileError for an unknown or damaged file, UsageError where `devices` contradicts one.
    """
    if devices is not None and not 1 <= devices <= MOST_DEVICES:
        raise UsageError(f"{devices} is no number of devices.", where="--gpus")
    read = [_with_devices(read_file(path), devices) for path in paths]
    with store.alone():
        before = _stored_files(store, devices)
        new: dict[str, Imported] = {}
        copies: dict[Path, Path] = {}
        for one in read:
            if one.document.sha256 not in before:
                first = new.setdefault(one.document.sha256, one)
                copies |= {one.document.path: first.document.path} if first is not one else {}
        return Intake(
            runs=tuple(_stored(batch, store, devices) for batch in _by_format(new.values())),
            known={one.document.path: before[one.document.sha256]
                   for one in read if one.document.sha256 in before},
            copies=copies,
            read=tuple(new.values()),
        )  # fmt: skip


def _by_format(read: Iterable[Imported]) -> Iterable[list[Imported]]:
    batches: dict[str, list[Imported]] = {}
    for one in read:
        batches.setdefault(one.format.name, []).append(one)
    return batches.values()


def read_file(path: Path) -> Imported:
    """One file, recognised and read; ForeignFileError where that cannot be."""
    document = read_document(path)
    found = format_of(document)
    foreign = found.read(document)
    if not foreign.points:
        raise refused(path, f"is {found.title} without a result in it.")
    return Imported(document=document, format=found, foreign=foreign)


def _stored_files(store: Store, devices: int | None) -> dict[str, str]:
    """Hash of each file that is in the store with as many devices stated -> its run."""
    found = {}
    for summary in store.runs():
        origin = store.run(summary.run_id).origin if summary.engine == ENGINE else None
        if origin is None or origin.get("devices_stated") != devices:
            continue
        files = origin.get("files")
        for file in files if isinstance(files, list) else []:
            found[str(file.get("sha256"))] = summary.run_id
    return found


def _stored(batch: Sequence[Imported], store: Store, devices: int | None) -> Run:
    records = _records(batch)
    try:
        return store.add(_facts(batch, records, devices), records)
    except DiskFullError as error:
        raise DiskFullError(
            f"there is no room for the {len(records):,} results of "
            f"{_some([one.document.path.name for one in batch])}; none of them was stored.",
            where=str(store.path),
            remedy="Free some space, or lift the quota, then import again.",
        ) from error


def _facts(
    batch: Sequence[Imported], records: Sequence[TrialRecord], devices: int | None
) -> RunFacts:
    first = batch[0]
    names = [one.document.path.name for one in batch]
    versions = sorted({one.foreign.version for one in batch if one.foreign.version is not None})
    origin = {
        "tool": first.format.tool,
        "tool_version": ", ".join(versions) or None,
        "format": first.format.name,
        "format_seen": first.format.seen,
        "files": [
            {"name": one.document.path.name, "sha256": one.document.sha256,
             "bytes": one.document.size_bytes}
            for one in batch
        ],
        "devices_stated": devices,
        "notes": list(dict.fromkeys(note for one in batch for note in one.foreign.notes)),
    }  # fmt: skip
    return RunFacts(
        name=f"{first.format.name}-{Path(names[0]).stem}",
        question=f"What does {first.format.tool} report in {_some(names)}?",
        plan={"name": first.format.name, "import": first.format.title, "files": names},
        planned=len(records),
        environment={},
        code_version=f"{first.format.tool} {origin['tool_version'] or 'of unknown version'}",
        checkpoint_fingerprint=None,
        engine=ENGINE,
        accelerator=_one_of(records, "accelerator"),
        model=Path(_one_of(records, "model")).name,
        origin=origin,
    )


def _one_of(records: Sequence[TrialRecord], name: str) -> str:
    """The setting of all records, the number of them where they differ, or that it is not told."""
    found = {str(r.point.engine[name]) for r in records if r.point.engine.get(name) is not None}
    if len(found) > 1:
        return f"{len(found)} {name}s"
    return next(iter(found), UNTOLD)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more


def _records(batch: Sequence[Imported]) -> list[TrialRecord]:
    """One record a point of the files, with the axes that vary among them."""
    told = [(one, place, point) for one in batch for place, point in enumerate(one.foreign.points)]
    points = [point for _, _, point in told]
    axes = _axes(points)
    started = utc_now().isoformat(timespec="milliseconds")
    return [
        TrialRecord(
            trial_id=_trial_id(k, one.document, place),
            point=Point(axes=axes[k], engine=dict(points[k].engine),
                        workload=dict(points[k].workload)),
            repeat=points[k].repeat,
            state=_state(points[k]),
            reason=_reason(points[k]),
            started_utc=started,
            duration_s=points[k].duration_s or 0.0,
            window_s=None,
            metrics=_metrics(points[k], one.format.tool),
            labels=tuple(dict.fromkeys((f"imported from {one.format.tool}", *points[k].labels))),
            telemetry=points[k].telemetry,
            foreign=points[k].numbers,
        )
        for k, (one, place, _) in enumerate(told)
    ]  # fmt: skip


def _trial_id(order: int, document: Document, place: int) -> TrialId:
    """Trials of one instant are listed by their ids: so these keep the order of the files."""
    key = f"{document.sha256} {place}"
    return TrialId(f"{order:04d}-{hashlib.sha256(key.encode()).hexdigest()[:12]}")


def _with_devices(one: Imported, stated: int | None) -> Imported:
    """The file with the number of devices of each point among its settings, where it is known."""
    points = tuple(_on_devices(point, stated, one.document.path) for point in one.foreign.points)
    return dataclasses.replace(one, foreign=dataclasses.replace(one.foreign, points=points))


def _on_devices(point: ForeignPoint, stated: int | None, path: Path) -> ForeignPoint:
    if stated is not None and point.devices not in (None, stated):
        raise UsageError(
            f"--gpus {stated} contradicts the file, which tells {point.devices} devices.",
            where=str(path),
            remedy="Leave out --gpus.",
        )
    found = stated if point.devices is None else point.devices
    if found is None:
        return point
    return dataclasses.replace(point, devices=found, engine={**point.engine, "devices": found})


def _axes(points: Sequence[ForeignPoint]) -> list[dict[str, AxisValue]]:
    """The settings that vary, by point; results of one configuration are numbered apart."""
    settings = [{**point.workload, **point.engine} for point in points]
    names = dict.fromkeys(name for found in settings for name in found)
    varying = [name for name in names if len({repr(found.get(name)) for found in settings}) > 1]
    axes = [{name: found.get(name) for name in varying} for found in settings]
    keys = [repr((axis, point.repeat)) for axis, point in zip(axes, points, strict=True)]
    if len(set(keys)) == len(keys):
        return axes
    seen: Counter[str] = Counter()
    for axis, key in zip(axes, keys, strict=True):
        seen[key] += 1
        axis[DUPLICATE] = seen[key]
    return axes


def _state(point: ForeignPoint) -> TrialState:
    if point.samples == 0:
        return TrialState.FAILED
    return TrialState.INVALID if point.invalid is not None else TrialState.OK


def _reason(point: ForeignPoint) -> str | None:
    if point.samples == 0:
        failed = "" if point.failed is None else f", {point.failed:,} failed"
        return f"no request succeeded{failed}"
    return point.invalid


def _metrics(point: ForeignPoint, tool: str) -> dict[str, MetricValue]:
    """Our metrics that the numbers of the file are, each with its basis."""
    if point.samples == 0:
        return {}
    found = {
        one.metric: _metric(one, one.metric, point.samples, tool)
        for one in point.numbers
        if one.metric is not None
    }
    return {**found, **_per_device(found, point.devices), **point.metrics}


def _metric(one: ForeignNumber, metric: str, samples: int | None, tool: str) -> MetricValue:
    """A quantile that its samples cannot carry is missing: the tool's number stays its own."""
    basis = f"{tool} {one.key}: {one.meaning}"
    if not isinstance(one.value, float):
        return MetricValue(value=None, n=0, reason=one.reason or "not told", basis=basis)
    share = None if metric.startswith(POOLED) else SHARES.get(metric.rpartition("_")[2])
    if share is not None and samples is not None and samples < needed_samples(share):
        reason = f"n={samples} is too few for it; the tool's number is kept as its own"
        return MetricValue(value=None, n=samples, reason=reason, basis=basis)
    return MetricValue(value=one.value, n=samples, basis=basis)


def _per_device(found: Mapping[str, MetricValue], devices: int | None) -> dict[str, MetricValue]:
    """Rates per device from whole rates, where the file has none of its own."""
    rates = {}
    for whole, each in PER_DEVICE.items():
        rate = found.get(whole)
        if rate is None or rate.value is None or each in found:
            continue
        if devices is None:
            rates[each] = MetricValue(value=None, n=0, reason=UNKNOWN_DEVICES, basis=rate.basis)
        else:
            basis = f"{rate.basis}; divided by {devices} devices"
            rates[each] = MetricValue(value=rate.value / devices, n=rate.n, basis=basis)
    return rates
