"""From chunks and tallies to metrics. A number that cannot be had is None with its reason.

Definitions: `METRICS`. Every latency is over successful requests that are not warm-up.
"""

from __future__ import annotations

from experiments.client_metrics import client_metrics
from experiments.device_metrics import device_metrics
from experiments.foreign_cpu import foreign_cpu_percent
from experiments.gate_limits import Slo
from experiments.goodput import goodput
from experiments.latencies import interactivity, latencies
from experiments.load_metrics import load_metrics
from experiments.measurement import (
    Measurement,
    cancelled,
    in_flight_s,
    lost,
    samples,
    succeeded,
)
from experiments.metric_rows_evals import EVALS
from experiments.metric_rows_validity import AGREEMENT
from experiments.metric_specs import METRICS, Direction, MetricSpec
from experiments.metric_values import NO_END_INSIDE, NO_SUCCESS, finite, missing, ratio
from experiments.quantiles import needed_samples
from experiments.records import MetricValue
from experiments.speculation import speculation
from experiments.steady import BIN_S, NEEDED_BINS, drift

__all__ = ["METRICS", "Direction", "MetricSpec", "measure", "needed_samples"]


NO_TOKEN_INSIDE = "no token came inside the window"
NAMES_OF_AGREEMENT = tuple(row[0] for row in AGREEMENT)
NAMES_OF_EVALS = tuple(row[0] for row in EVALS)
NO_EVAL = "the workload is no eval"
NOT_COMPARED = "held against other trials of its run when that is read"


def measure(measurement: Measurement, slo: Slo | None = None) -> dict[str, MetricValue]:
    """Every metric of `METRICS`, in its order; `slo` is what goodput is held against."""
    values = {
        **_rates(measurement),
        **goodput(measurement, slo),
        **latencies(measurement),
        **speculation(measurement),
        **_load(measurement),
        **_accounts(measurement),
        **{name: missing(NOT_COMPARED) for name in NAMES_OF_AGREEMENT},
        **{name: missing(NO_EVAL) for name in NAMES_OF_EVALS},
        **_engine(measurement),
        **device_metrics(measurement),
        **load_metrics(measurement),
        **client_metrics(measurement),
        "foreign_cpu_percent": foreign_cpu_percent(measurement),
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
        **interactivity(m.succeeded),
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


def _load(m: Measurement) -> dict[str, MetricValue]:
    ok, issued = m.completed, m.issued
    failed = sum(not (succeeded(r) or cancelled(r) or lost(r)) for r in issued)
    unanswered = failed + sum(map(lost, issued))
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
        "error_rate": ratio(unanswered, len(issued), len(issued), "nothing was sent"),
        "duration_s": MetricValue(value=length, n=1) if length else missing("the window is empty"),
    }


def _accounts(m: Measurement) -> dict[str, MetricValue]:
    issued, moved = m.issued, drift(m)
    told = [r.prompt_hash for r in issued if r.prompt_hash is not None]
    short = f"the window is shorter than {NEEDED_BINS * BIN_S:.0f} s, or is in pieces"
    return {
        "issued_requests": MetricValue(value=float(len(issued)), n=len(issued)),
        "lost_requests": MetricValue(value=float(sum(map(lost, issued))), n=len(issued)),
        "distinct_prompts": MetricValue(value=float(len(set(told))), n=len(told))
        if told
        else missing("no prompt was kept"),
        "ramp_s": missing(short) if moved is None else MetricValue(value=m.ramp_s, n=1),
        "drift": missing(short)
        if moved is None
        else MetricValue(
            value=moved.share, n=1, low=moved.share - moved.error, high=moved.share + moved.error
        ),
    }


def _concurrency(m: Measurement) -> MetricValue:
    if not m.issued:
        return missing("nothing was sent")
    busy = sum(m.seconds_inside(r) for r in m.issued)
    return ratio(busy, m.window_length_s, len(m.issued), "the window is empty")


def _peak(m: Measurement) -> int:
    """An end and a start at one instant do not overlap: a slot was handed on."""
    events: list[tuple[float, int]] = []
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
    untold = m.counters_reason or "this engine does not count decoder rows"
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
