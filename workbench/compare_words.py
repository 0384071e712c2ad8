"""What a difference comes to, in words that claim no more than its interval."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from experiments.metric_specs import MetricSpec
from experiments.resampling import Effect, needed_repeats
from workbench.catalogue import METRICS
from workbench.effects import Basis, Measured, effect
from workbench.spreads import TOO_FEW, too_wide

SOUGHT = 0.03
"""The change that a number of needed repeats is told for."""
LEAST_REPEATS = 3
ONE_REPEAT = (
    f"One repeat says nothing of other runs: measure at least {LEAST_REPEATS} repeats of each side."
)

ESTIMATES = (
    "A and B are each side's own estimates: means over its repeats, quantiles of all their "
    "requests. B/A is the geometric mean of what single repeats say, so it need not be B over A."
)


class Verdict(StrEnum):
    """What may be said of B against A."""

    BETTER = "better"
    WORSE = "worse"
    CHANGED = "changed"  # of a metric without a better side
    NONE_SHOWN = "none shown"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, kw_only=True)
class Delta:
    """One metric of B against A."""

    metric: str
    label: str
    unit: str
    direction: str
    a: float | None
    b: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    sentence: str
    repeats: int  # on either side, or blocks
    basis: str
    needed_repeats: int | None  # to see a change of 3 %; None: not known
    points: int  # matched points that it rests on
    reason: str | None  # why there is no ratio, or no interval


def delta(
    metric: str,
    measured: Measured,
    *,
    values: tuple[float, float] | None = None,
    points: tuple[int, int] = (1, 1),
) -> Delta:
    """The verdict on one metric; `values` are those of A and B as tables show them.

    `points`: on how many it rests, of how many that are matched.
    """
    spec = METRICS[metric]
    found = effect(measured)
    needed = None
    if found is not None and found.scatter is not None:
        needed = needed_repeats(found.scatter, 1 + SOUGHT)
    verdict = _verdict(found, measured.basis, spec)
    shown = [None if v is None or v != v else v for v in values or (None, None)]
    return Delta(
        metric=metric,
        label=spec.label,
        unit=spec.unit,
        direction=str(spec.direction),
        a=shown[0],
        b=shown[1],
        ratio=found.ratio if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        verdict=verdict,
        sentence=_sentence(found, measured, spec, verdict, needed) + _share(points),
        repeats=found.repeats if found else 0,
        basis=str(measured.basis),
        needed_repeats=needed,
        points=points[0],
        reason=measured.reason or None,
    )


def _verdict(found: Effect | None, basis: Basis, spec: MetricSpec) -> Verdict:
    if found is None or found.low is None or found.high is None or basis is Basis.WITHIN_RUN:
        return Verdict.NOT_JUDGED
    if found.low <= 1 <= found.high:
        return Verdict.NONE_SHOWN
    if spec.direction == "none":
        return Verdict.CHANGED
    return Verdict.BETTER if (found.ratio > 1) == (spec.direction == "max") else Verdict.WORSE


def _sentence(
    found: Effect | None,
    measured: Measured,
    spec: MetricSpec,
    verdict: Verdict,
    needed: int | None,
) -> str:
    if found is None:
        return f"not judged: {measured.reason}"
    if measured.reason:
        return f"not judged: {change_words(found.ratio)}; {measured.reason}"
    if verdict is Verdict.NOT_JUDGED:
        return f"not judged from one repeat: {change_words(found.ratio)}{_within(found)}"
    if verdict is Verdict.NONE_SHOWN:
        return f"no difference shown ({_range(found)}); {needed_words(needed, found.repeats)}"
    if too_wide(found.low, found.high):
        return f"B is {_word(verdict, spec, found)}; {TOO_FEW} by how much"
    return f"B is {_kind(verdict, spec, found)} ({_magnitudes(found)})"


def _share(points: tuple[int, int]) -> str:
    return "" if points[0] in (0, points[1]) else f"; at {points[0]} of {points[1]} points"


def _kind(verdict: Verdict, spec: MetricSpec, found: Effect) -> str:
    """`faster by 4.1 %`, `slower: 3.2 % more`, `better: 2.0 % less`."""
    size = f"{abs(found.ratio - 1) * 100:.1f} %"
    word = _word(verdict, spec, found)
    if verdict is Verdict.CHANGED or spec.direction == "max":
        return f"{word} by {size}"
    return f"{word}: {size} {'more' if found.ratio > 1 else 'less'}"


def _word(verdict: Verdict, spec: MetricSpec, found: Effect) -> str:
    if verdict is Verdict.CHANGED:
        return "higher" if found.ratio > 1 else "lower"
    timed = spec.unit == "s" or "/s" in spec.unit
    better, worse = ("faster", "slower") if timed else ("better", "worse")
    return better if verdict is Verdict.BETTER else worse


def _magnitudes(found: Effect) -> str:
    """`2.9 to 5.2`: the sizes of the change, smaller first."""
    assert found.low is not None
    assert found.high is not None
    sizes = sorted(abs(edge - 1) * 100 for edge in (found.low, found.high))
    return f"{sizes[0]:.1f} to {sizes[1]:.1f}"


def _within(found: Effect) -> str:
    if found.low is None:
        return ""
    return f" ({_range(found)}{'' if too_wide(found.low, found.high) else ' within the run'})"


def _range(found: Effect) -> str:
    assert found.low is not None
    assert found.high is not None
    return range_words(found.low, found.high)


def range_words(low: float, high: float) -> str:
    """`+2.9 % to +5.2 %`, or that too few repeats say nothing."""
    if too_wide(low, high):
        return TOO_FEW
    return f"{change_words(low)} to {change_words(high)}"


def change_words(ratio: float) -> str:
    """`+4.1 %` for 1.041."""
    return f"{(ratio - 1) * 100:+.1f} %"


def needed_words(needed: int | None, repeats: int, change: float = SOUGHT) -> str:
    """How many repeats it would take to see a change."""
    sought = f"{change * 100:g} %"
    if needed is None:
        return f"no number of repeats up to 1,000 would show {sought}"
    if needed <= repeats:
        return f"{repeats} repeats are enough to see {sought}"
    return f"{needed} repeats would be needed to see {sought}"
