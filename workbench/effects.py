"""What a comparison rests on: the values of both arms at one point, in blocks where they have them.

Repeat i of A is paired with repeat i of B where both stand in one run, whose passes are
interleaved, or were asked the same prompts by the same seed; otherwise the arms stand apart. An
arm of one repeat is resampled inside, which says nothing of other runs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from experiments.identity import seed_of
from experiments.resampling import COVERAGE, Effect, drawn_effect, paired_effect, unpaired_effect
from workbench.arms import Arm
from workbench.pareto import Values
from workbench.point_draws import resampled_trial
from workbench.repeats import TRIAL_IDS, values_by_repeat
from workbench.stored_run import Run


class Basis(StrEnum):
    """What an interval of a ratio rests on."""

    PAIRED = "repeats in pairs"
    APART = "repeats apart"
    WITHIN_RUN = "within-run"
    NOTHING = "no interval"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One metric at one pair of points."""

    a: Values  # [repeats]; of both arms in the same order where they are paired
    b: Values
    basis: Basis
    blocks: tuple[int, ...]  # repeat numbers of the pairs
    draws: tuple[Values, Values] | None = None  # of single repeats
    reason: str = ""  # why nothing can be said


def effect(measured: Measured, *, coverage: float = COVERAGE) -> Effect | None:
    """B over A with its interval; None where the metric is missing or has no ratio."""
    if measured.basis is Basis.NOTHING:
        return None
    if measured.basis is Basis.WITHIN_RUN:
        assert measured.draws is not None
        return drawn_effect(*measured.draws, float(measured.b[0] / measured.a[0]))
    compute = paired_effect if measured.basis is Basis.PAIRED else unpaired_effect
    return compute(measured.a, measured.b, coverage=coverage)


def together(each: Sequence[Measured]) -> Measured:
    """Several points as one: the geometric mean over the points, block by block.

    Points that lack the metric are left out, and so are repeats that not all points have.
    NOTHING where too little is common.
    """
    told = [one for one in each if one.basis is not Basis.NOTHING]
    if not told:
        return _nothing(each[0].reason if each else "no point has a partner")
    if len({one.basis for one in told}) > 1:
        return _nothing("some points have one repeat and some have several")
    told = _common_blocks(told) if told[0].basis is Basis.PAIRED else told
    if not told:
        return _nothing("the points have no two repeats in common")
    first = told[0]
    draws = None
    if first.draws is not None:
        draws = (_geometric([d.draws[0] for d in told if d.draws is not None]),
                 _geometric([d.draws[1] for d in told if d.draws is not None]))  # fmt: skip
    return Measured(
        a=_geometric([one.a for one in told]),
        b=_geometric([one.b for one in told]),
        basis=first.basis,
        blocks=first.blocks,
        draws=draws,
    )


def _common_blocks(told: Sequence[Measured]) -> list[Measured]:
    """The same with the blocks that all points have; empty for fewer than two."""
    common = sorted(set.intersection(*(set(one.blocks) for one in told)))
    if len(common) < 2:
        return []
    kept = [[one.blocks.index(block) for block in common] for one in told]
    return [
        dataclasses.replace(one, a=one.a[rows], b=one.b[rows], blocks=tuple(common))
        for one, rows in zip(told, kept, strict=True)
    ]


def _geometric(rows: Sequence[Values]) -> Values:
    length = min(map(len, rows))
    return np.exp(np.mean([np.log(row[:length]) for row in rows], axis=0))


