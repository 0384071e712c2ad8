"""What one measured phase left behind, and the times of a single request in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from experiments.records import RequestRecord, TelemetrySample


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one measured phase left behind. Seconds on the trial's clock."""

    requests: tuple[RequestRecord, ...]  # warm-up is left out of every metric
    window_s: tuple[float, float]
    devices: int | None
    telemetry: tuple[TelemetrySample, ...] = ()
    due_requests: int | None = None  # that the schedule wanted sent in the window; None: none
    counters: dict[str, float] = field(default_factory=dict)  # engine counters, growth in the phase

    @cached_property
    def issued(self) -> tuple[RequestRecord, ...]:
        """Requests that were sent, warm-up aside."""
        return tuple(r for r in self.requests if not r.warm_up and r.sent_s is not None)

    @cached_property
    def succeeded(self) -> tuple[RequestRecord, ...]:
        """Requests whose latencies count."""
        return tuple(r for r in self.issued if succeeded(r))

    @property
    def window_length_s(self) -> float:
        """Seconds measured; 0 for an empty window."""
        return max(0.0, self.window_s[1] - self.window_s[0])

    def inside(self, time_s: float | None) -> bool:
        """True for an instant in the window, its end included."""
        return time_s is not None and self.window_s[0] <= time_s <= self.window_s[1]

    def tokens_inside(self, request: RequestRecord) -> int:
        """Output tokens of one request whose chunk arrived inside the window."""
        return sum(chunk.tokens for chunk in request.chunks if self.inside(chunk.time_s))

    def seconds_inside(self, request: RequestRecord) -> float:
        """How long the request was in flight inside the window."""
        start, end = in_flight_s(request, self.window_s[1])
        return max(0.0, min(end, self.window_s[1]) - max(start, self.window_s[0]))


def succeeded(request: RequestRecord) -> bool:
    """Ended by itself, without an error and with at least one token."""
    return (
        request.error is None
        and request.finish_reason not in (None, "abort", "error")
        and bool(request.chunks)
    )


def cancelled(request: RequestRecord) -> bool:
    """Given up by the client, not failed by the engine."""
    return request.error is None and request.finish_reason == "abort"


def in_flight_s(request: RequestRecord, open_end_s: float) -> tuple[float, float]:
    """First and last instant in flight; one that never ended stays until `open_end_s`."""
    start = request.sent_s if request.sent_s is not None else open_end_s
    return start, request.ended_s if request.ended_s is not None else max(start, open_end_s)


def ttft_s(request: RequestRecord) -> float:
    """Of a successful request."""
    return request.chunks[0].time_s - _sent(request)


def e2e_s(request: RequestRecord) -> float:
    """Of a successful request."""
    return request.chunks[-1].time_s - _sent(request)


def decode_tokens(request: RequestRecord) -> int:
    """Tokens after the first chunk: the divisor of TPOT."""
    return sum(chunk.tokens for chunk in request.chunks[1:])


def decode_s(request: RequestRecord) -> float:
    """Seconds from the first to the last chunk."""
    return request.chunks[-1].time_s - request.chunks[0].time_s


def tpot_s(request: RequestRecord) -> float | None:
    """None where the first chunk holds everything, or where no time passed after it."""
    tokens, seconds = decode_tokens(request), decode_s(request)
    return seconds / tokens if tokens > 0 and seconds > 0 else None


def tpot_compat_s(request: RequestRecord) -> float | None:
    """As other tools divide: by all tokens but one, whatever the first chunk held."""
    tokens = sum(chunk.tokens for chunk in request.chunks) - 1
    return decode_s(request) / tokens if tokens > 0 else None


def gaps(request: RequestRecord) -> list[tuple[float, int]]:
    """(seconds, tokens) of every chunk after the first."""
    return [
        (later.time_s - earlier.time_s, later.tokens)
        for earlier, later in zip(request.chunks, request.chunks[1:], strict=False)
    ]


def samples(prefix: str, requests: Iterable[RequestRecord]) -> np.ndarray:
    """The pooled samples of one latency family (`FAMILIES`) in request order. Seconds."""
    return np.array([s for request in requests for s in _SAMPLES[prefix](request)], dtype=float)


def _sent(request: RequestRecord) -> float:
    assert request.sent_s is not None, f"{request.request_id} succeeded without being sent"
    return request.sent_s


def _one(value: float | None) -> list[float]:
    return [] if value is None else [value]


_SAMPLES: dict[str, Callable[[RequestRecord], list[float]]] = {
    "ttft_s": lambda r: [ttft_s(r)],
    "ttft_sched_s": lambda r: [r.chunks[0].time_s - r.intended_s],
    "tpot_s": lambda r: _one(tpot_s(r)),
    "tpot_compat_s": lambda r: _one(tpot_compat_s(r)),
    "itl_s": lambda r: [gap / n for gap, n in gaps(r) for _ in range(n)],
    "icl_s": lambda r: [gap for gap, _ in gaps(r)],
    "e2e_s": lambda r: [e2e_s(r)],
    "e2e_sched_s": lambda r: [r.chunks[-1].time_s - r.intended_s],
}
