"""From files to a stored run: which are new, what each point becomes, where it is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.records import TrialRecord
from workbench.errors import BenchError, DiskFullError, UnknownFileError, UsageError
from workbench.importers.catalogue import format_of
from workbench.importers.companions import twins, with_telemetry
from workbench.importers.document import LISTED, read_document, refused
from workbench.importers.folders import files_of, may_be_result, run_folders
from workbench.importers.foreign import UNTOLD, ForeignPoint
from workbench.importers.trials import Imported, records_of
from workbench.index import INDEX_NAME
from workbench.store import Run, RunFacts, Store

ENGINE = "imported"
MOST_DEVICES = 1_000_000  # that anybody measures on


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What an import did with each file that was named or found in a named folder."""

    refused: Mapping[Path, BenchError]  # file -> why nothing of it was stored
    left_out: Mapping[Path, str]  # file of a named folder that is no result -> what it is
    runs: tuple[Run, ...] = ()  # one a format
    taken: tuple[Run, ...] = ()  # of this workbench, found in a named folder: copied whole
    known: Mapping[Path, str] = field(default_factory=dict[Path, str])
    """File that the store has -> the run that holds it."""
    copies: Mapping[Path, Path] = field(default_factory=dict[Path, Path])
    """File -> the one of this call that says the same."""
    joined: Mapping[Path, Path] = field(default_factory=dict[Path, Path])
    """Telemetry -> the result of this call that it belongs to."""


def import_files(paths: Sequence[Path], store: Store, *, devices: int | None = None) -> Intake:
    """Read every file, of a folder those that are results; store one run a format.

    A file that cannot be read is in `refused`, and the others are stored all the same. `devices`
    states how many each result was measured on, where the file does not; a file that tells
    another number is refused. Raises UsageError for a number that nobody has, StoreError where
    nothing can be written.
    """
    if devices is not None and not 1 <= devices <= MOST_DEVICES:
        raise UsageError(f"{devices} is no number of devices.", where="--gpus")
    found = _read(paths, devices)
    if not found.read and not found.own:
        return Intake(refused=found.refused, left_out=found.left_out)
    with store.alone():
        before = _stored_files(store, devices)
        known = {one.document.path: before[one.document.sha256]
                 for one in found.read if one.document.sha256 in before}  # fmt: skip
        new: dict[str, Imported] = {}
        copies: dict[Path, Path] = twins(found.read)
        for one in found.read:
            if one.document.path in known or one.document.path in copies:
                continue
            first = new.setdefault(one.document.sha256, one)
            copies |= {one.document.path: first.document.path} if first is not one else {}
        taken = _taken(found, store, known)
        whole, joined = with_telemetry(list(new.values()), found.read)
        return Intake(
            runs=tuple(_stored(batch, store, devices) for batch in _by_format(whole)),
            taken=taken,
            known=known,
            copies=copies,
            joined=joined,
            refused=found.refused,
            left_out=found.left_out,
        )


def _taken(found: _Found, store: Store, known: dict[Path, str]) -> tuple[Run, ...]:
    """Runs that the store has not; one that cannot be taken is refused."""
    before, taken = set(store.run_ids()), list[Run]()
    for folder in found.own:
        place = folder.resolve()  # of "." the name tells nothing
        if place.name in before:
            known[folder] = place.name
            continue
        try:
            taken.append(store.take(place))
            before.add(place.name)
        except BenchError as error:
            found.refused[folder] = error
    return tuple(taken)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What stands in the files, before anything is stored."""

    read: list[Imported] = field(default_factory=list[Imported])
    refused: dict[Path, BenchError] = field(default_factory=dict[Path, BenchError])
    left_out: dict[Path, str] = field(default_factory=dict[Path, str])
    own: list[Path] = field(default_factory=list[Path])  # folders of runs of this workbench

    @property
    def paths(self) -> set[Path]:
        """Every file that was looked into."""
        return {one.document.path for one in self.read} | {*self.refused, *self.left_out}


def _read(paths: Sequence[Path], devices: int | None) -> _Found:
    found = _Found()
    for path in dict.fromkeys(paths):
        try:
            if path.is_dir():
                _read_folder(path, devices, found)
            elif path not in found.paths:
                found.read.append(_with_devices(read_file(path), devices))
        except BenchError as error:
            found.refused[path] = error
    return found


def _read_folder(folder: Path, devices: int | None, found: _Found) -> None:
    """The results below a folder; what marks no result of a known tool is only left out."""
    every = files_of(folder)
    own = [one for one in run_folders(every) if one not in found.own]
    found.own.extend(own)
    indexes = {one.parent / INDEX_NAME for one in found.own}
    files = [
        path
        for path in every
        if {*path.parents}.isdisjoint(found.own)
        and not any(str(path).startswith(str(index)) for index in indexes)
    ]
    before, seen = len(found.read) + len(found.refused), found.paths
    for path in (path for path in files if path not in seen):
        try:
            if not may_be_result(path):
                found.left_out[path] = "is no JSON, YAML or CSV."
            else:
                found.read.append(_with_devices(read_file(path), devices))
        except UnknownFileError as error:
            found.left_out[path] = error.what
        except BenchError as error:
            found.refused[path] = error
    nothing = seen.isdisjoint(files) and len(found.read) + len(found.refused) == before
    if nothing and not own:
        raise refused(folder, "is a folder without a result of a known tool.", LISTED)


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
    records = records_of(batch)
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
            {"name": file.path.name, "sha256": file.sha256, "bytes": file.size_bytes}
            for one in batch
            for file in (one.document, *one.joined)
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
