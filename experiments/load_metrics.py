"""Metrics of the forms of load: queue, rounds, sessions. Definitions: `metric_rows_load`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from experiments.measurement import Measurement, Window
from experiments.metric_values import NO_SUCCESS, missing, ratio
from experiments.records import MetricValue, RequestRecord
from experiments.resampling import t_quantile

WHOLE_REQUEST = (
    "total_tok_s",
    "request_s",
    "achieved_request_s",
    "goodput",
    "littles_law",
    "energy_j_request",
    "energy_j_total_token",
)
"""Metrics of whole requests: a window in which a full batch decodes holds no sending."""
NEEDED_ROUNDS = 3
"""Rounds from which an interval over rounds is given."""
_NO_ROUNDS = "this load has no rounds"
_NO_WINDOW = "no round has a window"


def load_metrics(m: Measurement) -> dict[str, MetricValue]:
    """Every metric of `metric_rows_load`, and those that rounds make meaningless as missing."""
    return {
        **_queue(m),
        "requested_output_tokens": _requested(m),
        **_rounds(m),
        **_sessions(m),
        **(_without_whole_requests() if m.spread_tokens else {}),
    }


def _without_whole_requests() -> dict[str, MetricValue]:
    reason = "a full-batch window holds the decoding of a batch and no whole request"
    return {name: missing(reason) for name in WHOLE_REQUEST}


def _queue(m: Measurement) -> dict[str, MetricValue]:
    unsent = m.tally.unsent if m.tally else None
    length, due = m.window_length_s, m.due_requests
    no_schedule = "this load has no schedule"
    if unsent is None:
        return {
            "offered_request_s": missing(no_schedule) if due is None else _offered(due, length),
            "queue_s_mean": missing("the client holds no request back in this load"),
            "unsent_requests": missing("the client holds no request back in this load"),
        }
    waits = [r.dispatched_s - r.intended_s for r in m.issued if r.dispatched_s is not None]
    return {
        "offered_request_s": missing(no_schedule) if due is None else _offered(due, length),
        "queue_s_mean": MetricValue(value=float(np.mean(waits)), n=len(waits))
        if waits
        else missing("nothing was sent"),
        "unsent_requests": MetricValue(value=float(unsent), n=len(m.issued) + unsent),
    }


def _offered(due: int, length_s: float) -> MetricValue:
    return ratio(due, length_s, due, "the window is empty")


def _requested(m: Measurement) -> MetricValue:
    ok = m.succeeded
    total = float(sum(r.requested_output_tokens for r in ok))
    return MetricValue(value=total, n=len(ok)) if ok else missing(NO_SUCCESS)


def _rounds(m: Measurement) -> dict[str, MetricValue]:
    rounds = m.tally.rounds if m.tally else None
    if rounds is None:
        names = ("rounds", "rounds_left_out", "prefill_tok_s", "decode_step_s")
        return dict.fromkeys(names, missing(_NO_ROUNDS))
    total = rounds.measured + rounds.left_out
    return {
        "rounds": MetricValue(value=float(rounds.measured), n=total),
        "rounds_left_out": MetricValue(value=float(rounds.left_out), n=total),
        "prefill_tok_s": _prefill(m)
        if rounds.prefill
        else missing("only a prefill_step load measures prefills by themselves"),
        "decode_step_s": missing("a prefill step makes one token a request")
        if rounds.prefill
        else _decode_step(m),
    }


def _prefill(m: Measurement) -> MetricValue:
    """In the window of a round lies every sending of it, and no other."""
    sent = [(r.sent_s, r.prompt_tokens) for r in m.succeeded if r.sent_s is not None]
    tokens = [sum(n for at, n in sent if start <= at < end) for start, end in m.windows_s]
    return over_rounds(tokens, [end - start for start, end in m.windows_s], len(m.windows_s))


def _decode_step(m: Measurement) -> MetricValue:
    steps = [[gap for r in m.succeeded for gap in _steps(r, window)] for window in m.windows_s]
    return over_rounds([sum(s) for s in steps], [len(s) for s in steps], sum(map(len, steps)))


def _steps(request: RequestRecord, window: Window) -> list[float]:
    """Gaps between chunks of a request that lie in the window as a whole."""
    start, end = window
    times = [chunk.time_s for chunk in request.chunks if start <= chunk.time_s <= end]
    return [later - earlier for earlier, later in pairwise(times)]


def over_rounds(over: Sequence[float], under: Sequence[float], n: int) -> MetricValue:
    """The ratio of two sums over rounds, with a 95 % interval from how rounds differ.

    Rounds are independent, their requests are not: Student's interval of a ratio estimator,
    from three rounds on. It does not cover what differs from run to run.
    """
    value = ratio(float(sum(over)), float(sum(under)), n, _NO_WINDOW)
    if value.value is None or len(over) < NEEDED_ROUNDS:
        return value
    apart = np.array(over) - value.value * np.array(under)  # [rounds], of mean 0
    count = len(apart)
    error = math.sqrt(count / (count - 1) * float(apart @ apart)) / sum(under)
    half = t_quantile(0.975, count - 1) * error
    return replace(value, low=value.value - half, high=value.value + half)


def _sessions(m: Measurement) -> dict[str, MetricValue]:
    names = ("completed", "failed", "context_ended", "unfinished")
    tally = m.tally.sessions if m.tally else None
    return {
        f"sessions_{name}": missing("this load has no sessions")
        if tally is None
        else MetricValue(value=float(getattr(tally, name)), n=tally.started)
        for name in names
    }
