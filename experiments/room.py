"""What the requests of one trial take of memory: all of them are held until it is stored."""

from __future__ import annotations

import math

from experiments.load_specs import GammaLoad, RampLoad, RateLoad, SessionsLoad
from experiments.plan import Plan
from experiments.space import PlannedTrial

REQUEST_BYTES, PROMPT_TOKEN_BYTES = 1_500, 36
OUTPUT_TOKEN_BYTES, REMOTE_TOKEN_BYTES = 150, 300  # remote: a piece of a text stream each
"""Of a request in flight and of its record, whichever is more, in CPython 3.11: traced over
requests of 1 to 128 output tokens and 8 to 512 prompt tokens, a chunk a token."""
LEAST_REQUEST_S, LEAST_TOKEN_S = 0.0002, 0.000005
"""Of one client's processor time: no client of ours sends faster, whatever the engine."""


def needed_requests(trial: PlannedTrial, plan: Plan) -> int:
    """Those without which the trial does not end by its own rule, or that its schedule sends."""
    protocol, whole = plan.protocol, trial.workload.whole
    if whole is not None:
        return whole.requests
    slots = trial.batch_size or 1
    needed = max(protocol.measured_requests, protocol.measured_per_slot * slots)
    if (rate := _rate(trial)) is not None:
        needed = max(needed, math.ceil(rate * protocol.measured_s))
    return min(protocol.max_requests, needed)


def most_requests(trial: PlannedTrial, plan: Plan) -> int:
    """Those of an engine that answers as fast as its clients can ask, in `measured_s`."""
    needed, protocol = needed_requests(trial, plan), plan.protocol
    if trial.workload.whole is not None or trial.batch_size is None:
        return needed
    least_s = LEAST_REQUEST_S + LEAST_TOKEN_S * _tokens(trial, "output_tokens")
    fastest = math.ceil(plan.clients * protocol.measured_s / least_s)
    return min(protocol.max_requests, max(needed, fastest))


def record_bytes(trial: PlannedTrial, requests: int) -> int:
    """Of so many requests of the trial; prompts and outputs of unknown length count as none."""
    each = OUTPUT_TOKEN_BYTES if not trial.facts.remote else REMOTE_TOKEN_BYTES
    prompt = PROMPT_TOKEN_BYTES * _tokens(trial, "prompt_tokens")
    return requests * (REQUEST_BYTES + prompt + each * _tokens(trial, "output_tokens"))


def _tokens(trial: PlannedTrial, name: str) -> int:
    found = trial.point.workload.get(name)
    return found if isinstance(found, int) else 0


def _rate(trial: PlannedTrial) -> float | None:
    load = trial.load
    return load.rate if isinstance(load, RateLoad | GammaLoad | RampLoad | SessionsLoad) else None
