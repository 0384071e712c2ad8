"""What a stored run told wrongly, set right where it is read.

Trials are never changed once they are stored. Where the software that measured a run told a setting
wrongly, `corrections.json` beside run.json says which, of which trials, and why; readers see the
right setting and a label. A trial that told otherwise than the correction says is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import StoreError
from workbench.figures_text import value_text
from workbench.files import read_json
from workbench.run_document import labels_of, part_of
from workbench.trial_files import check_version

CORRECTIONS = "corrections.json"
_FIELDS = {"setting", "where", "told", "is", "why"}

Document = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Correction:
    """A setting of the engine that trials at some place told wrongly."""

    setting: str
    where: Mapping[str, object]  # axis values of the trials; empty: all
    told: object
    right: object
    why: str

    @property
    def sentence(self) -> str:
        """What is set right, of which trials, and why."""
        where = ", ".join(f"{name} {value_text(value)}" for name, value in self.where.items())
        whose = f"the trials with {where}" if where else "all trials"
        return (
            f"Corrected by {CORRECTIONS}: {self.setting} of {whose} was told as "
            f"{value_text(self.told)} and is {value_text(self.right)}. Why: {self.why}. "
            "No measured number changed."
        )

    def concerns(self, document: Document) -> bool:
        """Whether a trial told what this corrects."""
        point = part_of(document, "point")
        axes, engine = part_of(point, "axes"), part_of(point, "engine")
        is_there = all(axes.get(name) == value for name, value in self.where.items())
        return is_there and self.setting in engine and engine[self.setting] == self.told

    def applied(self, document: Document) -> dict[str, object]:
        """The trial with the right setting, and a label that says so."""
        point = part_of(document, "point")
        engine = {**part_of(point, "engine"), self.setting: self.right}
        label = f"{self.setting} corrected ({CORRECTIONS})"
        labels = [*labels_of(document), label]
        return {**document, "point": {**point, "engine": engine}, "labels": labels}


def corrections_of(folder: Path) -> list[Correction]:
    """Those of a run's folder; none without the file. StoreError where it is no such file."""
    path = folder / CORRECTIONS
    if not path.is_file():
        return []
    found = read_json(path)
    check_version(found, path)
    listed = found.get("corrections")
    if not isinstance(listed, list):
        raise _damaged(path, "corrections is no list")
    return [_correction(item, path) for item in listed]


def corrected(documents: Sequence[Document], corrections: Sequence[Correction]) -> list[Document]:
    """The trials as readers see them, in the same order."""
    found = list(documents)
    for one in corrections:
        found = [one.applied(each) if one.concerns(each) else each for each in found]
    return found


def correction_lines(folder: Path, documents: Sequence[Document]) -> list[str]:
    """A sentence each correction of a run that sets one of its stored trials right."""
    return [one.sentence for one in corrections_of(folder) if any(map(one.concerns, documents))]


def _correction(item: object, path: Path) -> Correction:
    if not isinstance(item, Mapping) or set(item) != _FIELDS:
        raise _damaged(path, f"a correction has {', '.join(sorted(_FIELDS))}")
    where, setting, why = item["where"], item["setting"], item["why"]
    if not (isinstance(where, Mapping) and isinstance(setting, str) and isinstance(why, str)):
        raise _damaged(path, "where is an object, setting and why are texts")
    return Correction(setting=setting, where=where, told=item["told"], right=item["is"], why=why)


def _damaged(path: Path, how: str) -> StoreError:
    return StoreError(
        f"is damaged ({how}).",
        where=str(path),
        remedy="Restore it from a copy, or remove it: the run is then read as it was stored.",
    )
