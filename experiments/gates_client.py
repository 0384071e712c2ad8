"""Gates on the load generator, where it has processes of its own: was it the bottleneck?

A target in this process has none: its engine and the sending take turns, by design.
"""

from __future__ import annotations

from collections import Counter

from experiments.client_metrics import client_cpu_percent, client_lags_s, highest, over_http
from experiments.gate_parts import Evidence, not_judged, verdict
from experiments.records import Gate

CLIENT_DIED = "client_died"
"""`RequestRecord.error_kind` of what a client process had sent when it died."""


def client_processes(evidence: Evidence) -> Gate | None:
    """Every client process lived to the end of the trial."""
    records = (*evidence.warm_up, *evidence.measurement.requests)
    died = Counter(r.worker for r in records if r.error_kind == CLIENT_DIED)
    if not died and not over_http(evidence.measurement):
        return None
    said = ", ".join(f"client {worker} with {n} requests" for worker, n in sorted(died.items()))
    return verdict(
        "client_processes",
        passed=not died,
        value=float(len(died)),
        limit=0.0,
        message=f"died: {said}" if died else "every client process lived",
    )


def client_lag(evidence: Evidence) -> Gate | None:
    """How late requests were sent against the instant at which they could leave the client.

    That is their schedule; where the load holds them back, the slot that fell free.
    """
    limit = evidence.limits.client_lag_s
    if limit is None or not over_http(evidence.measurement):
        return None
    lags = client_lags_s(evidence.measurement)
    if not lags:
        return not_judged("client_lag", None, limit, "nothing was sent")
    value = highest(lags, 0.99)
    return verdict(
        "client_lag",
        passed=value <= limit,
        value=value,
        limit=limit,
        message=f"sent {1e3 * value:.1f} ms late at the 99th percentile (limit {1e3 * limit:g} ms)"
        + ("" if value <= limit else "; use more clients, or a quieter host"),
    )


def client_cpu(evidence: Evidence) -> Gate | None:
    """Mean share of a core that the busiest client process took in the window."""
    limit = evidence.limits.client_cpu_percent
    if limit is None or not over_http(evidence.measurement):
        return None
    told = client_cpu_percent(evidence.measurement)
    if not told:
        return not_judged("client_cpu", None, limit, "the clients were not sampled in the window")
    value = sum(told) / len(told)
    return verdict(
        "client_cpu",
        passed=value <= limit,
        value=value,
        limit=limit,
        message=f"the busiest client took {value:.0f} % of a core (limit {limit:g} %)"
        + ("" if value <= limit else "; use more clients"),
    )
