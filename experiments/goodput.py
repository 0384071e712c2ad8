"""Requests that were fast enough, by the limits that the plan states. Definitions: `METRICS`."""

from __future__ import annotations

from experiments.gate_limits import Slo
from experiments.measurement import Measurement, e2e_s, succeeded, tpot_s, ttft_s
from experiments.metric_values import NO_END_INSIDE, missing, ratio
from experiments.records import MetricValue, RequestRecord

NO_LIMITS = "the plan states no slo"


def goodput(m: Measurement, slo: Slo | None) -> dict[str, MetricValue]:
    """goodput and goodput_fraction; missing where the plan states no limits."""
    if slo is None:
        return {name: missing(NO_LIMITS) for name in ("goodput", "goodput_fraction")}
    good = [r for r in m.issued if meets(r, slo)]
    inside = sum(m.inside(r.chunks[-1].time_s) for r in good)
    count = len(m.issued)
    unseen = bool(m.succeeded) and not any(m.inside(r.chunks[-1].time_s) for r in m.succeeded)
    return {
        "goodput": missing(NO_END_INSIDE, count)
        if unseen
        else ratio(inside, m.window_length_s, count, "the window is empty"),
        "goodput_fraction": ratio(len(good), count, count, "nothing was sent"),
    }


def meets(request: RequestRecord, slo: Slo) -> bool:
    """Succeeded and within every limit.

    A request of one token has no TPOT and meets any; one whose tokens came in one chunk has
    none that could be measured, and meets none.
    """
    if not succeeded(request):
        return False
    found = {"ttft_s": ttft_s(request), "e2e_s": e2e_s(request), "tpot_s": tpot_s(request)}
    if sum(chunk.tokens for chunk in request.chunks) == 1:
        found["tpot_s"] = 0.0
    return all(
        limit is None or (value is not None and value <= limit)
        for value, limit in ((found[name], getattr(slo, name)) for name in found)
    )
