"""What a comparison rests on: the values of both arms at one point, in blocks where they have them.

Repeat i of A is paired with repeat i of B where both stand in one run, whose passes are
interleaved, or were asked the same prompts by the same seed; otherwise the arms stand apart. An
arm of one repeat is resampled inside, which says nothing of other runs. The other arm is then
drawn from its repeats, if it has several: ratio and interval rest on all that was measured.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from experiments.identity import seed_of
from experiments.resampling import (
    COVERAGE,
    Effect,
    drawn_effect,
    draws_over_repeats,
    paired_effect,
    unpaired_effect,
)
from workbench.arms import Arm
from workbench.pareto import Values
from workbench.point_draws import DRAWS_WITHIN, resampled_trial
from workbench.repeats import TRIAL_IDS, values_by_repeat
from workbench.stored_run import Run

MOST_READ = 40
"""Trials whose requests one comparison reads: without several repeats nothing is judged anyway."""
LACKING = "a repeat lacks it, or has none to take a ratio of"
IMPORTED = "imported, so there are no requests to draw from"
UNREAD = f"one repeat, and the requests of no more than {MOST_READ} trials are read"


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
    draws: tuple[Values, Values] | None = None  # where an arm has one repeat
    reason: str = ""  # why there is no interval

    @property
    def has_ratio(self) -> bool:
        """True where both arms have a value, though there may be no interval."""
        return len(self.a) > 0 and len(self.b) > 0


def effect(measured: Measured, *, coverage: float = COVERAGE) -> Effect | None:
    """B over A with its interval; None where the metric is missing or has no ratio."""
    if not measured.has_ratio:
        return None
    if measured.basis is Basis.NOTHING:
        ratio = float(measured.b[0] / measured.a[0])
        return Effect(ratio=ratio, low=None, high=None, repeats=1, scatter=None)
    if measured.basis is Basis.WITHIN_RUN:
        assert measured.draws is not None
        return drawn_effect(*measured.draws, float(measured.b[0] / measured.a[0]))
    compute = paired_effect if measured.basis is Basis.PAIRED else unpaired_effect
    return compute(measured.a, measured.b, coverage=coverage)


def together(each: Sequence[Measured]) -> Measured:
    """Several points as one: the geometric mean over the points, block by block.

    Points that lack the metric are left out, and so are repeats that not all points have, and
    points without an interval where others have several repeats. Of single repeats there is an
    interval only where every point has one.
    """
    valued = [one for one in each if one.has_ratio]
    if not valued:
        return _nothing(each[0].reason if each else "no point has a partner")
    told = [one for one in valued if one.basis is not Basis.NOTHING]
    bases = {one.basis for one in told}
    if len(bases) > 1:
        return _values_alone(valued, "some points have one repeat and some have several")
    if not told or (bases == {Basis.WITHIN_RUN} and len(told) < len(valued)):
        return _values_alone(valued, next(one.reason for one in valued if one.reason))
    told = _common_blocks(told) if told[0].basis is Basis.PAIRED else told
    if not told:
        return _values_alone(valued, "the points have no two repeats in common")
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


def _values_alone(valued: Sequence[Measured], reason: str) -> Measured:
    """The geometric means over points and repeats, without an interval."""
    a, b = (
        _geometric([np.exp([np.log(arm).mean()]) for arm in arms])
        for arms in ([one.a for one in valued], [one.b for one in valued])
    )
    return _alone(a, b, reason)


def _alone(a: Values, b: Values, reason: str) -> Measured:
    return Measured(a=a, b=b, basis=Basis.NOTHING, blocks=(), reason=reason)


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
        self._resampled: dict[tuple[int | str, ...], Mapping[str, Values]] = {}

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
        if min(map(len, ids)) < 2:
            return self._single(ids, metric, values)
        if self._paired and len(common) > 1:
            found = self._blocks(ids, metric, (common, common), Basis.PAIRED)
        else:
            found = self._blocks(ids, metric, (tuple(ids[0]), tuple(ids[1])), Basis.APART)
        return found or _alone(*(np.array([value]) for value in values), self._why(rows, metric))

    def _why(self, rows: tuple[int, int], metric: str) -> str:
        """What the points say of an interval that they lack."""
        told = [self._cell(side, row, f"{metric}.reason") for side, row in enumerate(rows)]
        return next((one for one in told if isinstance(one, str)), LACKING)

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
    ) -> Measured | None:
        """None where a repeat says nothing of its own, or has none to take a ratio of."""
        values = [
            values_by_repeat(arm.run, [found[k] for k in chosen], [metric])[:, 0]
            for arm, found, chosen in zip(self._arms, ids, repeats, strict=True)
        ]
        if not all(np.isfinite(arm).all() and (arm > 0).all() for arm in values):
            return None
        blocks = repeats[0] if basis is Basis.PAIRED else ()
        return Measured(a=values[0], b=values[1], basis=basis, blocks=blocks)

    def _single(self, ids: list[dict[int, str]], metric: str, values: list[float]) -> Measured:
        """One repeat on a side: draws inside it, and over the repeats of the other."""
        a, b = (np.array([value]) for value in values)
        if not self._may_read(ids):
            return _alone(a, b, UNREAD)
        first, second = (
            self._draws(side, tuple(found.values()), metric, values[side])
            for side, found in enumerate(ids)
        )
        if any(arm.run.origin is not None for arm in self._arms):
            return _alone(a, b, IMPORTED)
        if first is None or second is None:
            return _alone(a, b, "one repeat, with too few independent requests for an interval")
        length = min(len(first), len(second))
        draws = (first[:length], second[:length])
        return Measured(a=a, b=b, basis=Basis.WITHIN_RUN, blocks=(), draws=draws)

    def _may_read(self, ids: list[dict[int, str]]) -> bool:
        """Whether the trials of one repeat are read already, or there is room for them."""
        lone = {(side, *found.values()) for side, found in enumerate(ids) if len(found) == 1}
        return len(self._resampled.keys() | lone) <= MOST_READ

    def _draws(
        self, side: int, trial_ids: tuple[str, ...], metric: str, value: float
    ) -> Values | None:
        """Arms that were asked the same share their seed, so that requests are drawn in pairs."""
        run, seed = self._arms[side].run, seed_of("arms", 0 if self._paired else side)
        if len(trial_ids) > 1:
            each = values_by_repeat(run, trial_ids, [metric])
            known = bool(np.isfinite(each).all() and (each > 0).all())
            center = np.array([value])
            drawn = draws_over_repeats(each, center, draws=DRAWS_WITHIN, seed=seed)[:, 0]
            return drawn if known else None
        key = (side, *trial_ids)
        if key not in self._resampled:
            self._resampled[key] = resampled_trial(run.trial(trial_ids[0]), seed=seed)
        return self._resampled[key].get(metric)


def _nothing(reason: str) -> Measured:
    empty = np.empty(0)
    return Measured(a=empty, b=empty, basis=Basis.NOTHING, blocks=(), reason=reason)


def repeat_numbers(run: Run) -> dict[str, int]:
    """The repeat of every stored trial by its id."""
    return {str(item["trial_id"]): int(str(item["repeat"])) for item in run.documents()}


def _same_prompts(a: Run, b: Run) -> bool:
    """One run, or two of one seed: repeat i was asked the same on both sides."""
    seeds = (a.plan.get("seed"), b.plan.get("seed"))
    return a.run_id == b.run_id or (None not in seeds and seeds[0] == seeds[1])
