"""How sure one trial is of its numbers: intervals from resampling its requests.

A within-run interval: it does not cover what differs from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.measurement import Measurement, decode_s, decode_tokens, samples, tpot_s
from experiments.metric_specs import FAMILIES, QUANTILES
from experiments.quantiles import weighted_quantiles
from experiments.records import MetricValue, RequestRecord

COVERAGE = 0.95
MAX_DRAWN = 5_000_000
NEEDED_CLUSTERS = 6
"""Independent groups of requests from which an interval is given."""
_PER_REQUEST = (
    "ttft_s", "ttft_sched_s", "ttfo_s", "tpot_s", "tpot_compat_s", "e2e_s", "e2e_sched_s",
)  # fmt: skip
_POOLED = ("itl_s", "icl_s")


def with_intervals(
    metrics: dict[str, MetricValue], measurement: Measurement, *, draws: int, seed: int
) -> dict[str, MetricValue]:
    """The same metrics with 95 % bootstrap intervals where six or more clusters allow one.

    Percentile bootstrap over clusters of requests (`clusters`), `draws` times, seeded. A rate is
    resampled as the ratio (what the requests brought in the window) / (their seconds in flight in
    it), times the mean concurrency, which a closed loop holds fixed.
    """
    found = resampled(measurement, draws=draws, seed=seed)
    return {
        name: _joined(value, found[name]) if name in found else value
        for name, value in metrics.items()
    }


def resampled(measurement: Measurement, *, draws: int, seed: int) -> dict[str, np.ndarray]:
    """[draws] values of every metric that gets an interval; NaN where a draw has none.

    Metrics that rest on the same requests come from the same resample, draw by draw.
    """
    bootstrap = _Bootstrap(measurement, draws, seed)
    with np.errstate(all="ignore"):  # a draw that is no number is left out where draws are joined
        return {**bootstrap.rates(), **bootstrap.latencies(), **bootstrap.speculation()}


def clusters(requests: Sequence[RequestRecord]) -> np.ndarray:
    """[requests] the number of each one's cluster, from 0.

    Requests whose first chunks came at the same instant were in one batch and move in lockstep:
    they are one observation, not many. A request without a chunk stands alone.
    """
    numbers: dict[object, int] = {}
    keys = [r.chunks[0].time_s if r.chunks else r.request_id for r in requests]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _joined(value: MetricValue, draws: np.ndarray) -> MetricValue:
    finite = draws[np.isfinite(draws)]
    if value.value is None or len(finite) < len(draws) / 2:
        return value
    tail = (1 - COVERAGE) / 2
    low, high = np.quantile(finite, [tail, 1 - tail])
    return replace(value, low=float(low), high=float(high))


@dataclass(frozen=True)
class _Bootstrap:
    """The resampled values of every metric that gets an interval: [draws] each."""

    measurement: Measurement
    draws: int
    seed: int

    def rates(self) -> dict[str, np.ndarray]:
        m = self.measurement
        issued = m.issued
        busy = np.array([m.seconds_inside(r) for r in issued])
        weights = self._weights(issued)
        if weights is None or not m.window_length_s or not busy.sum():
            return {}
        output = np.array([m.tokens_inside(r) for r in issued], dtype=float)
        prompt = np.array(
            [r.prompt_tokens if r.chunks and m.inside(r.chunks[0].time_s) else 0 for r in issued]
        )
        good = {r.request_id for r in m.completed}
        ended = np.array(
            [r.request_id in good and m.inside(r.ended_s) for r in issued], dtype=float
        )
        concurrency = busy.sum() / m.window_length_s

        def rate(brought: np.ndarray) -> np.ndarray:
            return concurrency * _ratio(weights @ brought, weights @ busy)

        found = {
            "output_tok_s": rate(output),
            "total_tok_s": rate(output + prompt),
            "request_s": rate(ended),
        }
        if m.devices:
            found["output_tok_s_device"] = found["output_tok_s"] / m.devices
        return found

    def latencies(self) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for prefix in _PER_REQUEST:
            sampled = [r for r in self.measurement.succeeded if len(samples(prefix, [r]))]
            weights = self._weights(sampled)
            if weights is None:
                continue
            pooled = samples(prefix, sampled)  # [requests]
            found[f"{prefix}_mean"] = _ratio(weights @ pooled, weights.sum(axis=1))
            quantiles = _quantiles(pooled, weights, list(QUANTILES.values()))
            found |= {f"{prefix}_{name}": q for name, q in zip(QUANTILES, quantiles, strict=True)}
        return {**found, **self._pooled(), **self._interactivity()}

    def _pooled(self) -> dict[str, np.ndarray]:
        """Means of families that have many samples a request: requests are what is resampled."""
        found = {}
        for prefix in _POOLED:
            sampled = [r for r in self.measurement.succeeded if len(samples(prefix, [r]))]
            weights = self._weights(sampled)
            if weights is not None:
                each = [samples(prefix, [r]) for r in sampled]
                sums = np.array([one.sum() for one in each])
                counts = np.array([len(one) for one in each])
                found[f"{prefix}_mean"] = _ratio(weights @ sums, weights @ counts)
        return found

    def _interactivity(self) -> dict[str, np.ndarray]:
        timed = [r for r in self.measurement.succeeded if tpot_s(r) is not None]
        weights = self._weights(timed)
        if weights is None:
            return {}
        tokens = np.array([decode_tokens(r) for r in timed])
        seconds = np.array([decode_s(r) for r in timed])
        median, slow = _quantiles(seconds / tokens, weights, [0.5, QUANTILES["p99"]])
        return {
            "tok_s_user": _ratio(weights @ tokens, weights @ seconds),
            "tok_s_user_p50": 1 / median,
            "tok_s_user_p1": 1 / slow,
        }

    def speculation(self) -> dict[str, np.ndarray]:
        ok = self.measurement.succeeded
        weights = self._weights(ok)
        if weights is None:
            return {}
        tallies = np.array(
            [(r.verify_steps, r.proposed_tokens, r.accepted_tokens, r.emitted_tokens) for r in ok]
        )
        steps, proposed, accepted, emitted = (weights @ tallies).T
        return {
            "acceptance_length": _ratio(emitted, steps),
            "acceptance_rate": _ratio(accepted, proposed),
            "verify_efficiency": _ratio(emitted, proposed + steps),
        }

    def _weights(self, requests: Sequence[RequestRecord]) -> np.ndarray | None:
        """[draws, requests] how often each is drawn; None for too few clusters.

        The same for the same clusters, so that draws are paired. Very many requests get fewer
        draws, so that memory stays bounded; their interval is narrow anyway.
        """
        cluster = clusters(requests)
        count = int(cluster.max(initial=-1)) + 1
        if count < NEEDED_CLUSTERS:
            return None
        draws = min(self.draws, max(20, MAX_DRAWN // len(requests)))
        drawn = np.random.default_rng(self.seed).integers(0, count, size=(draws, count))
        places = drawn + count * np.arange(draws)[:, None]
        times = np.bincount(places.ravel(), minlength=draws * count).reshape(draws, count)
        return times[:, cluster]


def _quantiles(pooled: np.ndarray, weights: np.ndarray, wanted: list[float]) -> np.ndarray:
    """[wanted, draws] quantiles of each draw; pooled is [requests], weights [draws, requests]."""
    order = np.argsort(pooled)
    return weighted_quantiles(pooled[order], weights[:, order], wanted)


def _ratio(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    """NaN where there is nothing to divide by."""
    return np.divide(over, under, out=np.full(len(over), np.nan), where=under > 0)


assert set(_PER_REQUEST) | set(_POOLED) == set(FAMILIES), "a latency family has no interval rule"
