"""What a sweep has learnt not to try: loads that found no room, engines that do not live.

Replaying stored outcomes teaches the same as measuring them did.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from experiments.outcome import Outcome
from experiments.records import AxisValue, FailureKind, Point, TrialState
from experiments.space import PlannedTrial

MOST_DEATHS = 3
"""Consecutive deaths of one engine configuration after which its other trials are skipped."""

ENGINE_ROOM = frozenset({
    "max_num_seqs", "max_num_batched_tokens", "max_model_len", "draft_length",
    "replay_keep_tokens", "max_backtrack_tokens", "swap_tokens",
})  # fmt: skip
"""Engine fields of which a larger value never needs less room."""
NO_ROOM = frozenset({"prefill_chunk_tokens"})
"""Engine fields that follow from others by default and take no room beyond theirs."""
LOAD_ROOM = frozenset({
    "batch_size", "concurrency", "max_concurrency", "token_budget", "prompt_tokens",
    "output_tokens", "turns",
})  # fmt: skip
"""The same of loads and workloads."""
_DERIVED = frozenset({"content_hash", "name"})  # follow from lengths, or mean nothing


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a trial is not begun, and what its record says it is."""

    state: TrialState
    reason: str
    failure: FailureKind | None = None


class Casebook:
    """Told of every outcome in the order of the agenda."""

    def __init__(self) -> None:
        self._unstartable: dict[str, str] = {}  # engine -> why
        self._deaths: dict[str, int] = defaultdict(int)  # engine -> deaths since it last lived
        self._full: list[PlannedTrial] = []  # found no room under this load
        self._too_large: list[PlannedTrial] = []  # the engine itself found none

    def learn(self, trial: PlannedTrial, outcome: Outcome) -> None:
        """What became of a trial."""
        key = trial.engine_key
        if outcome.state in (TrialState.OK, TrialState.INVALID):
            self._deaths[key] = 0
        match outcome.failure:
            case FailureKind.CRASH:
                self._deaths[key] += outcome.attempts
            case FailureKind.START:
                self._unstartable.setdefault(key, outcome.reason or "the engine did not start")
            case FailureKind.CAPACITY:
                self._full.append(trial)
            case FailureKind.START_CAPACITY:
                self._too_large.append(trial)
            case _:
                pass

    def refusal(self, trial: PlannedTrial) -> Refusal | None:
        """Why the trial is not worth beginning; None: it is."""
        if trial.engine_key in self._unstartable:
            reason = self._unstartable[trial.engine_key]
            return Refusal(state=TrialState.FAILED, reason=reason, failure=FailureKind.START)
        reason = self._no_room(trial) or self._dies(trial)
        return Refusal(state=TrialState.SKIPPED, reason=reason) if reason else None

    def _no_room(self, trial: PlannedTrial) -> str | None:
        for known in self._too_large:
            if _needs_as_much(trial.point.engine, known.point.engine, ENGINE_ROOM):
                return f"the engine already found no room {_as(known, ENGINE_ROOM)}"
        for known in self._full:
            if not _needs_as_much(trial.point.engine, known.point.engine, ENGINE_ROOM):
                continue
            if _needs_as_much(_asked(trial.point), _asked(known.point), LOAD_ROOM):
                return (
                    f"{_as(known, ENGINE_ROOM | LOAD_ROOM)} already found no room, and this "
                    "asks for at least as much"
                )
        return None

    def _dies(self, trial: PlannedTrial) -> str | None:
        deaths = self._deaths[trial.engine_key]
        if deaths < MOST_DEATHS:
            return None
        return f"this engine configuration died {deaths} times in a row"


def _asked(point: Point) -> dict[str, AxisValue]:
    return {k: v for k, v in point.workload.items() if k not in _DERIVED}


def _needs_as_much(
    new: dict[str, AxisValue], known: dict[str, AxisValue], room: frozenset[str]
) -> bool:
    """True where `new` is `known` but for fields of `room`, none of which is smaller."""
    if new.keys() != known.keys():
        return False
    compared = known.keys() - NO_ROOM
    return all(_at_least(new[k], known[k]) if k in room else new[k] == known[k] for k in compared)


def _at_least(new: AxisValue, known: AxisValue) -> bool:
    if isinstance(new, int | float) and isinstance(known, int | float):
        return new >= known
    return new == known


def _as(trial: PlannedTrial, room: frozenset[str]) -> str:
    """The trial by what it needs room for: `batch_size 4, draft_length 5`."""
    point = trial.point
    values = {**point.engine, **point.workload}
    named = [name for name in point.axes if name in room] or [n for n in values if n in room]
    return ", ".join(f"{name} {values[name]}" for name in named if values[name] is not None)
