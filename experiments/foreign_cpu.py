"""What else the processors of this host did while a trial was measured."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from experiments.gate_parts import Evidence, not_judged, verdict
from experiments.measurement import Measurement
from experiments.metric_rows import Rows
from experiments.metric_values import missing
from experiments.records import Gate, MetricValue

NAME = "foreign_cpu_percent"
SAID_ABOVE = 20.0  # percent of all processors, from which every page must say it
OTHER_WORK = f"other work used more than {SAID_ABOVE:.0f} % of the processors"
NOT_SAMPLED = "the host was not sampled in the window"
BESIDE = "the server may run on this host, and its work is not told from that of others"

ROWS: Rows = (
    (
        NAME,
        "Other work on the processors",
        "%",
        "min",
        "mean of window",
        "processor time that neither the measuring process nor those it started took, of all "
        "processors of the host; missing where the server that is measured may run on this host",
    ),
)


def foreign_cpu_percent(m: Measurement) -> MetricValue:
    """Of all processors, over the samples of the window that hold both sides."""
    if m.server_beside:
        return missing(BESIDE)
    told = [
        s.cpu_percent - s.own_cpu_percent
        for s in m.telemetry
        if m.inside(s.time_s) and s.cpu_percent is not None and s.own_cpu_percent is not None
    ]
    if not told:
        return missing(NOT_SAMPLED)
    return MetricValue(value=min(100.0, max(0.0, sum(told) / len(told))), n=len(told))


def foreign_label(percent: float | None) -> str | None:
    """What must be said of a trial beside which others worked; None where they did not."""
    return None if percent is None or percent <= SAID_ABOVE else OTHER_WORK


def foreign_cpu(evidence: Evidence) -> Gate | None:
    """The gate: other work at most so many percent of all processors; off unless a plan asks."""
    limit, found = evidence.limits.foreign_cpu_percent, evidence.metrics.get(NAME)
    if limit is None:
        return None
    if found is None or found.value is None:
        return not_judged("foreign_cpu", None, limit, str(found.reason if found else NOT_SAMPLED))
    return verdict(
        "foreign_cpu",
        passed=found.value <= limit,
        value=found.value,
        limit=limit,
        message=f"other work used {found.value:.0f} % of the processors (limit {limit:g} %)",
    )


def on_this_host(url: str) -> bool:
    """Whether an address leads back to this host, as far as its name alone tells."""
    host = (urlsplit(url).hostname or "").casefold()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", socket.gethostname().casefold())
