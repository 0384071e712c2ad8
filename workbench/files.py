"""Writing files so that a crash, a kill or a full disk leaves whole files or none.

JSON written here is deterministic: sorted keys, no NaN or infinity (they become null), UTF-8.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import DiskFullError, StoreError

if TYPE_CHECKING:
    import pandas as pd

MANY_FILES = 64  # beyond which one wait for the whole disk is the shorter one
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def finite(value: object) -> object:
    """`value` with every NaN and infinity, at any depth, replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [finite(item) for item in value]
    return value


def to_json(document: object, *, indent: int | None = 1) -> str:
    """`document` as deterministic JSON text that ends with a newline."""
    text = json.dumps(
        finite(document), sort_keys=True, indent=indent, ensure_ascii=False, allow_nan=False
    )
    # A lone surrogate cannot be written as UTF-8; it is kept as its escape.
    return text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n"


def read_json(path: Path) -> dict[str, object]:
    """The JSON object in `path`; StoreError when it is absent, damaged or not an object."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(path, error) from error
    if not isinstance(document, dict):
        raise StoreError(
            "is not a JSON object.",
            where=str(path),
            remedy="Restore it from a copy, or move this folder out of the store.",
        )
    return document


def unreadable(path: Path, error: Exception) -> StoreError:
    """The error for a file or folder of a store that cannot be read."""
    return StoreError(
        f"cannot be read ({error}).",
        where=str(path),
        remedy="Restore it from a copy, or move this folder out of the store.",
    )


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically: readers see the old file or the new one.

    Raises DiskFullError when there is no room; the temporary file is removed then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explained(path.parent):
        try:
            temporary.write_bytes(content)
            sync(temporary)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync(path.parent)


def write_lightly(path: Path, content: bytes) -> None:
    """Like `write_file` without waiting for the disk, for what may be lost in a power cut.

    It costs a measurement in progress next to nothing.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explained(path.parent):
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Create `folder` holding `contents` (name -> bytes) atomically, or leave nothing.

    A name may lead through folders ("trials/a/trial.json"). Every file and the folder itself are
    on the disk when this returns. StoreError when the folder exists (finished results are never
    overwritten), DiskFullError without room.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    if folder.exists():
        raise StoreError(
            "exists already, and finished results are never overwritten.",
            where=str(folder),
            remedy="Resume the run instead of storing this trial a second time.",
        )
    with explained(folder.parent):
        try:
            temporary.mkdir(parents=True)
            _fill(temporary, contents)
            temporary.rename(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync(folder.parent)


def copy_folder(source: Path, folder: Path) -> None:
    """Copy a folder atomically, or leave nothing; hidden files and locks stay behind.

    StoreError where `folder` exists or `source` cannot be read, DiskFullError without room.
    """
    with explained(source):
        files = [path for path in sorted(source.rglob("*")) if path.is_file()]
        kept = [path for path in files if not path.name.startswith(".") and path.suffix != ".lock"]
        contents = {str(path.relative_to(source)): path.read_bytes() for path in kept}
    write_folder(folder, contents)


def _fill(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write all, then wait for the disk: for each file, or once for many (sync(2) of Linux)."""
    paths = {folder / name: content for name, content in contents.items()}
    folders = {folder, *(parent for path in paths for parent in path.parents
                         if parent.is_relative_to(folder))}  # fmt: skip
    for parent in folders:
        parent.mkdir(parents=True, exist_ok=True)
    for path, content in paths.items():
        path.write_bytes(content)
    if len(paths) > MANY_FILES and sys.platform == "linux":
        os.sync()
        return
    for path in (*paths, *folders):
        sync(path)


def remove_leftovers(folder: Path, *, before: datetime | None = None) -> None:
    """Remove what killed writers left half-written in `folder`. The caller holds its lock.

    `before`: only what has not changed since, where others write into `folder` without the lock.
    """
    for path in folder.glob(".*.tmp"):
        if before is not None and not _is_older(path, before):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _is_older(path: Path, moment: datetime) -> bool:
    """False for what has gone meanwhile: its writer gave it its name."""
    try:
        return path.stat().st_mtime < moment.timestamp()
    except FileNotFoundError:
        return False


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn an operating-system refusal to write under `folder` into a typed error."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise disk_full(folder, error.errno) from error
        raise StoreError(
            f"cannot be written ({error.strerror or error}).",
            where=str(error.filename or folder),
            remedy="Check the folder's owner and permissions, or choose another --store.",
        ) from error


def disk_full(folder: Path, code: int | None) -> DiskFullError:
    """The error for a write under `folder` that found no room; names the free bytes."""
    free = free_bytes(folder)
    room = "an unknown number of" if free is None else f"{free:,}"
    return DiskFullError(
        f"there is no room to write ({os.strerror(code or errno.ENOSPC)}; {room} bytes are free). "
        "Trials that had finished are kept; nothing was left half-written.",
        where=str(folder),
        remedy="Free some space, or lift the quota, then try again; `workbench resume` goes on "
        "with a run.",
    )


def free_bytes(folder: Path) -> int | None:
    """Bytes free for us on the disk of `folder` or of its nearest existing parent."""
    for place in (folder, *folder.absolute().parents):
        if place.exists():
            return shutil.disk_usage(place).free
    return None


def read_parquet(path: Path) -> pd.DataFrame:
    """One Parquet file as a table, through DuckDB where it is installed; StoreError if damaged."""
    try:
        import duckdb
    except ImportError:
        return _read_by_pandas(path)
    try:
        with duckdb.connect() as connection:
            return connection.read_parquet(str(path)).df()
    except duckdb.Error as error:
        raise unreadable(path, error) from error


def _read_by_pandas(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
