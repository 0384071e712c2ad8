"""Gates on time: warm before, steady during, and long enough."""

from __future__ import annotations

from experiments.gate_parts import Evidence, not_judged, verdict
from experiments.measurement import Measurement, e2e_s, in_flight_s, lost
from experiments.records import Gate
from experiments.steady import BIN_S, NEEDED_BINS, drift
from experiments.warm_up import STABLE_ROUNDS, variation

LITTLE_NEEDS_TURNS = 5
"""Completions a slot from which Little's law is judged: below, the edges are the window."""


def warm_up(evidence: Evidence) -> Gate | None:
    """Nothing of the warm-up is left over, and its last rounds went equally fast.

    Rounds that never settled are not judged: the measurement has gates of its own for that.
    """
    left = sum(map(lost, evidence.warm_up))
    if left:
        message = f"{left} warm-up requests never ended and may run beside the measured ones"
        return verdict("warm_up", passed=False, value=float(left), limit=0.0, message=message)
    limit, rounds = evidence.protocol.warm_up_cv, evidence.warm_up_rounds
    if limit is None:
        return None
    found = variation(rounds)
    if found is None:
        few = f"{len(rounds)} rounds fitted into protocol.limit_s, {STABLE_ROUNDS} are needed"
        return not_judged("warm_up", None, limit, few)
    said = f"the last {STABLE_ROUNDS} of {len(rounds)} rounds vary by {found:.1%}"
    if found > limit:
        return not_judged("warm_up", found, limit, f"{said} and had not settled")
    return verdict("warm_up", passed=True, value=found, limit=limit, message=said)


def window_length(evidence: Evidence) -> Gate | None:
    """As long as the protocol wants, in times of the median E2E."""
    measurement, needed = evidence.measurement, evidence.protocol.measured_e2e
    times = sorted(e2e_s(r) for r in measurement.succeeded)
    if not needed or not times:
        return None
    median = times[len(times) // 2]
    found = (measurement.window_length_s + measurement.ramp_s) / median if median > 0 else None
    if found is None:
        return None
    few = found < needed
    return verdict(
        "window_length",
        passed=not few,
        value=found,
        limit=needed,
        message=f"the window is {found:.1f} times the median E2E of {median:.3g} s"
        + ("; raise protocol.limit_s" if few else ""),
    )


def steady_state(evidence: Evidence) -> Gate | None:
    """Throughput neither grows nor falls along the window, by the slope of a straight line."""
    limit = evidence.limits.drift
    if limit is None or evidence.measurement.windows_s:
        return None
    found = drift(evidence.measurement)
    if found is None:
        length_s = evidence.measurement.window_length_s
        short = f"the window is {length_s:.3g} s long, {NEEDED_BINS * BIN_S:.0f} s are needed"
        return not_judged("steady_state", None, limit, short)
    said = f"throughput moves by {found.share:+.1%} +- {found.error:.1%} along the window"
    if abs(found.share) > limit and not found.clearly_above(limit):
        return not_judged("steady_state", abs(found.share), limit, f"{said}: too rough to say")
    return verdict(
        "steady_state",
        passed=abs(found.share) <= limit,
        value=abs(found.share),
        limit=limit,
        message=said,
    )


def littles_law(evidence: Evidence) -> Gate | None:
    """What was in flight at an edge of the window counts there in part, which blurs the ratio.

    Of a burst that is much more than the load's mean, so that those requests are counted.
    """
    tolerance, ratio = evidence.limits.littles_law, evidence.number("littles_law")
    if tolerance is None or evidence.measurement.windows_s:
        return None
    needed = LITTLE_NEEDS_TURNS * (evidence.batch_size or 1)
    completed = len(evidence.measurement.succeeded)
    if ratio is None or completed < needed:
        few = f"{completed} requests completed, {needed} needed"
        return not_judged("littles_law", ratio, tolerance, few)
    limit = tolerance + _at_the_edges(evidence.measurement) / completed
    return verdict(
        "littles_law",
        passed=abs(ratio - 1) <= limit,
        value=ratio,
        limit=limit,
        message=f"rate x E2E / concurrency is {ratio:.3f}, not 1 +- {limit:.2f}",
    )


def _at_the_edges(measurement: Measurement) -> int:
    """Requests in flight when the window began or ended."""
    flights = [in_flight_s(r, measurement.window_s[1]) for r in measurement.issued]
    return sum(any(begin < edge < end for edge in measurement.window_s) for begin, end in flights)
