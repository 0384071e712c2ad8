"""Whether a bundle can be measured again here, and whether it then says the same.

    with opened(Path("report.zip")) as bundled:
        for run in ...:
            found = replan(run, store)       # same trial ids, or what differs and why
            again = ...                      # measure found.outlook
            compared = reproduction(run, again, tolerance=0.1)

A trial id is a hash of everything that a number depends on but the machine: equal ids mean that
the same is measured. What the machine differs in is told beside them, never judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, cast

import numpy as np

from experiments.plan import load_plan
from experiments.records import Point
from workbench.catalogue import METRICS
from workbench.compare import Comparison, compare
from workbench.compare_words import Delta, change_words, range_words
from workbench.effects import Basis
from workbench.figures_text import number, value_text
from workbench.provenance import manifest
from workbench.report_facts import flat
from workbench.runs import Outlook, outlook
from workbench.stored_run import attempt

if TYPE_CHECKING:
    from workbench.store import Run, Store

TOLERANCE = 0.1
HELD = (
    "prefill_tok_s", "output_tok_s_device", "tok_s_user", "ttft_s_p50", "tpot_s_p50", "e2e_s_p50",
    "acceptance_length",
)  # fmt: skip
"""Metrics that a reproduction is judged by."""
PLACES = frozenset({"model", "path"})  # where things are, not what they are
MOMENTARY = frozenset(
    {
        *("disk_free_bytes", "load_average", "processes", "memory_available_bytes", "cpu_mhz_now"),
        *("memory_used_bytes", "temperature_c", "sm_clock_mhz", "memory_clock_mhz"),
        *("throttle_reasons", "health", "engine_settings"),
    }
)
"""Facts of the environment that differ from one moment to the next, or that trial ids hold."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One fact in the bundle and here."""

    name: str
    bundled: str
    here: str


@dataclass(frozen=True, kw_only=True)
class Replan:
    """A bundled run planned again on this machine."""

    run_id: str
    outlook: Outlook = field(repr=False)
    same: int  # trials whose id is in the bundle
    bundled: tuple[str, ...]  # ids that would not be measured here
    here: tuple[str, ...]  # ids that are not in the bundle
    causes: tuple[Change, ...]  # why ids differ: code, checkpoint, what is asked
    environment: tuple[Change, ...]

    @property
    def identical(self) -> bool:
        """True where the same would be measured."""
        return not self.bundled and not self.here


class ReproducedState(StrEnum):
    """How a number came out when it was measured again."""

    REPRODUCED = "reproduced"  # within the tolerance, interval and all
    DIFFERS = "differs"  # the whole interval over repeats is beyond it
    UNDECIDED = "undecided"
    NOT_JUDGED = "not judged"  # missing on a side, or one repeat, which says nothing of others


