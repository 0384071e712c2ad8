"""The chosen points measured again: what is left of a front that was picked for its maxima.

The best of many noisy points is partly the luckiest (winner's curse). Fresh repeats with fresh
prompts of the chosen points have no part in the choice, so they alone are unbiased. The new run
names its parent; `confirmation` holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from experiments.identity import seed_of
from experiments.plan import Plan, load_plan
from experiments.records import AxisValue
from experiments.resampling import over_repeats
from workbench.arms import Arm, matched
from workbench.catalogue import METRICS
from workbench.effects import repeat_numbers
from workbench.errors import ComparisonError, UsageError
from workbench.figures_text import number
from workbench.fronts import Front, pareto
from workbench.pareto import Axis, Values
from workbench.repeats import TRIAL_IDS, values_by_repeat
from workbench.spreads import TOO_FEW, too_wide
from workbench.store import Run, Store
from workbench.words import point_words

if TYPE_CHECKING:
    import pandas as pd

NAME_ROOM = 80  # characters that a plan's name may have
SUFFIX = "-confirm"


@dataclass(frozen=True, kw_only=True)
class Shrinkage:
    """Confirmed over claimed of one metric, over all confirmed points together."""

    metric: str
    ratio: float | None
    low: float | None  # None: one repeat of each point, which has no interval
    high: float | None
    shifted: bool  # the whole interval is on one side of what was claimed
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """What a run of fresh repeats says of the points of its parent.

    `points` has a row a point: point, trial (of the parent), on_front (among the confirmed; None
    for one that has no other to compete with), and for each axis the claimed <metric>, and
    <metric>.confirmed, .low, .high, .ratio.
    """

    parent: str
    run: str
    points: pd.DataFrame
    shrinkage: tuple[Shrinkage, ...]


def chosen_points(run: Run, axes: tuple[Axis, Axis], most: int | None) -> list[str]:
    """Trial ids of the points on the run's fronts, surest first; at most `most`."""
    run.check_measured_here()
    points = run.points()
    front = pareto(points, *axes, runs=[run])
    if not front.members:
        raise ComparisonError(
            "has no point on a front that could be confirmed.",
            where=run.run_id,
            remedy="`workbench pareto` says why.",
        )
    chance = np.nan_to_num(front.probability, nan=0.0)
    rows = sorted(np.flatnonzero(front.on_front), key=lambda row: -chance[row])
    return [str(points["trial_id"].iat[row]) for row in rows[:most]]


def confirming_plan(run: Run, trial_ids: Sequence[str], repeats: int, *, seed: int) -> Plan:
    """The run's plan with these points alone, fresh repeats and a fresh seed."""
    if repeats < 1:
        raise UsageError(f"{repeats} is no number of repeats.", where="--repeats")
    points = [_axes_of(run, trial_id) for trial_id in trial_ids]
    name = str(run.plan.get("name"))[: NAME_ROOM - len(SUFFIX)] + SUFFIX
    fields = {
        **run.plan,
        "name": name,
        "question": f"What is left of the front of {run.run_id} when it is measured again?",
        "axes": _side_by_side(points),
        "where": [],
        "search": None,
        "repeats": repeats,
        "seed": seed,
        "max_trials": None,
    }
    return load_plan({name: value for name, value in fields.items() if name in Plan.model_fields})


def fresh_seed(run: Run, store: Store) -> int:
    """A seed that neither the run nor an earlier confirmation of it used."""
    before = sum(store.run(name).parent == run.run_id for name in store.run_ids())
    return seed_of("confirm", run.run_id, before) % 2**31


def confirmation(run: Run, parent: Run, axes: tuple[Axis, Axis]) -> Confirmation:
    """Hold a confirming run against its parent; ComparisonError where it is none of it."""
    if run.parent != parent.run_id:
        raise ComparisonError(
            f"does not confirm {parent.run_id}.",
            where=run.run_id,
            remedy=f"`workbench confirm {parent.run_id}` makes a run that does.",
        )
    claimed, fresh = Arm(run=parent), Arm(run=run)
    if not len(fresh.points):
        raise ComparisonError("has no valid point: nothing is confirmed.", where=run.run_id)
    pairs = matched(fresh, claimed).rows
    front = pareto(fresh.points, *axes)
    rows = [_row(fresh, claimed, pair, axes, front) for pair in pairs]
    import pandas as pd

    return Confirmation(
        parent=parent.run_id,
        run=run.run_id,
        points=pd.DataFrame(rows),
        shrinkage=tuple(_shrinkage(fresh, claimed, pairs, axis) for axis in axes),
    )


