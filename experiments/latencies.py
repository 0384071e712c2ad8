"""Latencies of single requests, their quantiles, and the speed that one user sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from experiments.measurement import (
    Measurement,
    decode_s,
    decode_tokens,
    e2e_s,
    succeeded,
    tpot_s,
    weighted_samples,
)
from experiments.metric_specs import FAMILIES, QUANTILES
from experiments.metric_values import NO_SUCCESS, missing
from experiments.quantiles import needed_samples, quantile_of
from experiments.records import MetricValue, RequestRecord
from experiments.statistics import clusters

BETWEEN_TOKENS = ("tpot_s", "tpot_compat_s", "itl_s", "icl_s")


def latencies(m: Measurement) -> dict[str, MetricValue]:
    """Mean and quantiles of every family, and E2E with failures at infinity."""
    values: dict[str, MetricValue] = {}
    independent = _independent(m.succeeded)
    for prefix in FAMILIES:
        found, counts = weighted_samples(prefix, m.succeeded)
        empty = _why_empty(prefix, m.succeeded)
        values[f"{prefix}_mean"] = _mean(found, counts, empty)
        for name, quantile in QUANTILES.items():
            values[f"{prefix}_{name}"] = quantile_of(
                found, counts, quantile, empty=empty, independent=independent
            )
    return {**values, **_adjusted(m)}


def interactivity(ok: Sequence[RequestRecord]) -> dict[str, MetricValue]:
    """Tokens a second that a user sees, over requests that have a TPOT."""
    timed = [r for r in ok if tpot_s(r) is not None]
    tpots, counts = weighted_samples("tpot_s", ok)
    if not timed:
        reason = why_no_tpot(ok)
        return {name: missing(reason) for name in ("tok_s_user", "tok_s_user_p50", "tok_s_user_p1")}
    harmonic = sum(map(decode_tokens, timed)) / sum(map(decode_s, timed))
    with np.errstate(over="ignore"):
        speeds = 1 / tpots
    independent = _independent(timed)
    middle, slow = (
        quantile_of(found, counts, QUANTILES[name], empty="", independent=independent)
        for found, name in ((speeds, "p50"), (tpots, "p99"))
    )
    return {
        "tok_s_user": MetricValue(value=harmonic, n=len(timed)),
        "tok_s_user_p50": middle,
        "tok_s_user_p1": _inverse(slow),
    }


def why_no_tpot(ok: Sequence[RequestRecord]) -> str:
    """Why none of the requests has a time between tokens."""
    if not ok:
        return NO_SUCCESS
    if all(len(r.chunks) == 1 for r in ok):
        return "every output came in one chunk: there is no time between tokens"
    return "no time passed between the chunks of any request"


def _why_empty(prefix: str, ok: Sequence[RequestRecord]) -> str:
    if prefix in BETWEEN_TOKENS:
        return why_no_tpot(ok)
    return "every token was reasoning" if ok and prefix == "ttfo_s" else NO_SUCCESS


def _independent(requests: Sequence[RequestRecord]) -> int:
    return int(clusters(requests).max(initial=-1)) + 1


def _mean(values: np.ndarray, counts: np.ndarray, empty: str) -> MetricValue:
    n = int(counts.sum())
    return MetricValue(value=float(values @ counts) / n, n=n) if n else missing(empty)


def _inverse(value: MetricValue) -> MetricValue:
    """1 / value; what bounds it from below bounds the inverse from above."""
    known = value.value is not None
    low, high = (None if bound is None else 1 / bound for bound in (value.high, value.low))
    return replace(value, value=1 / value.value if known else None, low=low, high=high)  # type: ignore[operator]


def _adjusted(m: Measurement) -> dict[str, MetricValue]:
    times = np.array([e2e_s(r) if succeeded(r) else math.inf for r in m.settled])
    return {f"e2e_s_{name}_adj": _with_failures(times, QUANTILES[name]) for name in ("p90", "p99")}


def _with_failures(times: np.ndarray, quantile: float) -> MetricValue:
    n, needed = len(times), needed_samples(quantile)
    if n < needed:
        return missing(f"n={n} < {needed}", n)
    value = float(np.quantile(times, quantile, method="higher"))
    if not math.isfinite(value):
        return missing("so many requests failed that it is infinite", n)
    return MetricValue(value=value, n=n)
