"""What trials of one kind have taken so far: time and room, from what is stored."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.forecast import Pace
from workbench.errors import StoreError
from workbench.store import Run, Store

if TYPE_CHECKING:
    from experiments.plan import Plan

LOOKED_AT = 20
"""The newest runs that are looked at."""
WEIGHED = 20
"""Trials of them whose files are weighed."""


@dataclass(frozen=True, kw_only=True)
class StoredPace:
    """Medians over stored trials of the same target, model, protocol; None where there is none."""

    trials: int = 0
    trial_s: float | None = None
    start_s: float | None = None  # from the end of a trial to the next on another engine
    trial_bytes: float | None = None

    @property
    def pace(self) -> Pace:
        """What a forecast begins with."""
        return Pace(trial_s=self.trial_s, start_s=self.start_s)

    @property
    def about(self) -> str:
        """How an estimate of time is to be read: a guess leaves out more than it puts in."""
        return "about" if self.trials else "at least"

    @property
    def words(self) -> str:
        """What an estimate rests on."""
        if self.trials:
            return f"measured on {self.trials} stored trials of this model and protocol"
        return "guessed: no trial of this model and protocol is stored"


def stored_pace(plan: Plan, store: Store) -> StoredPace:
    """Of the newest runs of the same kind; a run that cannot be read teaches nothing."""
    lasted: list[float] = []
    starts: list[float] = []
    sizes: list[int] = []
    for run in _alike(plan, store):
        measured = [d for d in run.documents() if d.get("state") in ("ok", "invalid")]
        lasted += [float(str(d["duration_s"])) for d in measured if d.get("duration_s")]
        starts += _start_times(measured)
        names = [str(d["trial_id"]) for d in measured[: WEIGHED - len(sizes)]]
        sizes += [_weight(run.folder / "trials" / name) for name in names]
    return StoredPace(
        trials=len(lasted),
        trial_s=statistics.median(lasted) if lasted else None,
        start_s=statistics.median(starts) if starts else None,
        trial_bytes=statistics.median(sizes) if sizes else None,
    )


def _alike(plan: Plan, store: Store) -> list[Run]:
    wanted = _kind(plan.document())
    found = []
    for run_id in reversed(store.run_ids()[-LOOKED_AT:]):
        try:
            run = store.run(run_id)
        except StoreError:
            continue
        if _kind(run.plan) == wanted:
            found.append(run)
    return found


def _kind(document: Mapping[str, object]) -> tuple[object, ...]:
    engine = document.get("engine")
    model = engine.get("model") if isinstance(engine, Mapping) else None
    return document.get("target"), model, document.get("protocol"), document.get("simulation")


def _start_times(documents: Sequence[Mapping[str, object]]) -> list[float]:
    """Seconds between neighbours in time that ran on different engines."""
    found = []
    for before, after in itertools.pairwise(documents):
        one, other = _point_engine(before), _point_engine(after)
        gap_s = _began(after) - _began(before) - float(str(before.get("duration_s") or 0.0))
        if one != other and gap_s > 0:
            found.append(gap_s)
    return found


def _point_engine(document: Mapping[str, object]) -> object:
    point = document.get("point")
    return point.get("engine") if isinstance(point, Mapping) else None


def _began(document: Mapping[str, object]) -> float:
    """Wall time: good enough for a forecast, and for nothing else."""
    return datetime.fromisoformat(str(document["started_utc"])).timestamp()


def _weight(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
