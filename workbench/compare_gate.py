"""Whether a change may pass: a regression is called one only where the interval leaves no doubt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from experiments.resampling import COVERAGE, Effect, needed_repeats
from workbench.catalogue import METRICS
from workbench.compare_words import LEAST_REPEATS, change_words, needed_words
from workbench.effects import Basis, Measured, effect, together
from workbench.errors import UsageError

ALL_POINTS = "all points"


class GateState(StrEnum):
    """How one row of a gate came out."""

    REGRESSION = "regression"  # the whole interval is beyond the threshold, on the bad side
    PASSED = "passed"  # the whole interval is on the good side of it
    UNDECIDED = "undecided"  # the interval holds the threshold
    NOT_JUDGED = "not judged"  # one repeat, or no ratio


@dataclass(frozen=True, kw_only=True)
class GateRow:
    """One matched point, or all of them, against the threshold."""

    where: str
    state: GateState
    ratio: float | None
    low: float | None
    high: float | None
    coverage: float  # of low and high
    needed_repeats: int | None  # to tell a change of the threshold; None: not known
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Gated:
    """The rows of a gate; the first is that of all points where there are several."""

    metric: str
    threshold: float
    rows: tuple[GateRow, ...]

    @property
    def failed(self) -> bool:
        """True where a regression is beyond doubt."""
        return any(row.state is GateState.REGRESSION for row in self.rows)


def gated(metric: str, points: Sequence[tuple[str, Measured]], threshold: float) -> Gated:
    """Judge `metric` at all points together and at each.

    The rows share a chance of 5 % to be wrong: half for all points together, the other half
    split over the points, so that many points raise no more false alarms than one.
    """
    if not 0 <= threshold < 1:
        raise UsageError(
            f"{threshold:g} is no threshold.", where="--gate", remedy="Use one such as 3% or 0.03."
        )
    if len(points) <= 1:
        rows = [_row(metric, where, m, threshold, COVERAGE) for where, m in points]
    else:
        half = (1 - COVERAGE) / 2
        every = together([measured for _, measured in points])
        rows = [_row(metric, ALL_POINTS, every, threshold, 1 - half)]
        share = 1 - half / len(points)
        rows += [_row(metric, where, m, threshold, share) for where, m in points]
    return Gated(metric=metric, threshold=threshold, rows=tuple(rows))


def _row(metric: str, where: str, measured: Measured, threshold: float, coverage: float) -> GateRow:
    found = effect(measured, coverage=coverage)
    needed = None
    if found is not None and found.scatter is not None:
        needed = needed_repeats(found.scatter, 1 + threshold)
    low, high = (found.low, found.high) if found is not None else (None, None)
    judged = measured.basis in (Basis.PAIRED, Basis.APART)
    more_is_better = METRICS[metric].direction == "max"
    limit = 1 - threshold if more_is_better else 1 + threshold
    state = GateState.NOT_JUDGED
    if judged and low is not None and high is not None:
        bad, good = (high < limit, low > limit) if more_is_better else (low > limit, high < limit)
        state = GateState.REGRESSION if bad else GateState.PASSED if good else GateState.UNDECIDED
    return GateRow(
        where=where,
        state=state,
        ratio=found.ratio if found else None,
        low=low,
        high=high,
        coverage=coverage,
        needed_repeats=needed,
        sentence=_sentence(state, measured, found, limit, needed),
    )


def _sentence(
    state: GateState,
    measured: Measured,
    found: Effect | None,
    limit: float,
    needed: int | None,
) -> str:
    if found is None or found.low is None or found.high is None:
        return measured.reason or "there is no interval"
    spread = f"{change_words(found.low)} to {change_words(found.high)}"
    if state is GateState.NOT_JUDGED:
        return f"{spread} within one run; measure at least {LEAST_REPEATS} repeats"
    if state is GateState.UNDECIDED:
        return f"{spread} holds the threshold {change_words(limit)}; " + needed_words(
            needed, found.repeats, abs(limit - 1)
        )
    beyond = "beyond" if state is GateState.REGRESSION else "on the good side of"
    return f"{spread} is {beyond} the threshold {change_words(limit)}"
