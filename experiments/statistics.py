"""How sure one trial is of its numbers: intervals from resampling its requests.

A within-run interval: it does not cover what differs from run to run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from experiments.measurement import Measurement, decode_s, decode_tokens, samples, tpot_s
from experiments.metric_specs import FAMILIES, QUANTILES
from experiments.records import MetricValue

COVERAGE = 0.95
MAX_DRAWN = 5_000_000
_PER_REQUEST = ("ttft_s", "ttft_sched_s", "tpot_s", "tpot_compat_s", "e2e_s", "e2e_sched_s")
_POOLED = ("itl_s", "icl_s")


def with_intervals(
    metrics: dict[str, MetricValue], measurement: Measurement, *, draws: int, seed: int
) -> dict[str, MetricValue]:
    """The same metrics with 95 % bootstrap intervals where two or more requests allow one.

    Percentile bootstrap over requests, `draws` times, seeded. A rate is resampled as the ratio
    (what the requests brought in the window) / (their seconds in flight in it), times the mean
    concurrency, which a closed loop holds fixed.
    """
    bootstrap = _Bootstrap(measurement, draws, seed)
    found = {**bootstrap.rates(), **bootstrap.latencies(), **bootstrap.speculation()}
    return {
        name: _joined(value, found[name]) if name in found else value
        for name, value in metrics.items()
    }


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
        if len(issued) < 2 or not m.window_length_s or not busy.sum():
            return {}
        output = np.array([m.tokens_inside(r) for r in issued], dtype=float)
        prompt = np.array(
            [r.prompt_tokens if r.chunks and m.inside(r.chunks[0].time_s) else 0 for r in issued]
        )
        good = {r.request_id for r in m.succeeded}
        ended = np.array(
            [r.request_id in good and m.inside(r.ended_s) for r in issued], dtype=float
        )
        concurrency = busy.sum() / m.window_length_s
        index = self._index(len(issued))

        def rate(brought: np.ndarray) -> np.ndarray:
            return concurrency * _ratio(brought[index].sum(axis=1), busy[index].sum(axis=1))

        found = {
            "output_tok_s": rate(output),
            "total_tok_s": rate(output + prompt),
            "request_s": rate(ended),
        }
        if m.devices:
            found["output_tok_s_device"] = found["output_tok_s"] / m.devices
        return found

    def latencies(self) -> dict[str, np.ndarray]:
        ok = self.measurement.succeeded
        found: dict[str, np.ndarray] = {}
        for prefix in _PER_REQUEST:
            pooled = samples(prefix, ok)
            if len(pooled) < 2:
                continue
            drawn = pooled[self._index(len(pooled))]  # [draws, requests]
            found[f"{prefix}_mean"] = drawn.mean(axis=1)
            quantiles = np.quantile(drawn, list(QUANTILES.values()), axis=1)
            found |= {f"{prefix}_{name}": q for name, q in zip(QUANTILES, quantiles, strict=True)}
        return {**found, **self._pooled(), **self._interactivity()}

    def _pooled(self) -> dict[str, np.ndarray]:
        """Means of families that have many samples a request: requests are what is resampled."""
        found = {}
        for prefix in _POOLED:
            each = [samples(prefix, [r]) for r in self.measurement.succeeded]
            sums = np.array([one.sum() for one in each])
            counts = np.array([len(one) for one in each])
            if np.count_nonzero(counts) >= 2:
                index = self._index(len(each))
                found[f"{prefix}_mean"] = _ratio(sums[index].sum(axis=1), counts[index].sum(axis=1))
        return found

    def _interactivity(self) -> dict[str, np.ndarray]:
        timed = [r for r in self.measurement.succeeded if tpot_s(r) is not None]
        if len(timed) < 2:
            return {}
        index = self._index(len(timed))
        tokens = np.array([decode_tokens(r) for r in timed])[index]
        seconds = np.array([decode_s(r) for r in timed])[index]
        each = seconds / tokens
        return {
            "tok_s_user": tokens.sum(axis=1) / seconds.sum(axis=1),
            "tok_s_user_p50": np.median(1 / each, axis=1),
            "tok_s_user_p1": 1 / np.quantile(each, QUANTILES["p99"], axis=1),
        }

    def speculation(self) -> dict[str, np.ndarray]:
        ok = self.measurement.succeeded
        if len(ok) < 2:
            return {}
        index = self._index(len(ok))
        tallies = [
            (r.verify_steps, r.proposed_tokens, r.accepted_tokens, r.emitted_tokens) for r in ok
        ]
        steps, proposed, accepted, emitted = (
            np.array(column)[index].sum(axis=1) for column in zip(*tallies, strict=True)
        )
        return {
            "acceptance_length": _ratio(emitted, steps),
            "acceptance_rate": _ratio(accepted, proposed),
            "verify_efficiency": _ratio(emitted, proposed + steps),
        }

    def _index(self, count: int) -> np.ndarray:
        """Rows to draw: [draws, count]. The same for equal counts, so that draws are paired.

        Very many requests get fewer draws, so that memory stays bounded; their interval is
        narrow anyway.
        """
        draws = min(self.draws, max(20, MAX_DRAWN // count))
        return np.random.default_rng(self.seed).integers(0, count, size=(draws, count))


def _ratio(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    """NaN where there is nothing to divide by."""
    return np.divide(over, under, out=np.full(len(over), np.nan), where=under > 0)


assert set(_PER_REQUEST) | set(_POOLED) == set(FAMILIES), "a latency family has no interval rule"
