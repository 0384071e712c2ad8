"""The sentences on top of a report: what was found, computed from what is stored."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.arms import ARM_AXIS
from workbench.arms import against_reference, select
from workbench.catalogue import METRICS
from workbench.columns import words_of
from workbench.compare import compare
from workbench.compare_words import Delta, change_words, range_words
from workbench.errors import BenchError
from workbench.figures_facts import Best, best
from workbench.figures_headline import BEST, headline
from workbench.figures_ratios import levels, matched_ratios
from workbench.figures_text import axis_words, number, plural
from workbench.fronts import comparison_groups
from workbench.grouping import LOAD_FIELDS
from workbench.report_tables import Row, spread_words
from workbench.spreads import TOO_FEW, too_wide

if TYPE_CHECKING:
    import pandas as pd

    from workbench.store import Run

HEADLINES = (
    ("output_tok_s_device", "Most output per device"),
    ("tok_s_user", "Fastest for one user"),
    ("ttft_s_p50", "Shortest wait for the first token"),
)
JUDGED_BY = "output_tok_s_device"
MOST_LEVELS, MOST_AXES = 6, 3
MOST_TOLD = 12  # sentences about best points
NOTHING_VALID = "No valid point was measured, so there is no answer yet."


def best_points(points: pd.DataFrame) -> Row:
    """The best valid point by each headline metric, with its interval and n.

    What may not be compared (other models, arithmetic or workloads) has a best of its own.
    """
    sound = points[points["valid"].astype(bool)]
    names = np.array(comparison_groups(sound), dtype=object)
    groups = sorted(set(names))
    found = [
        _best(top, words, of=f" of {group}" if len(groups) > 1 else "")
        for metric, words in _headlines(points)
        for group in groups
        if (top := best(sound[names == group], metric)).value is not None
    ]
    left = len(found) - MOST_TOLD
    more = (f"{plural(left, 'more best point')}: see the front.",) if left > 0 else ()
    return (*found[:MOST_TOLD], *more) or (NOTHING_VALID,)


def _headlines(points: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    """With results of other tools the metrics that these report."""
    if not any(str(name).endswith(".basis") for name in points.columns):
        return HEADLINES
    return tuple((name, BEST[name]) for name in headline(points).tiles if name in BEST)


def _best(top: Best, words: str, *, of: str) -> str:
    spread = spread_words(top.low, top.high, top.n, top.repeats)
    spread = f"within-run {spread}" if top.low is not None and top.repeats == 1 else spread
    return (
        f"{words}{of}: {number(top.value)} {top.spec.unit} ({spread}; {top.spec.label}), "
        f"with {top.where or 'the only configuration'}."
    )


def effects(run: Run, points: pd.DataFrame) -> Row:
    """What each engine setting that the run varies does to output, one sentence an axis.

    The first value of an axis stands against the one of the others that differs most, over all
    points that are alike in everything else; of arms the reference stands against each other
    one, and comes first. Only repeats carry a verdict.
    """
    repeated = len(points) > 0 and int(points["repeats"].max()) > 1
    if JUDGED_BY not in points:
        return ()

    def tell(run: Run, points: pd.DataFrame, axis: str) -> str:
        if axis == ARM_AXIS:
            return _of_arms(run, points, judged=repeated)
        return (_judged if repeated else _seen)(run, points, axis)

    return tuple(words for axis in _engine_axes(points) if (words := tell(run, points, axis)))


def _engine_axes(points: pd.DataFrame) -> list[str]:
    """Axes of the engine, not of the load, that have a few values."""
    axes = [str(c).removeprefix("axis.") for c in points.columns if str(c).startswith("axis.")]
    kept = [
        name
        for name in axes
        if name not in LOAD_FIELDS
        and f"engine.{name}" in points.columns
        and 2 <= len(levels(points, f"axis.{name}")) <= MOST_LEVELS
    ]
    return sorted(kept, key=lambda name: name != ARM_AXIS)[:MOST_AXES]


def _of_arms(run: Run, points: pd.DataFrame, *, judged: bool) -> str:
    """What the reference, or else the first arm, gives against every other arm, in a sentence."""
    pairs = against_reference(run, levels(points, f"axis.{ARM_AXIS}"))
    told = [_judged_arms(run, *pair) if judged else _seen_arms(points, *pair) for pair in pairs]
    parts = [f"against {other} {said or 'no difference is told'}"
             for (other, _), said in zip(pairs, told, strict=True)]  # fmt: skip
    reference = pairs[0][1]
    return f"Arm {reference}, {METRICS[JUDGED_BY].label}: {'; '.join(parts)}." if any(told) else ""


def _judged_arms(run: Run, other: str, reference: str) -> str:
    found = _delta(run, ARM_AXIS, (other, reference))
    return "" if found is None or not found.ratio else found.sentence.removeprefix("B is ")


def _seen_arms(points: pd.DataFrame, other: str, reference: str) -> str:
    column = f"axis.{ARM_AXIS}"
    pair = points[words_of(points[column]).isin([other, reference])]
    rows = matched_ratios(pair, column, JUDGED_BY)
    if rows.empty:
        return ""
    row = rows.iloc[0]
    ends = tuple(float(row[name]) for name in ("ratio", "low", "high"))
    if str(row["base"]) == reference:
        ends = (1 / ends[0], 1 / ends[2], 1 / ends[1])
    return _seen_words(*ends, pairs=int(row["pairs"]))


def _judged(run: Run, points: pd.DataFrame, axis: str) -> str:
    """By repeats: what may be said, and how surely."""
    base, *others = levels(points, f"axis.{axis}")
    deltas = {level: _delta(run, axis, (base, level)) for level in others}
    told = {level: one for level, one in deltas.items() if one is not None and one.ratio}
    if not told:
        return ""
    level = max(told, key=lambda name: abs(math.log(told[name].ratio or 1.0)))
    found = told[level]
    said = found.sentence.removeprefix("B is ")
    return f"{_against(axis, (base, level), len(others))}, {found.label}: {said}."


def _delta(run: Run, axis: str, pair: tuple[str, str]) -> Delta | None:
    """None where the two cannot be held against each other."""
    a, b = (select(run, **{axis: level}) for level in pair)
    try:
        found = compare(a, b, metrics=[JUDGED_BY])
        return None if found.blocked else found.verdict(JUDGED_BY)
    except BenchError:
        return None


def _seen(run: Run, points: pd.DataFrame, axis: str) -> str:
    """Of one repeat: the ratio with the points' own intervals, and that it is no verdict."""
    del run
    rows = matched_ratios(points, f"axis.{axis}", JUDGED_BY)
    if rows.empty:
        return ""
    most = rows.loc[np.log(rows["ratio"].astype(float)).abs().idxmax()]
    pair, ratio = (str(most["base"]), str(most["level"])), float(most["ratio"])
    said = _seen_words(
        ratio, float(most["low"]), float(most["high"]), pairs=int(most["pairs"])
    )  # fmt: skip
    return f"{_against(axis, pair, len(rows))}, {METRICS[JUDGED_BY].label}: {said}."


