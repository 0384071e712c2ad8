"""The SQLite index of a store: every trial.json in one file, so that a page reads one file.

The folders are the truth. The index may lag or be missing, and can always be rebuilt; readers
take from it what it has and read the rest from the folders.
"""

from __future__ import annotations

import errno
import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from workbench.errors import NewerFormatError, StoreError
from workbench.files import disk_full, explained, to_json
from workbench.trial_files import FORMAT_VERSION, check_document

INDEX_NAME = "index.sqlite"
DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
SCHEMA = """
CREATE TABLE IF NOT EXISTS trials (
  run_id TEXT NOT NULL, trial_id TEXT NOT NULL, document TEXT NOT NULL,
  PRIMARY KEY (run_id, trial_id)
)
"""


class Index:
    """The index of the store at `folder`. Opens the file anew for each call: thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / INDEX_NAME

    def check(self) -> None:
        """Refuse to write to an index of a newer format. Touches nothing."""
        if not self.path.exists():
            return
        try:
            with closing(self._connect("ro")) as connection:
                version = connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error:
            return  # damaged: it is rebuilt at the next write
        if version > FORMAT_VERSION:
            raise NewerFormatError(
                f"is written in format version {version}; this workbench writes "
                f"{FORMAT_VERSION}. Nothing was touched.",
                where=str(self.path),
                remedy="Upgrade with `pip install --upgrade inference-workbench`, or use "
                "another --store.",
            )

    def add(self, run_id: str, documents: Iterable[Mapping[str, object]]) -> None:
        """Add trials of one run in one transaction; a damaged index is dropped and begun anew.

        DiskFullError without room; the trial folders are not affected. Any other refusal (a
        lock held for too long) leaves the index behind the folders, which readers allow for.
        """
        rows = [(run_id, str(item["trial_id"]), to_json(item, indent=None)) for item in documents]
        try:
            self._insert(rows)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise disk_full(self.path.parent, errno.ENOSPC) from error
            if error.sqlite_errorcode in DAMAGED:
                self.remove()
                self._insert(rows)

    def remove(self) -> None:
        """Delete the index; readers fall back to the folders. StoreError if it cannot be."""
        with explained(self.path.parent):
            for suffix in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def documents(self, run_id: str) -> dict[str, dict[str, object]]:
        """Trial id -> trial.json of what is indexed of one run; nothing when unreadable.

        Rows that are no trial of that id, and an index of another format, are passed over.
        """
        query = "SELECT trial_id, document FROM trials WHERE run_id = ?"
        if not self.path.exists():
            return {}
        try:
            with closing(self._connect("ro")) as connection:
                if connection.execute("PRAGMA user_version").fetchone()[0] != FORMAT_VERSION:
                    return {}
                rows = connection.execute(query, (run_id,)).fetchall()
        except sqlite3.Error:
            return {}
        found = {name: _document(text, self.path) for name, text in rows}
        return {name: item for name, item in found.items() if item and item["trial_id"] == name}

    def _insert(self, rows: list[tuple[str, str, str]]) -> None:
        with closing(self._connect("rwc")) as connection, connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(SCHEMA)
            connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
            connection.executemany("INSERT OR REPLACE INTO trials VALUES (?, ?, ?)", rows)

    def _connect(self, mode: str) -> sqlite3.Connection:
        location = self.path.absolute().as_uri()
        return sqlite3.connect(f"{location}?mode={mode}", uri=True, timeout=30.0)


def _document(text: object, path: Path) -> dict[str, object] | None:
    """The trial in one row; None where it is none."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
        if isinstance(found, dict):
            check_document(found, path)
            return found
    except (ValueError, RecursionError, StoreError):
        return None
    return None
