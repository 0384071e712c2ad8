"""What the client cost, and what it and the server count. Definitions: `metric_rows_client`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from experiments.measurement import Measurement
from experiments.metric_values import missing, ratio
from experiments.quantiles import quantile_of
from experiments.records import MetricValue, RequestRecord

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
    }


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


def _ratio(
    m: Measurement, counts: Callable[[RequestRecord], tuple[int | None, int]], reason: str
) -> MetricValue:
    told = [(over, under) for over, under in map(counts, m.succeeded) if over is not None]
    return ratio(sum(o for o, _ in told), sum(u for _, u in told), len(told), reason)
