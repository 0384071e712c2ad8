"""From chunks and tallies to metrics. A number that cannot be had is None with its reason.

Definitions: `METRICS`. Every latency is over successful requests that are not warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.device_metrics import device_metrics
from experiments.gate_limits import Slo
from experiments.goodput import goodput
from experiments.measurement import (
    Measurement,
    cancelled,
    decode_s,
    decode_tokens,
    e2e_s,
    in_flight_s,
    samples,
    succeeded,
    tpot_s,
)
from experiments.metric_specs import (
    FAMILIES,
    METRICS,
    QUANTILES,
    Direction,
    MetricSpec,
)
from experiments.metric_values import NO_END_INSIDE, NO_SUCCESS, finite, missing, ratio
from experiments.records import MetricValue, RequestRecord
from experiments.speculation import speculation

__all__ = ["METRICS", "Direction", "MetricSpec", "measure", "needed_samples"]


NO_TOKEN_INSIDE = "no token came inside the window"
BETWEEN_TOKENS = ("tpot_s", "tpot_compat_s", "itl_s", "icl_s")


def needed_samples(quantile: float) -> int:
    """Samples from which a quantile is shown: 2 ceil(1 / (1 - p)), 200 for p99."""
    return 2 * math.ceil(round(1 / (1 - quantile), 9))


def measure(measurement: Measurement, slo: Slo | None = None) -> dict[str, MetricValue]:
    """Every metric of `METRICS`, in its order; `slo` is what goodput is held against."""
    values = {
        **_rates(measurement),
        **goodput(measurement, slo),
        **_latencies(measurement),
        **speculation(measurement),
        **_load(measurement),
        **_engine(measurement),
        **device_metrics(measurement),
    }
    return {name: finite(values[name]) for name in METRICS}


def _rates(m: Measurement) -> dict[str, MetricValue]:
    ok, window = m.completed, m.window_length_s
    output = sum(m.tokens_inside(r) for r in m.issued)
    prompt = sum(r.prompt_tokens for r in m.issued if r.chunks and m.inside(r.chunks[0].time_s))
    ended = sum(m.inside(r.chunks[-1].time_s) for r in ok)
    sent = sum(m.inside(r.sent_s) for r in m.issued)

    def rate(count: float) -> MetricValue:
        return ratio(count, window, len(ok), "the window is empty") if ok else missing(NO_SUCCESS)

    def seen(count: float, reason: str) -> MetricValue:
        """A rate, unless requests succeeded and nothing of them fell into the window."""
        return rate(count) if count or not ok else missing(reason, len(ok))

    output_rate = seen(output, NO_TOKEN_INSIDE)
    return {
        "output_tok_s": output_rate,
        "output_tok_s_device": _per_device(output_rate, m.devices),
        "total_tok_s": seen(output + prompt, NO_TOKEN_INSIDE),
        "request_s": seen(ended, NO_END_INSIDE),
        "achieved_request_s": ratio(sent, window, len(m.issued), "the window is empty"),
        "request_rate_ratio": _kept_schedule(sent, m),
        **_interactivity(m.succeeded),
    }


def _kept_schedule(sent: int, m: Measurement) -> MetricValue:
    if m.due_requests is None:
        return missing("a closed loop has no schedule", len(m.issued))
    return ratio(sent, m.due_requests, m.due_requests, "no request was due in the window")


def _per_device(rate: MetricValue, devices: int | None) -> MetricValue:
    if not devices:
        return missing("the number of devices is not known", rate.n)
    if rate.value is None:
        return rate
    return MetricValue(value=rate.value / devices, n=rate.n)


def _interactivity(ok: Sequence[RequestRecord]) -> dict[str, MetricValue]:
    timed = [r for r in ok if tpot_s(r) is not None]
    tpots = samples("tpot_s", ok)
    if not timed:
        reason = _why_no_tpot(ok)
        return {name: missing(reason) for name in ("tok_s_user", "tok_s_user_p50", "tok_s_user_p1")}
    harmonic = sum(map(decode_tokens, timed)) / sum(map(decode_s, timed))
    slow = _quantile(tpots, QUANTILES["p99"], "")
    return {
        "tok_s_user": MetricValue(value=harmonic, n=len(timed)),
        "tok_s_user_p50": _quantile(1 / tpots, QUANTILES["p50"], ""),
        "tok_s_user_p1": slow
        if slow.value is None
        else MetricValue(value=1 / slow.value, n=len(timed)),
    }


def _why_no_tpot(ok: Sequence[RequestRecord]) -> str:
    if not ok:
        return NO_SUCCESS
    if all(len(r.chunks) == 1 for r in ok):
        return "every output came in one chunk: there is no time between tokens"
    return "no time passed between the chunks of any request"


def _latencies(m: Measurement) -> dict[str, MetricValue]:
    values: dict[str, MetricValue] = {}
    for prefix in FAMILIES:
        pooled = samples(prefix, m.succeeded)
        empty = _why_no_tpot(m.succeeded) if prefix in BETWEEN_TOKENS else NO_SUCCESS
        values[f"{prefix}_mean"] = (
            MetricValue(value=float(pooled.mean()), n=len(pooled))
            if len(pooled)
            else missing(empty)
        )
        for name, quantile in QUANTILES.items():
            values[f"{prefix}_{name}"] = _quantile(pooled, quantile, empty)
    return {**values, **_adjusted(m)}


def _quantile(pooled: np.ndarray, quantile: float, empty: str) -> MetricValue:
    n, needed = len(pooled), needed_samples(quantile)
    if n == 0:
        return missing(empty)
    if n < needed:
        return missing(f"n={n} < {needed}", n)
    return MetricValue(value=float(np.quantile(pooled, quantile)), n=n)


def _adjusted(m: Measurement) -> dict[str, MetricValue]:
    times = [e2e_s(r) if succeeded(r) else math.inf for r in m.issued]
    values = {}
    for name in ("p90", "p99"):
        n, needed = len(times), needed_samples(QUANTILES[name])
        if n < needed:
            values[f"e2e_s_{name}_adj"] = missing(f"n={n} < {needed}", n)
            continue
        value = float(np.quantile(np.array(times), QUANTILES[name], method="higher"))
        values[f"e2e_s_{name}_adj"] = (
            MetricValue(value=value, n=n)
            if math.isfinite(value)
            else missing("so many requests failed that it is infinite", n)
        )
    return values


def _load(m: Measurement) -> dict[str, MetricValue]:
    ok, issued = m.succeeded, m.issued
    failed = sum(not succeeded(r) and not cancelled(r) for r in issued)
    length = m.window_length_s

    def count(value: int) -> MetricValue:
        return MetricValue(value=float(value), n=len(issued))

    return {
        "concurrency_mean": _concurrency(m),
        "concurrency_peak": count(_peak(m)) if issued else missing("nothing was sent"),
        "littles_law": _littles_law(m),
        "prompt_tokens": count(sum(r.prompt_tokens for r in ok)) if ok else missing(NO_SUCCESS),
        "output_tokens": count(sum(r.output_tokens for r in ok)) if ok else missing(NO_SUCCESS),
        "completed_requests": count(len(ok)),
        "failed_requests": count(failed),
        "cancelled_requests": count(sum(map(cancelled, issued))),
        "error_rate": ratio(failed, len(issued), len(issued), "nothing was sent"),
        "duration_s": MetricValue(value=length, n=1) if length else missing("the window is empty"),
    }


def _concurrency(m: Measurement) -> MetricValue:
    if not m.issued:
        return missing("nothing was sent")
    busy = sum(m.seconds_inside(r) for r in m.issued)
    return ratio(busy, m.window_length_s, len(m.issued), "the window is empty")


def _peak(m: Measurement) -> int:
    """An end and a start at one instant do not overlap: a slot was handed on."""
    events = []
    for request in m.issued:
        start, end = in_flight_s(request, m.window_s[1])
        if start <= m.window_s[1] and end >= m.window_s[0]:
            events += [(start, 1), (end, -1)]
    level = peak = 0
    for _, change in sorted(events):
        level += change
        peak = max(peak, level)
    return peak


def _littles_law(m: Measurement) -> MetricValue:
    busy = _concurrency(m)
    if not m.succeeded or not busy.value:
        return missing(NO_SUCCESS if not m.succeeded else busy.reason or "nothing was in flight")
    sent = sum(m.inside(r.sent_s) for r in m.issued)
    ended = sum(m.inside(r.ended_s) for r in m.issued)
    mean_e2e = float(samples("e2e_s", m.succeeded).mean())
    rate = (sent + ended) / 2 / m.window_length_s
    return MetricValue(value=rate * mean_e2e / busy.value, n=len(m.succeeded))


def _engine(m: Measurement) -> dict[str, MetricValue]:
    ok = m.succeeded
    prompt = sum(r.prompt_tokens for r in ok)
    run, skipped = (m.counters.get(f"decoder_rows_{name}") for name in ("run", "skipped"))
    untold = "this engine does not count decoder rows"
    return {
        "cache_hit_rate": ratio(sum(r.cached_tokens for r in ok), prompt, len(ok), NO_SUCCESS),
        "preemptions": MetricValue(
            value=float(sum(r.preemptions for r in m.issued)), n=len(m.issued)
        )
        if m.issued
        else missing("nothing was sent"),
        "decoder_rows_run": missing(untold) if run is None else MetricValue(value=run, n=1),
        "decoder_rows_skipped": missing(untold)
        if skipped is None
        else MetricValue(value=skipped, n=1),
        "decoder_rows_skipped_share": missing(untold)
        if run is None or skipped is None
        else ratio(skipped, run + skipped, 1, "no row was run"),
        **_host(m),
    }


def _host(m: Measurement) -> dict[str, MetricValue]:
    inside = [s for s in m.telemetry if m.inside(s.time_s)]
    cpu = [s.cpu_percent for s in inside if s.cpu_percent is not None]
    memory = [s.memory_bytes for s in inside if s.memory_bytes is not None]
    none = "the host was not sampled in the window"
    return {
        "cpu_percent": MetricValue(value=sum(cpu) / len(cpu), n=len(cpu)) if cpu else missing(none),
        "memory_peak_bytes": MetricValue(value=float(max(memory)), n=len(memory))
        if memory
        else missing(none),
    }
