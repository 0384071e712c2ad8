"""What a bench has found so far, as a JSON file that is whole at any time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernels.errors import WorkbenchError


class DocumentError(WorkbenchError):
    """A file that should hold what a bench found does not."""


class BenchDocument:
    """Facts and lists of rows. Written anew with each addition; `path` None: never."""

    def __init__(self, path: Path | None, facts: Mapping[str, object]) -> None:
        self._path = path
        self._facts = dict(facts)
        self._lists: dict[str, list[object]] = {}

    def put(self, **facts: object) -> None:
        """Set facts, whatever they were before."""
        self._facts |= facts
        self._write()

    def add(self, **rows: Sequence[object]) -> None:
        """Append rows to the lists of those names."""
        for name, more in rows.items():
            self._lists.setdefault(name, []).extend(more)
        self._write()

    def value(self) -> dict[str, object]:
        """All of it."""
        return {**self._facts, **self._lists}

    def _write(self) -> None:
        if self._path is not None:
            beside = self._path.with_name(f".{self._path.name}")
            beside.write_text(json.dumps(self.value(), indent=1) + "\n", encoding="utf-8")
            beside.replace(self._path)


def earlier(paths: Sequence[Path], kind: str) -> Iterator[Mapping[str, object]]:
    """The documents of one format among files; DocumentError for a file that is none."""
    for path in paths:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DocumentError(
                f"cannot be read: {error}.", where=str(path), remedy="Leave it out."
            ) from error
        if not isinstance(found, dict) or found.get("format") != kind:
            raise DocumentError(f"is no {kind}.", where=str(path), remedy="Leave it out.")
        yield found


def rows_of(document: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    """The rows of one list of a document; none where it is not there."""
    found = document.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
