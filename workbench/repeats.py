"""Repeats of one point as one point, with intervals over the repeats.

Rates, means and ratios are the mean of the valid repeats; quantiles are those of all their
requests together. The interval of either is Student's over the repeats
(`experiments.resampling`), but for shares of an eval's questions. A point with one repeat keeps
its interval within that run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.pooling import POOLED_METRICS, PooledQuantile
from experiments.records import MetricValue
from experiments.resampling import over_repeats
from workbench.figures_text import OF_QUESTIONS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from workbench.stored_run import Run

    Values = NDArray[np.float64]

REPEATS = "repeats"
TRIAL_IDS = "trial_ids"
BASIS = "interval_basis"
WITHIN_RUN = "within-run"
IDENTITY = ("axis.", "engine.", "workload.")
UNREAD = "the requests of its repeats were not read, and quantiles are never averaged"
Quantiles = Callable[[tuple[str, ...]], Mapping[str, PooledQuantile] | None]
"""The quantiles over the repeats stored as the given trials; None where they are not read."""


def basis_words(repeats: int) -> str:
    """What an interval covers: `within-run`, or `over 3 repeats`."""
    return f"over {repeats} repeats" if repeats > 1 else WITHIN_RUN


def pooled(trials: pd.DataFrame, quantiles: Quantiles | None = None) -> pd.DataFrame:
    """One row a point, in the order of first repeats; `trials` has one row a trial.

    `repeats` counts the valid repeats that the numbers of a row rest on and `trial_ids` names
    them; trial_id is that of the first. `interval_basis` says what `.low` and `.high` cover. A
    point with a valid repeat is valid, and its reason names the repeats that were left out. A
    number that one of the valid repeats lacks is missing.
    """
    ids = [(str(name),) for name in trials["trial_id"]]
    table = trials.assign(**{REPEATS: 1, TRIAL_IDS: ids, BASIS: WITHIN_RUN})
    keys = point_keys(trials)
    if keys.is_unique:
        return table
    members = [np.array(rows) for rows in keys.groupby(keys, sort=False).indices.values()]
    members.sort(key=lambda rows: rows[0])
    valid = trials["valid"].to_numpy(dtype=bool)
    sound = [rows[valid[rows]] if valid[rows].any() else rows[:1] for rows in members]
    found = table.iloc[[rows[0] for rows in sound]].reset_index(drop=True)
    _describe(found, trials, members, sound)
    _average(found, trials, sound)
    _ask_again(found, trials, sound)
    _pool(found, sound, quantiles)
    return found.copy()  # in one piece


def point_keys(trials: pd.DataFrame) -> pd.Series:
    """What a point is: its run and everything that was chosen, as one text a row."""
    import pandas as pd

    names = [name for name in trials.columns if str(name).startswith(IDENTITY)]
    columns = [trials[name].map(repr) for name in ("run_id", "checkpoint", *names)]
    return pd.Series(
        ["\x00".join(cells) for cells in zip(*columns, strict=True)],
        index=range(len(trials)),
        dtype=object,
    )


def _describe(
    found: pd.DataFrame, trials: pd.DataFrame, members: list[np.ndarray], sound: list[np.ndarray]
) -> None:
    """What is said of a point as a whole: its repeats, labels, time and what was left out."""
    ids, labels = trials["trial_id"].tolist(), trials["labels"].tolist()
    found[REPEATS] = [len(rows) for rows in sound]
    found[BASIS] = [basis_words(len(rows)) for rows in sound]
    found[TRIAL_IDS] = [tuple(str(ids[row]) for row in rows) for rows in sound]
    found["labels"] = [
        list(dict.fromkeys(label for row in rows for label in labels[row])) for rows in sound
    ]
    durations = trials["duration_s"].to_numpy(dtype=float)
    found["duration_s"] = [float(durations[rows].sum()) for rows in members]
    valid = trials["valid"].to_numpy(dtype=bool)
    found["reason"] = [
        "; ".join(_left_out(trials, rows)) or None if valid[rows].any() else reason
        for rows, reason in zip(members, found["reason"].tolist(), strict=True)
    ]


def _left_out(trials: pd.DataFrame, rows: np.ndarray) -> Iterator[str]:
    for row in rows:
        if not trials["valid"].iat[row]:
            repeat, state, reason = (trials[c].iat[row] for c in ("repeat", "state", "reason"))
            yield f"repeat {repeat} is left out, {state}: {reason}"


def _average(found: pd.DataFrame, trials: pd.DataFrame, sound: list[np.ndarray]) -> None:
    """Means over the repeats with their intervals, for every point of several."""
    several = [place for place, rows in enumerate(sound) if len(rows) > 1]
    metrics = _metrics(trials)
    values = trials[metrics].to_numpy(dtype=float, na_value=np.nan)
    counts = trials[[f"{name}.n" for name in metrics]].to_numpy(dtype=float)
    means, lows, highs, samples = (np.empty((len(several), len(metrics))) for _ in range(4))
    for k, place in enumerate(several):
        each = values[sound[place]]  # [repeats, metrics]
        means[k] = each.mean(axis=0)
        lows[k], highs[k] = over_repeats(each, means[k])
        samples[k] = np.nansum(counts[sound[place]], axis=0)
    for column, name in enumerate(metrics):
        parts = {"": means, ".low": lows, ".high": highs, ".n": samples}
        for part, table in parts.items():
            cells = found[name + part].to_numpy(dtype=float, na_value=np.nan, copy=True)
            cells[several] = table[:, column]
            found[name + part] = cells
        _say_why(found, trials, name, [(place, sound[place]) for place in several])


def _ask_again(found: pd.DataFrame, trials: pd.DataFrame, sound: list[np.ndarray]) -> None:
    """Shares of the questions of an eval: the mean of the repeats' own intervals.

    Repeats ask the same questions: how they differ says nothing of other questions.
    """
    for name in (name for name in OF_QUESTIONS if name in trials.columns):
        for part, pick in ((".low", np.mean), (".high", np.mean), (".n", np.max)):
            told = trials[name + part].to_numpy(dtype=float, na_value=np.nan)
            cells = found[name + part].to_numpy(dtype=float, na_value=np.nan, copy=True)
            for place, rows in enumerate(sound):
                cells[place] = pick(told[rows])
            found[name + part] = cells


def _say_why(
    found: pd.DataFrame, trials: pd.DataFrame, name: str, points: list[tuple[int, np.ndarray]]
) -> None:
    """Why the mean of a metric is missing at each of `points`."""
    missing = trials[name].isna().to_numpy()
    told = trials[f"{name}.reason"].tolist()
    reasons = found[f"{name}.reason"].tolist()
    for place, rows in points:
        lacking = rows[missing[rows]]
        if not len(lacking):
            reasons[place] = None
            continue
        why = next((told[row] for row in lacking if isinstance(told[row], str)), "not measured")
        some = f"missing in {len(lacking)} of {len(rows)} repeats: "
        reasons[place] = why if len(lacking) == len(rows) else some + why
    found[f"{name}.reason"] = np.array(reasons, dtype=object)


def _pool(found: pd.DataFrame, sound: list[np.ndarray], quantiles: Quantiles | None) -> None:
    """Quantiles of all requests in place of the means of quantiles."""
    read: dict[int, Mapping[str, PooledQuantile]] = {}
    for place, rows in enumerate(sound):
        if len(rows) > 1:
            ids = found[TRIAL_IDS].iat[place]
            read[place] = (quantiles(ids) if quantiles is not None else None) or {}
    unread = MetricValue(value=None, n=0, reason=UNREAD)
    for name in _metrics(found):
        if name in POOLED_METRICS and read:
            values = {place: told.get(name) for place, told in read.items()}
            known = found[name].notna()
            cells = {
                place: unread if value is None else value.metric
                for place, value in values.items()
                if (known.iat[place] if value is None else value.metric.n > 0)
            }
            _put(found, name, cells)


def _put(found: pd.DataFrame, name: str, cells: Mapping[int, MetricValue]) -> None:
    """Write one metric of the points by place."""
    places = list(cells)
    for part, field in (("", "value"), (".low", "low"), (".high", "high"), (".n", "n")):
        numbers = found[name + part].to_numpy(dtype=float, na_value=np.nan, copy=True)
        numbers[places] = [getattr(cell, field) for cell in cells.values()]  # None becomes NaN
        found[name + part] = numbers
    reasons = found[f"{name}.reason"].tolist()
    for place, cell in cells.items():
        reasons[place] = cell.reason
    found[f"{name}.reason"] = np.array(reasons, dtype=object)


def values_by_repeat(run: Run, trial_ids: Sequence[str], metrics: Sequence[str]) -> Values:
    """[repeats, metrics] what each repeat says of the metrics; NaN where it says nothing.

    Of quantiles each repeat has its own, where all repeats have samples enough for that.
    """
    found = np.full((len(trial_ids), len(metrics)), np.nan)
    for k, name in enumerate(metrics):
        if name in POOLED_METRICS and len(trial_ids) > 1:
            pooled_by = (run.quantiles(tuple(trial_ids)) or {}).get(name)
            if pooled_by is not None and len(pooled_by.by_repeat):
                found[:, k] = pooled_by.by_repeat
        else:
            values = [run.metric(trial_id, name) for trial_id in trial_ids]
            found[:, k] = [np.nan if value is None else value for value in values]
    return found


def _metrics(table: pd.DataFrame) -> list[str]:
    return [str(name) for name in table.columns if f"{name}.n" in table.columns]
