"""Whether a change may pass: a regression is called one only where the interval leaves no doubt.

No doubt is needed either way: where all points together are not judged, or their interval holds
the threshold, the gate is undecided, which is no pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from experiments.resampling import COVERAGE, Effect, needed_repeats
from workbench.catalogue import METRICS
from workbench.compare_words import LEAST_REPEATS, change_words, needed_words, range_words
from workbench.effects import Basis, Measured, effect, together
from workbench.errors import UsageError
from workbench.figures_text import plural
from workbench.spreads import too_wide

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

    @property
    def decided(self) -> bool:
        """False where nothing is shown of all points together, and of none a regression."""
        return self.failed or bool(self.rows and self.rows[0].state is GateState.PASSED)

    @property
    def summary(self) -> str:
        """How the gate came out, and how many points say so."""
        points = self.rows[1:] if len(self.rows) > 1 else self.rows
        counts = [(state, sum(row.state is state for row in points)) for state in GateState]
        told = ", ".join(f"{count} {state}" for state, count in counts if count)
        result = (
            "a regression" if self.failed
            else "no regression beyond the gate" if self.decided
            else "undecided, which is no pass"
        )  # fmt: skip
        return f"gate {self.threshold * 100:g} %: {result}; {plural(len(points), 'point')}: {told}"


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
        seen = f"{change_words(found.ratio)}; " if found is not None else ""
        return f"{seen}{measured.reason or 'there is no interval'}"
    spread = range_words(found.low, found.high)
    if state is GateState.NOT_JUDGED:
        basis = "" if too_wide(found.low, found.high) else " within one run"
        within = f"{change_words(found.ratio)} ({spread}{basis})"
        return f"{within}; measure at least {LEAST_REPEATS} repeats"
    limit_words = change_words(limit)
    if state is GateState.UNDECIDED:
        holds = "" if too_wide(found.low, found.high) else " holds the threshold " + limit_words
        return f"{spread}{holds}; " + needed_words(needed, found.repeats, abs(limit - 1))
    beyond = "beyond" if state is GateState.REGRESSION else "on the good side of"
    whole = "the whole interval" if too_wide(found.low, found.high) else spread
    return f"{whole} is {beyond} the threshold {limit_words}"
