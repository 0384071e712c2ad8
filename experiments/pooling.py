"""Quantiles over several repeats: of all their requests together, never a mean of quantiles.

The interval is Student's from the scatter of the repeats' own quantiles, around the pooled one; a
95 % interval of a tail then covers 91 to 94 %. A jackknife covers 88 to 91 %: leaving a repeat out
moves the pooled quantile from one of the last requests to its neighbour. There is an interval only
where every repeat has `needed_samples` of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from experiments.metric_specs import FAMILIES, QUANTILES
from experiments.metric_values import missing
from experiments.metrics import needed_samples
from experiments.records import MetricValue
from experiments.request_columns import RequestColumns
from experiments.resampling import over_repeats

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PooledQuantile:
    """One quantile over the repeats of a point, and what each repeat says of it."""

    metric: MetricValue
    by_repeat: Array  # [repeats] each one's own; empty where one has too few samples


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """How metrics of one source of samples come from them."""

    quantiles: tuple[float, ...]
    samples: Callable[[RequestColumns], Array]
    method: Literal["linear", "higher"] = "linear"
    inverse: bool = False  # a speed from a time per token


_LAGS = ("client_lag_s_p50", "client_lag_s_p99")
_ADJUSTED = {"e2e_s_p90_adj": "p90", "e2e_s_p99_adj": "p99"}


def _with_failures(columns: RequestColumns) -> Array:
    return np.append(columns.samples("e2e_s"), np.full(columns.unsuccessful, np.inf))


def _client_lags(columns: RequestColumns) -> Array:
    return np.empty(0) if columns.client_lag_s is None else columns.client_lag_s


def _user_speeds(columns: RequestColumns) -> Array:
    return 1 / columns.samples("tpot_s")


def _rules() -> dict[tuple[str, ...], _Rule]:
    every = tuple(QUANTILES.values())
    found = {
        tuple(f"{family}_{name}" for name in QUANTILES): _Rule(
            quantiles=every, samples=partial(RequestColumns.samples, family=family)
        )
        for family in FAMILIES
    }
    found[("tok_s_user_p50",)] = _Rule(quantiles=(QUANTILES["p50"],), samples=_user_speeds)
    found[("tok_s_user_p1",)] = _Rule(
        quantiles=(QUANTILES["p99"],),
        samples=partial(RequestColumns.samples, family="tpot_s"),
        inverse=True,
    )
    found[_LAGS] = _Rule(quantiles=(QUANTILES["p50"], QUANTILES["p99"]), samples=_client_lags)
    found[tuple(_ADJUSTED)] = _Rule(
        quantiles=tuple(QUANTILES[name] for name in _ADJUSTED.values()),
        samples=_with_failures,
        method="higher",
    )
    return found


_RULES = _rules()
POOLED_METRICS = frozenset(name for names in _RULES for name in names)
"""Metrics that are quantiles: over repeats they need the requests."""


def pooled_quantiles(
    repeats: Sequence[RequestColumns], wanted: frozenset[str] = POOLED_METRICS
) -> dict[str, PooledQuantile]:
    """Each of `wanted` over all requests of the repeats, with its interval over the repeats."""
    found: dict[str, PooledQuantile] = {}
    for names, rule in _RULES.items():
        if wanted.intersection(names):
            found |= zip(names, _by_rule(rule, repeats), strict=True)
    return {name: value for name, value in found.items() if name in wanted}


def _by_rule(rule: _Rule, repeats: Sequence[RequestColumns]) -> list[PooledQuantile]:
    each = [rule.samples(columns) for columns in repeats]
    n = sum(map(len, each))
    if not n:
        return [_absent("no request of the repeats has a sample", n) for _ in rule.quantiles]

    values = _of(rule, np.concatenate(each))
    by_repeat = np.array([_of(rule, samples) for samples in each])
    with np.errstate(invalid="ignore"):  # infinite where many requests failed
        low, high = over_repeats(by_repeat, values)
    counts = [len(samples) for samples in each]
    return [
        _judged(float(value), counts, quantile, (float(low[k]), float(high[k])), by_repeat[:, k])
        for k, (value, quantile) in enumerate(zip(values, rule.quantiles, strict=True))
    ]


def _of(rule: _Rule, samples: Array) -> Array:
    """[quantiles] of the samples; NaN of none."""
    if not len(samples):
        return np.full(len(rule.quantiles), np.nan)
    found = np.quantile(samples, np.array(rule.quantiles), method=rule.method)
    return np.asarray(1 / found if rule.inverse else found, dtype=float)


def _judged(
    value: float,
    counts: Sequence[int],
    quantile: float,
    spread: tuple[float, float],
    by_repeat: Array,
) -> PooledQuantile:
    n, fewest, needed = sum(counts), min(counts), needed_samples(quantile)
    if n < needed:
        return _absent(f"n={n} < {needed}", n)
    if not np.isfinite(value):
        return _absent("so many requests failed that it is infinite", n)
    if fewest < needed and len(counts) > 1:
        reason = f"no interval: a repeat has n={fewest} < {needed}"
        metric = MetricValue(value=value, n=n, reason=reason)
        return PooledQuantile(metric=metric, by_repeat=np.empty(0))
    known = bool(np.isfinite(spread).all())
    low, high = spread if known else (None, None)
    metric = MetricValue(value=value, n=n, low=low, high=high)
    return PooledQuantile(metric=metric, by_repeat=by_repeat)


def _absent(reason: str, n: int) -> PooledQuantile:
    return PooledQuantile(metric=missing(reason, n), by_repeat=np.empty(0))
