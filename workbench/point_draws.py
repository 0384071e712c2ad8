"""Joint draws of the metrics of stored points: what else might have been measured.

A point of several repeats is drawn from their scatter, a point of one from its requests; either
way all metrics of one draw come from the same resample. Where the rows behind a point are not at
hand, each metric is drawn from its own interval, by itself. Points are drawn independently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.identity import generator, seed_of
from experiments.measurement import Measurement
from experiments.metrics import measure
from experiments.records import TrialRecord
from experiments.resampling import COVERAGE, bounded_exp, draws_over_repeats, t_quantile
from experiments.statistics import resampled
from workbench.pareto import Values
from workbench.repeats import REPEATS, TRIAL_IDS, values_by_repeat

if TYPE_CHECKING:
    import pandas as pd

    from workbench.stored_run import Run

DRAWS = 1000
DRAWS_WITHIN = 500  # of the requests of one trial, all metrics of which are resampled
MOST_RESAMPLED = 200  # points of one repeat whose requests are read for one front
MOST_DRAWN = 4_000_000  # numbers; many points get fewer draws
LEAST_DRAWS = 100


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Draws of some points."""

    values: Values  # [draws, points, metrics]
    known: NDArray[np.bool_]  # [points] False: no interval is known, every draw is the value


class PointDraws:
    """Draws of the rows of one table of points; `runs` hold what is behind them."""

    def __init__(self, points: pd.DataFrame, runs: Iterable[Run] = ()) -> None:
        self._points = points
        self._runs = {run.run_id: run for run in runs}

    def of(self, rows: Sequence[int] | NDArray[np.intp], metrics: tuple[str, ...]) -> Drawn:
        """Draws of `metrics` of the rows by number; the same rows give the same draws."""
        count = min(DRAWS, max(LEAST_DRAWS, MOST_DRAWN // max(1, len(rows) * len(metrics))))
        values = np.empty((count, len(rows), len(metrics)))
        known = np.ones(len(rows), dtype=bool)
        for k, row in enumerate(rows):
            point = self._points.iloc[row]
            estimates = np.array([float(point[name]) for name in metrics])
            read = k < MOST_RESAMPLED
            drawn = self._from_rows(point, metrics, estimates, count) if read else None
            if drawn is None:
                drawn, known[k] = _from_intervals(point, metrics, estimates, count)
            values[:, k] = drawn
        return Drawn(values=values, known=known)

    def _from_rows(
        self, point: pd.Series, metrics: tuple[str, ...], estimates: Values, count: int
    ) -> Values | None:
        """[draws, metrics]; None where what is behind the point does not say."""
        run = self._runs.get(str(point["run_id"]))
        if run is None:
            return None
        ids = point.get(TRIAL_IDS, (str(point["trial_id"]),))
        if len(ids) == 1:
            found = _within_run(run, ids[0])
            if not found.keys() >= set(metrics):
                return None
            length = min(len(found[name]) for name in metrics)
            picked = np.arange(count) % length
            drawn = np.stack([found[name][picked] for name in metrics], axis=1)
            return np.where(np.isfinite(drawn), drawn, estimates)
        values = values_by_repeat(run, ids, metrics)
        if not np.isfinite(values).all():
            return None
        seed = seed_of("point draws", run.run_id, *ids)
        return draws_over_repeats(values, estimates, draws=count, seed=seed)


def _from_intervals(
    point: pd.Series, metrics: tuple[str, ...], estimates: Values, count: int
) -> tuple[Values, bool]:
    """Draws whose 95 % interval is that of the table, and whether every metric has one."""
    stream = generator("interval draws", str(point["run_id"]), str(point["trial_id"]))
    freedom = int(point.get(REPEATS, 1)) - 1
    shape = stream.standard_normal((count, len(metrics)))
    if freedom > 0:
        shape /= np.sqrt(stream.chisquare(freedom, (count, 1)) / freedom)
    inside = (1 + COVERAGE) / 2
    edge = t_quantile(inside, freedom) if freedom > 0 else NormalDist().inv_cdf(inside)
    drawn = np.tile(estimates, (count, 1))
    known = True
    for k, name in enumerate(metrics):
        low, high = (float(point.get(f"{name}.{part}", np.nan)) for part in ("low", "high"))
        if not np.isfinite([low, high]).all():
            known = False
        elif low > 0:
            drawn[:, k] *= bounded_exp(shape[:, k] * np.log(high / low) / (2 * edge))
        else:
            drawn[:, k] += shape[:, k] * (high - low) / (2 * edge)
    return drawn, known


def _within_run(run: Run, trial_id: str) -> Mapping[str, Values]:
    return _resampled_trial(_Stored(run, trial_id))


class _Stored:
    """A stored trial, told from others by where it lies: it never changes."""

    def __init__(self, run: Run, trial_id: str) -> None:
        self.run, self.trial_id = run, trial_id
        self._key = (str(run.folder), trial_id)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stored) and self._key == other._key


@lru_cache(maxsize=256)
def _resampled_trial(stored: _Stored) -> Mapping[str, Values]:
    seed = seed_of("point draws", stored.run.run_id, stored.trial_id)
    return resampled_trial(stored.run.trial(stored.trial_id), seed=seed)


def resampled_trial(record: TrialRecord, *, seed: int) -> dict[str, Values]:
    """[draws] of every metric that the requests of one trial give an interval to.

    Centred on the stored values: a trial knows more of its window than its requests do.
    """
    if record.window_s is None or not record.requests:
        return {}
    measurement = Measurement(
        requests=record.requests, window_s=record.window_s, devices=_devices(record)
    )
    found = resampled(measurement, draws=DRAWS_WITHIN, seed=seed)
    again = measure(measurement)
    centred: dict[str, Values] = {}
    for name, draws in found.items():
        stored, value = record.metrics.get(name), again[name].value
        if stored is not None and stored.value is not None and value:
            centred[name] = draws * (stored.value / value)
    return centred


def _devices(record: TrialRecord) -> int | None:
    """How many devices served: what the rate of all has over that of one."""
    total, each = (record.metrics.get(n) for n in ("output_tok_s", "output_tok_s_device"))
    if total is None or each is None or not total.value or not each.value:
        return None
    return round(total.value / each.value)
