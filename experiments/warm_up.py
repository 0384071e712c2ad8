"""Warm-up in rounds, until they go equally fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.load import LoadGenerator, Phase
from experiments.protocol import Protocol
from experiments.records import RequestRecord

STABLE_ROUNDS = 3
"""Rounds over which throughput must hold still."""


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """What was done before the measurement."""

    requests: tuple[RequestRecord, ...]
    rounds: tuple[float, ...]  # output tokens a second of each round that took time


def warm_up(
    generator: LoadGenerator, round_of: Callable[[int], Phase], protocol: Protocol
) -> WarmUp:
    """Run the phases `round_of(0)`, `round_of(1)`, ..., each with content of its own.

    Ends when throughput over the last three rounds varies by no more than
    `protocol.warm_up_cv` (None: after one round), after `warm_up_rounds`, or when
    `protocol.limit_s` is up.
    """
    begun_s = generator.now_s()
    requests: list[RequestRecord] = []
    rounds: list[float] = []
    for number in range(protocol.warm_up_rounds if protocol.warm_up_per_slot else 0):
        left_s = protocol.limit_s - (generator.now_s() - begun_s)
        if number and left_s <= 0:
            break
        started_s = generator.now_s()
        result = generator.run(replace(round_of(number), limit_s=max(left_s, 1e-3)))
        requests += result.requests
        rounds += _speed(result.requests, generator.now_s() - started_s)
        if _settled(rounds, protocol.warm_up_cv):
            break
    return WarmUp(requests=tuple(requests), rounds=tuple(rounds))


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
