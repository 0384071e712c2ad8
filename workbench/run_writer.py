"""Adds trials to one run: the only way in which a results folder grows."""

from __future__ import annotations

import re
from types import TracebackType

from experiments.records import TrialRecord
from workbench.errors import StoreError
from workbench.files import explained, remove_leftovers, write_folder
from workbench.index import Index
from workbench.lock import WriterLock
from workbench.stored_run import Run
from workbench.trial_files import contents, document

SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RunWriter:
    """Adds trials to one run. Holds the run's lock until `close()`; a context manager."""

    def __init__(self, run: Run, index: Index) -> None:
        index.check()
        self._lock = WriterLock(run.folder)
        self._index = index
        self._trials = run.folder / "trials"
        with explained(run.folder):
            self._trials.mkdir(exist_ok=True)
        remove_leftovers(self._trials)
        self.run = run.refresh()

    def append(self, record: TrialRecord) -> None:
        """Store one trial; it is on the disk when this returns.

        StoreError when the trial is stored already, DiskFullError without room.
        """
        if not SAFE_NAME.fullmatch(record.trial_id):
            raise StoreError(
                f"{record.trial_id!r} cannot name a folder.",
                where=self.run.run_id,
                remedy="A trial id is letters, digits, dots, dashes and underscores.",
            )
        write_folder(self._trials / record.trial_id, contents(record))
        self._index.add(self.run.run_id, [document(record)])

    def close(self) -> None:
        """Let the next writer in. Safe to call twice."""
        self._lock.release()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