class Reader:
    """Reads what both arms measured at pairs of points; each trial once."""

    def __init__(self, a: Arm, b: Arm) -> None:
        self._arms = (a, b)
        self._numbers = [repeat_numbers(arm.run) for arm in (a, b)]
        self._paired = _same_prompts(a.run, b.run)
        self._resampled: dict[tuple[int, str], Mapping[str, Values]] = {}

    def measured(self, rows: tuple[int, int], metric: str) -> Measured:
        """One metric at a pair of points, given by their rows."""
        cells = [self._cell(side, row, metric) for side, row in enumerate(rows)]
        values = [math.nan if cell is None else float(str(cell)) for cell in cells]
        for side, value in enumerate(values):
            if value != value:
                told = self._cell(side, rows[side], f"{metric}.reason")
                why = told if isinstance(told, str) else "not measured"
                return _nothing(f"missing in {'AB'[side]}: {why}")
            if not value > 0:
                return _nothing(f"{'AB'[side]} has {value:g}, of which there is no ratio")
        ids = [self._by_repeat(side, row) for side, row in enumerate(rows)]
        common = tuple(sorted(ids[0].keys() & ids[1].keys()))
        if self._paired and len(common) > 1:
            return self._blocks(ids, metric, (common, common), Basis.PAIRED)
        if min(map(len, ids)) > 1:
            return self._blocks(ids, metric, (tuple(ids[0]), tuple(ids[1])), Basis.APART)
        return self._single(ids, metric, values)

    def _cell(self, side: int, row: int, column: str) -> object:
        """None where the points have no such column."""
        points = self._arms[side].points
        return points[column].iat[row] if column in points.columns else None

    def _by_repeat(self, side: int, row: int) -> dict[int, str]:
        trial_ids: tuple[str, ...] = self._arms[side].points[TRIAL_IDS].iat[row]
        return {self._numbers[side][trial_id]: trial_id for trial_id in trial_ids}

    def _blocks(
        self,
        ids: list[dict[int, str]],
        metric: str,
        repeats: tuple[tuple[int, ...], tuple[int, ...]],
        basis: Basis,
    ) -> Measured:
        values = [
            values_by_repeat(arm.run, [found[k] for k in chosen], [metric])[:, 0]
            for arm, found, chosen in zip(self._arms, ids, repeats, strict=True)
        ]
        if not all(np.isfinite(arm).all() and (arm > 0).all() for arm in values):
            return _nothing("a repeat lacks it, or has none to take a ratio of")
        blocks = repeats[0] if basis is Basis.PAIRED else ()
        return Measured(a=values[0], b=values[1], basis=basis, blocks=blocks)

    def _single(self, ids: list[dict[int, str]], metric: str, values: list[float]) -> Measured:
        """One repeat on a side: draws inside the first repeat of each."""
        firsts = [next(iter(found.values())) for found in ids]
        drawn = [self._draws(side, trial_id).get(metric) for side, trial_id in enumerate(firsts)]
        a, b = (np.array([value]) for value in values)
        if drawn[0] is None or drawn[1] is None:
            reason = "one repeat, with too few independent requests for an interval"
            return Measured(a=a, b=b, basis=Basis.NOTHING, blocks=(), reason=reason)
        length = min(map(len, drawn))
        draws = (drawn[0][:length], drawn[1][:length])
        return Measured(a=a, b=b, basis=Basis.WITHIN_RUN, blocks=(), draws=draws)

    def _draws(self, side: int, trial_id: str) -> Mapping[str, Values]:
        """Arms that were asked the same share their seed, so that requests are drawn in pairs."""
        key = (side, trial_id)
        if key not in self._resampled:
            seed = seed_of("arms", 0 if self._paired else side)
            record = self._arms[side].run.trial(trial_id)
            self._resampled[key] = resampled_trial(record, seed=seed)
        return self._resampled[key]


def _nothing(reason: str) -> Measured:
    empty = np.empty(0)
    return Measured(a=empty, b=empty, basis=Basis.NOTHING, blocks=(), reason=reason)


def repeat_numbers(run: Run) -> dict[str, int]:
    """The repeat of every stored trial by its id."""
    return {str(item["trial_id"]): int(str(item["repeat"])) for item in run.documents()}


def _same_prompts(a: Run, b: Run) -> bool:
    """One run, or two of one seed: repeat i was asked the same on both sides."""
    return a.run_id == b.run_id or a.plan.get("seed") == b.plan.get("seed")
