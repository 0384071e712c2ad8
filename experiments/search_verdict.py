"""What a search found: the best point within every limit, or which limit no point met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.outcome import Outcome
from experiments.records import AxisValue, TrialId
from experiments.search_spec import Limit, SearchSpec

_UNKNOWN = float("inf")


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One trial of a search."""

    trial_id: TrialId
    axes: Mapping[str, AxisValue]
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class SearchVerdict:
    """`best` is the answer; None where no point meets every limit."""

    spec: SearchSpec
    tried: int
    sound: int  # of them, those whose numbers may be used
    best: Tried | None
    nearest: Tried | None  # without an answer, the point that exceeds its worst limit least
    tried_trials: tuple[Tried, ...]
    met: Mapping[str, int]  # limit -> sound trials that meet it

    @property
    def never_met(self) -> list[str]:
        """The limits that no sound trial meets."""
        return [limit for limit, count in self.met.items() if not count]


def verdict(spec: SearchSpec, tried: Sequence[Tried]) -> SearchVerdict:
    """Ties go to what was tried first. Only sound trials that measured the goal count."""
    sound = [one for one in tried if one.outcome.sound and spec.goal in one.outcome.values]
    sign = 1 if spec.maximize is not None else -1
    candidates = [one for one in sound if all(_holds(limit, one) for limit in spec.limits)]
    return SearchVerdict(
        spec=spec,
        tried=len(tried),
        tried_trials=tuple(tried),
        sound=len(sound),
        best=max(candidates, key=lambda one: sign * _goal(spec, one), default=None),
        nearest=None if candidates else min(sound, key=lambda t: excess(spec, t), default=None),
        met={str(limit): sum(_holds(limit, one) for one in sound) for limit in spec.limits},
    )


def broken(spec: SearchSpec, tried: Tried) -> list[str]:
    """The limits that a trial with sound numbers does not meet; none of another trial."""
    if not tried.outcome.sound:
        return []
    return [str(limit) for limit in spec.limits if not _holds(limit, tried)]


def excess(spec: SearchSpec, tried: Tried) -> float:
    """How far a trial is beyond its worst limit, as a share of it; infinite if a number lacks."""
    found = [tried.outcome.values.get(limit.metric) for limit in spec.limits]
    each = (
        _UNKNOWN if value is None else limit.excess(value)
        for limit, value in zip(spec.limits, found, strict=True)
    )
    return max(each, default=0.0)


def _holds(limit: Limit, tried: Tried) -> bool:
    return limit.holds(tried.outcome.values.get(limit.metric))


def _goal(spec: SearchSpec, tried: Tried) -> float:
    return tried.outcome.values[spec.goal]
