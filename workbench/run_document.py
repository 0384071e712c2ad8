"""Parts of run.json and trial.json, however damaged these are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.errors import StoreError


def planned_count(found: Mapping[str, object], path: Path) -> int:
    """The number of planned trials in run.json; StoreError when it is no such number."""
    planned = found.get("planned", 0)
    if type(planned) is not int or planned < 0:
        raise StoreError(
            f"is damaged (planned is {str(planned)[:80]!r}, not a number of trials).",
            where=str(path),
            remedy="Restore it from a copy, or move this folder out of the store.",
        )
    return planned


def part_of(found: Mapping[str, object], name: str) -> Mapping[str, object]:
    """A part of a document that is an object itself; empty where it is none."""
    value = found.get(name)
    return value if isinstance(value, Mapping) else {}


def labels_of(found: Mapping[str, object]) -> Sequence[str]:
    """The labels of a trial document."""
    labels = found.get("labels")
    return [str(label) for label in labels] if isinstance(labels, list) else []
