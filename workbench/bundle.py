"""A report and the runs behind it as one archive, and back; a damaged or unsafe one is refused.

A bundle is the files of a report, `runs/<run>/...` as the store holds them, and SHA256SUMS of
every other file. The same files give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from workbench.corrections import CORRECTIONS
from workbench.errors import BundleError
from workbench.files import explained
from workbench.store import Store

if TYPE_CHECKING:
    from workbench.store import Run

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that zip archives know
RUNS = "runs"
SUMS = "SHA256SUMS"
OF_A_RUN = ("run.json", "progress.json", CORRECTIONS)  # beside its trials
MOST_BYTES = 4 << 30  # unpacked: none of ours comes near, and an archive may lie
COPY = "Ask for the bundle again, or make it anew with `workbench report RUN --bundle FILE`."
_NOT_A_ZIP = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError,
)  # fmt: skip
"""What zipfile raises for archives that are damaged, encrypted or packed in unknown ways."""


def checksums(files: Mapping[str, bytes]) -> bytes:
    """SHA256SUMS of the files, in the form that `sha256sum --check` reads."""
    lines = [f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)]
    return "".join(lines).encode()


def bundle(files: Mapping[str, bytes]) -> bytes:
    """The files as one zip archive."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # the same on every system
            archive.writestr(entry, files[name])
    return sink.getvalue()


def with_runs(report: Mapping[str, bytes], runs: Sequence[Run]) -> dict[str, bytes]:
    """The files of a report and those of its runs, with checksums of them all."""
    files = {name: content for name, content in report.items() if name != SUMS}
    for run in runs:
        files |= {f"{RUNS}/{run.run_id}/{name}": found for name, found in _files_of(run)}
    return {**files, SUMS: checksums(files)}


def _files_of(run: Run) -> Iterator[tuple[str, bytes]]:
    for name in OF_A_RUN:
        if (path := run.folder / name).is_file():
            yield name, path.read_bytes()
    for trial_id in sorted(run.trial_ids()):
        for name, path in run.files(trial_id).items():
            yield f"trials/{trial_id}/{name}", path.read_bytes()


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """The runs of the bundle at `path` as a store that lasts as long as the context.

    BundleError for what is no bundle, names a place outside itself, or does not hold what its
    checksums say; nothing is unpacked then.
    """
    files = read_bundle(path)
    with tempfile.TemporaryDirectory(prefix="workbench-bundle-") as folder:
        root = Path(folder)
        with explained(root):
            for name, content in files.items():
                place = root / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
        store = Store(root / RUNS)
        if not store.run_ids():
            raise BundleError("holds no run.", where=str(path), remedy=COPY)
        yield store


def read_bundle(path: Path) -> dict[str, bytes]:
    """File name -> bytes, every name safe and every checksum right; BundleError otherwise."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_names(archive, path)
            files = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    except FileNotFoundError as error:
        raise BundleError("there is no such bundle.", where=str(path)) from error
    except OSError as error:
        raise BundleError(f"cannot be read ({error.strerror}).", where=str(path)) from error
    except _NOT_A_ZIP as error:
        raise BundleError(f"is damaged ({error}).", where=str(path), remedy=COPY) from error
    _check_sums(files, path)
    return files


def _check_names(archive: zipfile.ZipFile, path: Path) -> None:
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    for entry in entries:
        if _is_unsafe(entry):
            raise BundleError(
                f"holds {entry.filename[:80]!r}, which would be written outside its folder.",
                where=str(path),
                remedy="Do not use it: no bundle of this workbench has such a name.",
            )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BundleError(f"holds {twice[:80]!r} twice.", where=str(path), remedy=COPY)
    total = sum(entry.file_size for entry in entries)
    if total > MOST_BYTES:
        raise BundleError(f"would unpack to {total:,} bytes.", where=str(path), remedy=COPY)


def _is_unsafe(entry: zipfile.ZipInfo) -> bool:
    """Absolute, climbing, of another system's form, or anything but a plain file."""
    name, kind = entry.orig_filename, stat.S_IFMT(entry.external_attr >> 16)
    parts = PurePosixPath(name).parts
    strange = any(mark in name for mark in ("\\", ":", "\0"))
    climbs = not parts or name.startswith("/") or ".." in parts or name.endswith("/")
    return strange or climbs or kind not in (0, stat.S_IFREG)


def _check_sums(files: Mapping[str, bytes], path: Path) -> None:
    if SUMS not in files:
        raise BundleError(f"has no {SUMS}.", where=str(path), remedy=COPY)
    lines = files[SUMS].decode("utf-8", "replace").splitlines()
    said = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    for name in sorted({*said, *files} - {SUMS}):
        if name not in files:
            raise BundleError(f"lacks {name}.", where=str(path), remedy=COPY)
        if hashlib.sha256(files[name]).hexdigest() != said.get(name):
            what = "is not what its checksum says" if name in said else "has no checksum"
            raise BundleError(f"is damaged: {name} {what}.", where=str(path), remedy=COPY)
