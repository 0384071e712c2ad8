"""Warm-up in rounds, until they go equally fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from experiments.arrival import Share
from experiments.load import Phase
from experiments.load_runner import LoadRunner
from experiments.protocol import Protocol
from experiments.records import Calibration, RequestRecord

STABLE_ROUNDS = 3
"""Rounds over which throughput must hold still."""


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """What was done before the measurement."""

    requests: tuple[RequestRecord, ...]
    rounds: tuple[float, ...]  # output tokens a second of each round that took time
    calibration: Calibration | None = None


def warm_up(
    runner: LoadRunner, round_of: Callable[[int, Share], Phase], protocol: Protocol
) -> WarmUp:
    """Run the phases `round_of(0)`, `round_of(1)`, ..., each with content of its own.

    Ends when throughput over the last three rounds varies by no more than
    `protocol.warm_up_cv` (None: after one round), after `warm_up_rounds`, or when
    `protocol.limit_s` is up.
    """
    begun_s = runner.now_s()
    requests: list[RequestRecord] = []
    rounds: list[float] = []
    for number in range(protocol.warm_up_rounds if protocol.warm_up_per_slot else 0):
        left_s = protocol.limit_s - (runner.now_s() - begun_s)
        if number and left_s <= 0:
            break
        started_s = runner.now_s()
        result = runner.run(partial(_bounded, round_of, number, max(left_s, 1e-3)))
        requests += result.requests
        rounds += _speed(result.requests, runner.now_s() - started_s)
        if _settled(rounds, protocol.warm_up_cv):
            break
    return WarmUp(requests=tuple(requests), rounds=tuple(rounds))


def _bounded(
    round_of: Callable[[int, Share], Phase], number: int, limit_s: float, share: Share
) -> Phase:
    return replace(round_of(number, share), limit_s=limit_s)


def variation(rounds: Sequence[float]) -> float | None:
    """Standard deviation over mean of the last three rounds; None for fewer."""
    last = np.array(rounds[-STABLE_ROUNDS:])
    if len(last) < STABLE_ROUNDS or not last.mean():
        return None
    return float(last.std(ddof=1) / last.mean())


def _settled(rounds: Sequence[float], limit: float | None) -> bool:
    if limit is None:
        return True
    found = variation(rounds)
    return found is not None and found <= limit


def _speed(requests: Sequence[RequestRecord], seconds: float) -> list[float]:
    tokens = sum(chunk.tokens for request in requests for chunk in request.chunks)
    return [tokens / seconds] if tokens and seconds > 0 else []