@dataclass(frozen=True, kw_only=True)
class Reproduced:
    """One metric over all points that were measured twice; `ratio` is new over bundled.

    Of several points `bundled` and `here` are geometric means; None where a point has no value.
    """

    metric: str
    bundled: float | None
    here: float | None
    ratio: float | None
    low: float | None
    high: float | None
    state: ReproducedState
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A run measured again and held against its bundle."""

    comparison: Comparison = field(repr=False)
    rows: tuple[Reproduced, ...]
    equal_outputs: int  # greedy answers that are equal token for token
    asked_outputs: int  # that both sides were asked

    @property
    def failed(self) -> bool:
        """True where a number differs beyond doubt."""
        return any(row.state is ReproducedState.DIFFERS for row in self.rows)


def replan(run: Run, store: Store, *, model: str | None = None) -> Replan:
    """Plan a bundled run here; `model` says where its checkpoint lies, if elsewhere.

    PlanError, WorkloadError or CheckpointError where it cannot be planned at all, UsageError for a
    run that was imported.
    """
    run.check_measured_here()
    plan = load_plan(run.plan)
    found = outlook(plan if model is None else plan.with_engine(model=model), store)
    stored = {attempt(str(name))[0] for name in run.trial_ids()}
    known = {trial.trial_id for trial in found.trials}
    whole = len(known) == found.agenda.at_most  # else the rest follows from what is measured
    bundled = tuple(sorted(stored - known)) if whole else ()
    here = tuple(sorted(known - stored)) if _is_whole(run) else ()
    return Replan(
        run_id=run.run_id,
        outlook=found,
        same=len(known & stored),
        bundled=bundled,
        here=here,
        causes=_causes(run, found) if bundled or here else (),
        environment=_environment(run, found, store),
    )


def _is_whole(run: Run) -> bool:
    """Whether the run holds every trial that its plan asked for."""
    return len(run.documents()) >= run.planned


def _causes(run: Run, found: Outlook) -> tuple[Change, ...]:
    """What trial ids are made of, where it differs."""
    pairs = {
        "code": (run.code_version, found.code_version),
        "checkpoint": (run.checkpoint_fingerprint, found.fingerprint),
    }
    changes = [_change(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1]]
    return (*changes, *_asked(run, found))


def _asked(run: Run, found: Outlook) -> list[Change]:
    """Settings and workload fields that differ between points of the same axes."""
    planned = {_axes(trial.point.axes): trial.point for trial in found.trials}
    told: dict[str, Change] = {}
    for document in run.documents():
        point = cast("Mapping[str, Mapping[str, object]]", document["point"])
        twin = planned.get(_axes(point["axes"]))
        if twin is not None:
            told |= {change.name: change for change in _fields(point, twin)}
    return [told[name] for name in sorted(told)]


def _fields(point: Mapping[str, Mapping[str, object]], twin: Point) -> list[Change]:
    found = []
    for part, here in (("engine", twin.engine), ("workload", twin.workload)):
        before = point[part]
        for name in sorted({*before, *here} - PLACES):
            if before.get(name) != here.get(name):
                found.append(_change(f"{part}.{name}", before.get(name), here.get(name)))
    return found


def _axes(axes: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value_text(value)) for name, value in axes.items()))


def _environment(run: Run, found: Outlook, store: Store) -> tuple[Change, ...]:
    tokenizers = sorted({str(trial.facts.tokenizer_hash) for trial in found.trials})
    here = flat(manifest(tokenizers=tokenizers, folder=store.path))
    before = flat(run.environment)
    names = sorted({*before, *here})
    return tuple(
        _change(name, before.get(name), here.get(name))
        for name in names
        if before.get(name) != here.get(name) and MOMENTARY.isdisjoint(name.split("."))
    )


def _change(name: str, bundled: object, here: object) -> Change:
    return Change(name=name, bundled=value_text(bundled), here=value_text(here))


def reproduction(run: Run, again: Run, *, tolerance: float = TOLERANCE) -> Reproduction:
    """Hold `again` against the bundled run; differences of the machine do not stand in the way.

    ComparisonError where no point was measured on both sides.
    """
    first = compare(run, again)
    blocked = [one.name for one in first.blocked]
    found = compare(run, again, accept=blocked) if blocked else first
    names = [name for name in HELD if name in found.metrics]
    equal, asked = _outputs(run, again)
    return Reproduction(
        comparison=found,
        rows=tuple(_reproduced(found, name, tolerance) for name in names),
        equal_outputs=equal,
        asked_outputs=asked,
    )


def _reproduced(comparison: Comparison, metric: str, tolerance: float) -> Reproduced:
    found = comparison.verdict(metric)
    state = _state(found, tolerance)
    told = METRICS[metric].label
    bundled, here = (_mean_over_points(comparison, metric, side) for side in (0, 1))
    if found.ratio is None:
        sentence = f"{told}: {found.reason}"
    else:
        pair = f"{number(bundled)} in the bundle, {number(here)} here"
        sentence = f"{told}: {pair}, {change_words(found.ratio)}{_spread(found)}: {state}"
    return Reproduced(
        metric=metric, bundled=bundled, here=here, ratio=found.ratio, low=found.low,
        high=found.high, state=state, sentence=f"{sentence} (tolerance {tolerance * 100:g} %)",
    )  # fmt: skip


def _mean_over_points(comparison: Comparison, metric: str, side: int) -> float | None:
    """What the matched points of a side have, as one: their geometric mean."""
    arm = (comparison.a, comparison.b)[side]
    if metric not in arm.points:
        return None
    rows = [pair[side] for pair in comparison.matches.rows]
    values = arm.points[metric].to_numpy(dtype=float)[rows]
    if not (np.isfinite(values) & (values > 0)).all():
        return None
    return float(np.exp(np.log(values).mean()))


def _state(found: Delta, tolerance: float) -> ReproducedState:
    """A change within one run shows neither that another differs nor that it is the same."""
    if found.ratio is None or found.basis in (Basis.WITHIN_RUN, Basis.NOTHING):
        return ReproducedState.NOT_JUDGED
    least, most = 1 / (1 + tolerance), 1 + tolerance
    low, high = found.low, found.high
    if low is None or high is None:
        return ReproducedState.UNDECIDED
    if least <= low and high <= most:
        return ReproducedState.REPRODUCED
    if high < least or low > most:
        return ReproducedState.DIFFERS
    return ReproducedState.UNDECIDED


def _spread(found: Delta) -> str:
    if found.low is None or found.high is None:
        return f" ({found.reason or 'no interval'})"
    return f" ({range_words(found.low, found.high)}, {found.basis})"


def _outputs(run: Run, again: Run) -> tuple[int, int]:
    """Greedy outputs that are equal, of those that the same trials were asked on both sides."""
    before, after = (_fingerprints(side) for side in (run, again))
    common = before.keys() & after.keys()
    return sum(before[key] == after[key] for key in common), len(common)


def _fingerprints(run: Run) -> dict[tuple[object, ...], str]:
    """What came, by point, repeat and what was asked."""
    found: dict[tuple[object, ...], str] = {}
    for document in run.documents():
        point = cast("Mapping[str, Mapping[str, object]]", document["point"])
        key = (_axes(point["axes"]), document["repeat"])
        for text in cast("Sequence[str]", document.get("outputs") or ()):
            asked, _, came = text.partition("-")
            found[*key, asked] = came
    return found