def _seen_words(ratio: float, low: float, high: float, *, pairs: int) -> str:
    """NaN for an interval that there is not."""
    spread = f"{range_words(low, high)} within the run" if low == low else ""
    spread = TOO_FEW if too_wide(low, high) else spread
    return (
        f"{change_words(ratio)} ({spread or 'a point has no interval'}; "
        f"{plural(pairs, 'pair')} of points alike in all else; one repeat, so no verdict)"
    )


def _against(axis: str, pair: tuple[str, str], others: int) -> str:
    chosen = f" (of {others} values the one that differs most)" if others > 1 else ""
    return f"{axis_words(axis).capitalize()} {pair[1]} against {pair[0]}{chosen}"


def comparisons(runs: Sequence[Run]) -> Row:
    """Every later run against the first, or why no delta may be told."""
    return tuple(itertools.chain.from_iterable(_of_two(runs[0], run) for run in runs[1:]))


def _of_two(a: Run, b: Run) -> Iterator[str]:
    head = f"{b.run_id} (B) against {a.run_id} (A)"
    try:
        found = compare(a, b)
        if found.blocked:
            names = ", ".join(one.name.replace("_", " ") for one in found.blocked)
            yield f"{head}: no difference is told, since what differs is {names}."
            return
        pairs = plural(len(found.matches.rows), "matched point")
        wanted = [name for name, _ in HEADLINES if name in found.metrics] or found.metrics[:3]
        for told in map(found.verdict, wanted):
            yield f"{head}, {pairs}: {told.label}: {told.sentence}."
    except BenchError as error:
        yield f"{head}: {error}"
