"""Is B really better than A? Two runs, or two selections of points, held against each other.

    c = wb.compare(run_a, run_b)                      # or wb.select(run, draft_length=5)
    c.differences       # tuple[Difference]: name, a, b, severity, sentence, accepted, blocks
    c.blocked           # tuple[Difference] that refuse every delta, unless accept=("driver",)
    c.overall           # DataFrame, a row a metric: all matched points together
    c.points            # DataFrame, a row a matched point and metric
    c.configuration     # DataFrame: setting, a, b, chosen
    c.bases, c.apart    # DataFrames: how another tool came by its numbers, and what only one tells
    c.gate(0.03, "output_tok_s_device")               # Verdict rows for CI (compare_gate)
    c.show()

Rows of `overall` and `points`: metric, label, unit, direction, a, b (None in `overall` of several
points), ratio (b/a), low, high (95 %, or NaN), verdict (better, worse, changed, none shown, not
judged), sentence, repeats, basis (repeats in pairs, repeats apart, within-run, no interval),
needed_repeats (to see 3 %; NaN unknown), points (that it rests on), reason (of no ratio or no
interval); those of `points` begin with `point` (in words), trial_a and trial_b.
While something blocks, `overall`, `points` and `gate` raise ComparisonError.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from workbench.arms import Arm, Matches, matched, setting
from workbench.catalogue import METRICS
from workbench.comparability import Difference, Side, differences
from workbench.compare_bases import apart_table, bases_table, shared_metrics
from workbench.compare_gate import Gated, gated
from workbench.compare_words import Delta, delta
from workbench.effects import Basis, Measured, Reader, together
from workbench.errors import ComparisonError, UsageError
from workbench.stored_run import Run
from workbench.words import point_words

if TYPE_CHECKING:
    import pandas as pd

COMPARED = (
    "prefill_tok_s", "output_tok_s_device", "tok_s_user", "tok_s_user_p1", "ttft_s_p50",
    "ttft_s_p99", "tpot_s_p50", "tpot_s_p99", "itl_s_p99", "e2e_s_p50", "e2e_s_p99", "goodput",
    "acceptance_length", "energy_j_token",
)  # fmt: skip
"""Metrics that a comparison shows unless others are named; those that no point has are left out.

