"""Quantiles of samples that count more than once, and what few samples say of a quantile."""

from __future__ import annotations

import math

import numpy as np

from experiments.metric_values import missing
from experiments.records import MetricValue

TAIL = 0.025  # outside either end of a 95 % interval


def needed_samples(quantile: float) -> int:
    """Samples from which a quantile is shown: 2 ceil(1 / (1 - p)), 200 for p99."""
    return 2 * math.ceil(round(1 / (1 - quantile), 9))


def quantile_of(
    values: np.ndarray, counts: np.ndarray, quantile: float, *, empty: str, independent: int
) -> MetricValue:
    """The quantile of `values` [samples], each counted `counts` times.

    From too few samples the value is missing, and `low` is the order statistic that the true
    quantile exceeds in 97.5 of 100 cases; so few samples never bound it from above. They are
    worth `independent` ones at most. `empty` is the reason where there is none.
    """
    n, needed = int(counts.sum()), needed_samples(quantile)
    if n == 0:
        return missing(empty)
    order = np.argsort(values, kind="stable")
    ascending, ordered = values[order], counts[order]
    if n < needed:
        low = _lower_bound(ascending, ordered, quantile, independent)
        return MetricValue(value=None, n=n, low=low, reason=f"n={n} < {needed}")
    found = weighted_quantiles(ascending, ordered[None], [quantile])
    return MetricValue(value=float(found[0, 0]), n=n)


def weighted_quantiles(
    ascending: np.ndarray, counts: np.ndarray, wanted: list[float]
) -> np.ndarray:
    """[wanted, draws] numpy `linear` quantiles of `ascending` [n], repeated `counts` [draws, n]
    times; NaN for a draw of nothing."""
    places = np.cumsum(counts, axis=1)  # [draws, n]
    found = np.full((len(wanted), len(counts)), np.nan)
    for draw, place in enumerate(places):
        if place[-1] <= 0:
            continue
        exact = (place[-1] - 1) * np.array(wanted)
        below = np.floor(exact).astype(np.int64)
        pairs = np.stack([below, np.minimum(below + 1, place[-1] - 1)])
        low, high = ascending[np.searchsorted(place, pairs, side="right")]
        found[:, draw] = low + (high - low) * (exact - below)
    return found


def _lower_bound(
    ascending: np.ndarray, counts: np.ndarray, quantile: float, independent: int
) -> float | None:
    """The largest sample that is below the true quantile in 97.5 of 100 cases, if any is."""
    n = min(independent, int(counts.sum()))
    rank, below = 0, 0.0
    while rank < n:
        below += math.comb(n, rank) * quantile**rank * (1 - quantile) ** (n - rank)
        if below > TAIL:
            break
        rank += 1
    if not rank:
        return None
    place = math.ceil(rank / n * int(counts.sum())) - 1
    return float(ascending[np.searchsorted(np.cumsum(counts), place, side="right")])