def _row(
    fresh: Arm, claimed: Arm, pair: tuple[int, int], axes: tuple[Axis, Axis], front: Front
) -> dict[str, object]:
    now, before = fresh.points.iloc[pair[0]], claimed.points.iloc[pair[1]]
    settings = {str(c): now[c] for c in fresh.points.columns if str(c).startswith("axis.")}
    cells: dict[str, object] = {
        "point": point_words(settings),
        "trial": str(before["trial_id"]),
        "on_front": bool(front.on_front[pair[0]]) if _has_rival(front, pair[0]) else None,
    }
    for axis in axes:
        name = axis.metric
        cells[name], cells[f"{name}.confirmed"] = before[name], now[name]
        cells[f"{name}.low"], cells[f"{name}.high"] = now[f"{name}.low"], now[f"{name}.high"]
        cells[f"{name}.ratio"] = now[name] / before[name] if before[name] else np.nan
    return cells


def _has_rival(front: Front, place: int) -> bool:
    """Whether another point competes for the same front."""
    group = front.group_of[place]
    return sum(
        other == group and reason is None
        for other, reason in zip(front.group_of, front.excluded, strict=True)
    ) > 1  # fmt: skip


def _shrinkage(fresh: Arm, claimed: Arm, pairs: Sequence[tuple[int, int]], axis: Axis) -> Shrinkage:
    """The geometric mean over the points, repeat by repeat of the fresh run."""
    metric, label = axis.metric, METRICS[axis.metric].label
    ratios = [found for pair in pairs if (found := _ratios(fresh, claimed, pair, metric))]
    common = sorted(set.intersection(*map(set, ratios))) if ratios else []
    if not common:
        return _without_repeats(fresh, claimed, pairs, metric)
    by_repeat = np.exp([np.mean([np.log(each[k]) for each in ratios]) for k in common])
    ratio = float(np.exp(np.log(by_repeat).mean()))
    low, high = (float(edge[0]) for edge in over_repeats(by_repeat[:, None], np.array([ratio])))
    known = bool(np.isfinite([low, high]).all())
    shifted = known and not low <= 1 <= high
    why = f"; {_cause((ratio > 1) == (axis.direction == 'max'))}" if shifted else ""
    return Shrinkage(
        metric=metric,
        ratio=ratio,
        low=low if known else None,
        high=high if known else None,
        shifted=shifted,
        sentence=f"{label}: {_words(ratio, (low, high) if known else None, len(common))}{why}.",
    )


def _without_repeats(
    fresh: Arm, claimed: Arm, pairs: Sequence[tuple[int, int]], metric: str
) -> Shrinkage:
    """The ratio of the points' own values, where single repeats do not tell it."""
    ratios = np.array(
        [fresh.points[metric].iat[now] / claimed.points[metric].iat[was] for now, was in pairs],
        dtype=float,
    )
    known = len(ratios) > 0 and bool((np.isfinite(ratios) & (ratios > 0)).all())
    ratio = float(np.exp(np.log(ratios).mean())) if known else None
    told = "no repeat has it at every point" if ratio is None else _words(ratio, None, 0)
    return Shrinkage(
        metric=metric, ratio=ratio, low=None, high=None, shifted=False,
        sentence=f"{METRICS[metric].label}: {told}.",
    )  # fmt: skip


def _cause(better: bool) -> str:
    if better:
        return (
            "more than its interval better than claimed, which no choice explains: "
            "has the machine changed?"
        )
    return "more than its interval worse than claimed: a lucky choice, or has the machine changed?"


def _ratios(fresh: Arm, claimed: Arm, pair: tuple[int, int], metric: str) -> dict[int, float]:
    """Fresh over claimed by repeat number; empty where there is no ratio."""
    before = float(claimed.points[metric].iat[pair[1]])
    ids = tuple(fresh.points[TRIAL_IDS].iat[pair[0]])
    values: Values = values_by_repeat(fresh.run, ids, [metric])[:, 0]
    numbers = repeat_numbers(fresh.run)
    if not (before > 0 and (values > 0).all()):
        return {}
    return {numbers[name]: float(v / before) for name, v in zip(ids, values, strict=True)}


def _words(ratio: float, interval: tuple[float, float] | None, repeats: int) -> str:
    told = f"measured again it is {number(ratio * 100)} % of what the front claims"
    if interval is None:
        return f"{told} (no interval)"
    if too_wide(*interval):
        return f"{told} ({TOO_FEW})"
    low, high = (number(edge * 100) for edge in interval)
    return f"{told} ({low} to {high} % over {repeats} repeats)"


def _axes_of(run: Run, trial_id: str) -> Mapping[str, AxisValue]:
    """What the trial varied: every axis of its plan, at the value in force."""
    found = next(one for one in run.documents() if one["trial_id"] == trial_id)
    point = cast("Mapping[str, Mapping[str, AxisValue]]", found["point"])
    return point["axes"]


def _side_by_side(points: Sequence[Mapping[str, AxisValue]]) -> list[dict[str, object]]:
    """The points as one block of axes that vary together."""
    names = list(dict.fromkeys(name for point in points for name in point))
    return [{"zip": {name: [p[name] for p in points] for name in names}}] if names else []