The first that there is leads: of prefill alone the rate of prefill, which no other load has.
"""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What two arms differ in, and what that did. See the module for the tables."""

    a: Arm
    b: Arm
    metrics: tuple[str, ...]
    matches: Matches
    differences: tuple[Difference, ...]
    reader: Reader = field(repr=False)

    @property
    def blocked(self) -> tuple[Difference, ...]:
        """The differences that refuse every delta."""
        return tuple(one for one in self.differences if one.blocks)

    @property
    def bases(self) -> pd.DataFrame:
        """How either side came by each metric that is compared: metric, label, a, b.

        Empty where both sides were measured here.
        """
        return bases_table(self.a, self.b, self.metrics)

    @property
    def apart(self) -> pd.DataFrame:
        """The metrics that only one side tells, so that they cannot be compared: label, why."""
        return apart_table(self.a, self.b, self.metrics)

    @cached_property
    def overall(self) -> pd.DataFrame:
        """One row a metric, over all matched points."""
        import pandas as pd

        self._refuse_blocked()
        return pd.DataFrame([_cells(self.verdict(name)) for name in self.metrics])

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row a matched point and metric."""
        import pandas as pd

        self._refuse_blocked()
        rows = [
            {**self._point_cells(pair), **_cells(self._delta(pair, name))}
            for pair in self.matches.rows
            for name in self.metrics
        ]
        return pd.DataFrame(rows)

    @property
    def configuration(self) -> pd.DataFrame:
        """The settings that differ between matched points: setting, a, b, chosen."""
        import pandas as pd

        notes = {one.name: (one.a, one.b) for one in self.differences}
        for name in self.matches.chosen:
            first, second = (sorted(set(setting(x.points, name) or [])) for x in (self.a, self.b))
            notes[name] = (", ".join(first), ", ".join(second))
        rows = [(n, a, b, n in self.matches.chosen) for n, (a, b) in sorted(notes.items())]
        return pd.DataFrame(rows, columns=["setting", "a", "b", "chosen"])

    def verdict(self, metric: str) -> Delta:
        """One metric over all matched points. ComparisonError while something blocks."""
        self._refuse_blocked()
        if len(self.matches.rows) == 1:
            return self._delta(self.matches.rows[0], metric)
        every = [self.measured(pair, metric) for pair in self.matches.rows]
        whole = together(every)
        told = sum(
            one.has_ratio and (one.basis == whole.basis or whole.basis is Basis.NOTHING)
            for one in every
        )
        return delta(metric, whole, points=(told, len(every)))

    def gate(self, threshold: float, metric: str | None = None) -> Gated:
        """Whether B is worse than A by more than `threshold` (0.03 is 3 %), as CI asks it.

        `metric` None is the first of those compared. UsageError for one without a better side.
        """
        self._refuse_blocked()
        name = metric or self.metrics[0]
        if name not in METRICS or METRICS[name].direction == "none":
            raise UsageError(
                f"{name!r} is no metric of which one side is better.",
                where="--metric",
                remedy="Use one such as output_tok_s_device or ttft_s_p50.",
            )
        each = [(self.point_words(pair), self.measured(pair, name)) for pair in self.matches.rows]
        return gated(name, each, threshold)

    def show(self) -> None:
        """Print the comparison: what differs first, then what that did."""
        from workbench.compare_tables import show_comparison

        show_comparison(self)

    def measured(self, pair: tuple[int, int], metric: str) -> Measured:
        """What one metric of a pair of points rests on."""
        return self.reader.measured(pair, metric)

    def point_words(self, pair: tuple[int, int]) -> str:
        """A matched point in words, without what was chosen to differ."""
        point = self.a.points.iloc[pair[0]]
        names = [f"axis.{name}" for name in self.matches.names]
        return point_words({name: point[name] for name in names if name in point.index})

    def _delta(self, pair: tuple[int, int], metric: str) -> Delta:
        values = [
            float(arm.points.iloc[row].get(metric, float("nan")))
            for arm, row in zip((self.a, self.b), pair, strict=True)
        ]
        return delta(metric, self.measured(pair, metric), values=(values[0], values[1]))

    def _point_cells(self, pair: tuple[int, int]) -> dict[str, object]:
        return {
            "point": self.point_words(pair),
            "trial_a": str(self.a.points["trial_id"].iat[pair[0]]),
            "trial_b": str(self.b.points["trial_id"].iat[pair[1]]),
        }

    def _refuse_blocked(self) -> None:
        if self.blocked:
            names = [one.name for one in self.blocked]
            raise ComparisonError(
                " ".join(one.sentence for one in self.blocked),
                where=f"{self.a.label} against {self.b.label}",
                remedy="A delta would be of that. Measure both sides alike, or pass "
                + " ".join(f"--accept {name}" for name in names)
                + ".",
            )


def compare(
    a: Run | Arm,
    b: Run | Arm,
    *,
    metrics: Sequence[str] | None = None,
    accept: Collection[str] = (),
) -> Comparison:
    """Hold b against a. `accept` names differences that would block and shall not.

    ComparisonError where no point of a has a partner in b and nothing that blocks says why;
    UsageError for a metric nobody knows. What blocks is told by the result, not raised.
    """
    first, second = (Arm(run=side) if isinstance(side, Run) else side for side in (a, b))
    for arm in (first, second):
        if not len(arm.points):
            raise ComparisonError("has no valid point to compare.", where=arm.label)
    found = _matched(first, second, accept)
    sides = [
        Side(run=arm.run, points=arm.points.iloc[[pair[k] for pair in found.rows]])
        if found.rows
        else Side(run=arm.run, points=arm.points)
        for k, arm in enumerate((first, second))
    ]
    told = differences(sides[0], sides[1], chosen=found.chosen, accept=accept)
    if not found.rows and not any(one.blocks for one in told):
        raise _no_pair(first, second)
    return Comparison(
        a=first,
        b=second,
        metrics=_metrics(first, second, metrics),
        matches=found,
        differences=told,
        reader=Reader(first, second),
    )


def _matched(a: Arm, b: Arm, accept: Collection[str]) -> Matches:
    """The pairs. Where none can be made of another tool's points, what differs is told instead."""
    try:
        return matched(a, b, accept=accept)
    except ComparisonError:
        imported = a.run.origin is not None or b.run.origin is not None
        sides = (Side(run=arm.run, points=arm.points) for arm in (a, b))
        if not imported or not any(one.blocks for one in differences(*sides, accept=accept)):
            raise
    return Matches(rows=(), names=(), chosen=frozenset(), alone=(len(a.points), len(b.points)))


def _metrics(a: Arm, b: Arm, wanted: Sequence[str] | None) -> tuple[str, ...]:
    for name in wanted or ():
        if name not in METRICS:
            raise UsageError(f"{name!r} is no metric.", where="--metric")
    if wanted:
        return tuple(wanted)
    if a.run.origin is not None or b.run.origin is not None:
        return shared_metrics(a, b)
    return tuple(
        name
        for name in COMPARED
        if any(name in arm.points and arm.points[name].notna().any() for arm in (a, b))
    )


def _no_pair(a: Arm, b: Arm) -> ComparisonError:
    """Name the settings whose values the arms do not share."""
    names = [str(c).removeprefix("axis.") for c in a.points.columns if str(c).startswith("axis.")]
    apart = []
    for name in names:
        first, second = (set(setting(arm.points, name) or ()) for arm in (a, b))
        if second and not first & second:
            apart.append(f"{name} is {', '.join(sorted(first))} and {', '.join(sorted(second))}")
    return ComparisonError(
        f"no point has a partner on the other side{': ' if apart else ''}{'; '.join(apart)}.",
        where=f"{a.label} against {b.label}",
        remedy="Choose what is to differ, such as RUN:draft_length=0 and RUN:draft_length=5.",
    )


def _cells(found: Delta) -> dict[str, object]:
    return {name: getattr(found, name) for name in found.__dataclass_fields__}
