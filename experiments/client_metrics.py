"""What the client cost, and what it and the server count. Definitions: `metric_rows_client`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from experiments.measurement import Measurement, decode_s, decode_tokens, tpot_s
from experiments.metric_values import missing, ratio
from experiments.quantiles import quantile_of
from experiments.records import MetricValue, RequestRecord

NOT_HTTP = "no request went over HTTP"
NO_CLIENT = "the engine runs in this process: sending has no cost of its own"


def over_http(m: Measurement) -> bool:
    """Only what goes over a connection has an instant at which that is closed."""
    return any(request.closed_s is not None for request in m.issued)


def client_lags_s(m: Measurement) -> list[float]:
    """How late each request was sent, against its schedule or the slot that fell free."""
    return [
        request.sent_s - request.dispatched_s
        for request in m.issued
        if request.sent_s is not None and request.dispatched_s is not None
    ]


def client_cpu_percent(m: Measurement) -> list[float]:
    """Samples in the window, each of the client process that took most of a core."""
    return [
        sample.client_cpu_percent
        for sample in m.telemetry
        if sample.client_cpu_percent is not None and m.inside(sample.time_s)
    ]


def highest(values: list[float], quantile: float) -> float:
    """The quantile as one of the values: of a few, the largest."""
    return float(np.quantile(values, quantile, method="higher"))


def client_metrics(m: Measurement) -> dict[str, MetricValue]:
    """Every metric of `metric_rows_client`."""
    return {
        "client_lag_s_p50": _lag(m, 0.5),
        "client_lag_s_p99": _lag(m, 0.99),
        "client_cpu_percent": _cpu(m),
        "resent_requests": _resent(m),
        "retokenised_ratio": _ratio(
            m,
            lambda r: (r.retokenised_tokens, r.output_tokens),
            "the client has no tokenizer, or the engine gives ids itself",
        ),
        "server_prompt_ratio": _ratio(
            m,
            lambda r: (r.server_prompt_tokens, r.prompt_tokens),
            "no server says how it counted the prompts",
        ),
        "server_tpot_ratio": _server_tpot(m),
    }


def _server_tpot(m: Measurement) -> MetricValue:
    """The first histogram that the server keeps, over what the clients saw of the same thing."""
    for histogram, seen in _TOKEN_TIMES:
        seconds, count = (_grown(m, f"{histogram}_{part}") for part in ("sum", "count"))
        if seconds is not None and count:
            ours = seen(m.succeeded)
            return ratio(seconds / count, ours or 0.0, round(count), "no client saw two tokens")
    untold = "the server keeps no histogram of its token times, or none was asked for"
    return missing(m.counters_reason or untold)


def _grown(m: Measurement, name: str) -> float | None:
    """Growth of a server's counter, whatever stands before a colon in its name."""
    return next((v for k, v in m.counters.items() if k.rpartition(":")[2] == name), None)


def _mean_tpot(requests: Sequence[RequestRecord]) -> float | None:
    told = [found for request in requests if (found := tpot_s(request)) is not None]
    return sum(told) / len(told) if told else None


def _mean_gap(requests: Sequence[RequestRecord]) -> float | None:
    """Of tokens, not of chunks."""
    timed = [request for request in requests if tpot_s(request) is not None]
    tokens = sum(decode_tokens(request) for request in timed)
    return sum(decode_s(request) for request in timed) / tokens if tokens else None


_TOKEN_TIMES: tuple[tuple[str, Callable[[Sequence[RequestRecord]], float | None]], ...] = (
    ("request_time_per_output_token_seconds", _mean_tpot),
    ("inter_token_latency_seconds", _mean_gap),
    ("time_per_output_token_seconds", _mean_gap),
)
"""Histograms of servers, under the names that vLLM and SGLang give them."""


def _lag(m: Measurement, quantile: float) -> MetricValue:
    if not over_http(m):
        return missing(NO_CLIENT)
    lags = np.array(client_lags_s(m), dtype=float)
    once = np.ones(len(lags), dtype=np.int64)
    return quantile_of(lags, once, quantile, empty="nothing was sent", independent=len(lags))


def _cpu(m: Measurement) -> MetricValue:
    if not over_http(m):
        return missing(NO_CLIENT)
    told = client_cpu_percent(m)
    return ratio(sum(told), len(told), len(told), "the clients were not sampled in the window")


def _resent(m: Measurement) -> MetricValue:
    told = [request.resent for request in m.issued if request.resent is not None]
    return MetricValue(value=float(sum(told)), n=len(told)) if told else missing(NOT_HTTP)


def _ratio(
    m: Measurement, counts: Callable[[RequestRecord], tuple[int | None, int]], reason: str
) -> MetricValue:
    told = [(over, under) for over, under in map(counts, m.succeeded) if over is not None]
    return ratio(sum(o for o, _ in told), sum(u for _, u in told), len(told), reason)
