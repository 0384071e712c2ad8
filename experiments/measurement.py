"""What one measured phase left behind, and the times of a single request in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from experiments.load_tally import LoadTally
from experiments.records import ChunkKind, RequestRecord, TelemetrySample

Window = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one measured phase left behind. Seconds on the trial's clock.

    One window as a rule. A load of rounds has one a round in `windows_s`, ascending and apart,
    and `window_s` is their hull: rates are what came inside them over their total length.
    """

    requests: tuple[RequestRecord, ...]  # warm-up is left out of every metric
    window_s: Window
    devices: int | None
    windows_s: tuple[Window, ...] = ()  # (): the one of window_s
    spread_tokens: bool = False
    """The tokens of a chunk were made evenly since the chunk before it, so that an edge of a
    window cuts them. False: they count at the instant of their chunk."""
    ramp_s: float = 0.0  # cut off in front of the window, because the load had not settled
    telemetry: tuple[TelemetrySample, ...] = ()
    idle_power_w: float | None = None  # of all devices, the engine up and nothing in flight
    tally: LoadTally | None = None  # what the sending side tells; None: nothing
    due_requests: int | None = None  # that the schedule wanted sent in the window; None: none
    server_beside: bool = False  # a server that others started may run on this host
    counters: dict[str, float] = field(default_factory=dict)  # engine counters, growth in the phase
    counters_reason: str | None = None  # why there is none of them

    @cached_property
    def issued(self) -> tuple[RequestRecord, ...]:
        """Requests that were sent, warm-up aside."""
        return tuple(r for r in self.requests if not r.warm_up and r.sent_s is not None)

    @cached_property
    def completed(self) -> tuple[RequestRecord, ...]:
        """Requests that ended well, those of the ramp included."""
        return tuple(r for r in self.issued if succeeded(r))

    @cached_property
    def settled(self) -> tuple[RequestRecord, ...]:
        """Requests that were not sent in the ramp: those that latencies are asked of."""
        if not self.ramp_s:
            return self.issued
        return tuple(r for r in self.issued if _sent(r) >= self.window_s[0])

    @cached_property
    def succeeded(self) -> tuple[RequestRecord, ...]:
        """Requests whose latencies count: settled, and ended well."""
        return tuple(r for r in self.settled if succeeded(r))

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The stretches of time that are measured, ascending."""
        return self.windows_s or (self.window_s,)

    @cached_property
    def window_length_s(self) -> float:
        """Seconds measured; 0 for an empty window."""
        return sum(max(0.0, end - start) for start, end in self.windows)

    def inside(self, time_s: float | None) -> bool:
        """True for an instant in a window, its end included."""
        start, end = self.window_s
        if time_s is None or not start <= time_s <= end:
            return False
        return not self.windows_s or any(low <= time_s <= high for low, high in self.windows_s)

    def tokens_inside(self, request: RequestRecord) -> float:
        """Output tokens of one request that came inside the window."""
        if self.spread_tokens:
            return self._spread_inside(request)
        return sum(chunk.tokens for chunk in request.chunks if self.inside(chunk.time_s))

    def seconds_inside(self, request: RequestRecord) -> float:
        """How long the request was in flight inside the window."""
        return self._overlap_s(*in_flight_s(request, self.window_s[1]))

    def _spread_inside(self, request: RequestRecord) -> float:
        first = [c.tokens for c in request.chunks[:1] if self._after_start(c.time_s)]
        return sum(first) + sum(
            now.tokens * self._overlap_s(before.time_s, now.time_s) / (now.time_s - before.time_s)
            if now.time_s > before.time_s
            else now.tokens * self.inside(now.time_s)
            for before, now in pairwise(request.chunks)
        )

    def _after_start(self, time_s: float) -> bool:
        """What came at the very start of a window was made before it."""
        return any(start < time_s <= end for start, end in self.windows)

    def _overlap_s(self, start_s: float, end_s: float) -> float:
        return sum(max(0.0, min(end_s, end) - max(start_s, start)) for start, end in self.windows)


def succeeded(request: RequestRecord) -> bool:
    """Ended by itself, without an error, with at least one token, and at instants that are."""
    return (
        request.error is None
        and request.finish_reason not in (None, "abort", "error")
        and bool(request.chunks)
        and math.isfinite(sum((chunk.time_s for chunk in request.chunks), request.sent_s or 0.0))
    )


def lost(request: RequestRecord) -> bool:
    """Sent and never heard of again: no end, no error, no cancellation."""
    return request.finish_reason is None and request.error is None


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


def ttfo_s(request: RequestRecord) -> float | None:
    """To the first token that is not reasoning; None where every one is."""
    said = (c.time_s for c in request.chunks if c.kind is not ChunkKind.REASONING)
    first = next(said, None)
    return None if first is None else first - _sent(request)


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
    return seconds / tokens if tokens > 0 and seconds / tokens > 0 else None


def tpot_compat_s(request: RequestRecord) -> float | None:
    """As other tools divide: by all tokens but one, whatever the first chunk held."""
    tokens = sum(chunk.tokens for chunk in request.chunks) - 1
    return decode_s(request) / tokens if tokens > 0 else None


def gaps(request: RequestRecord) -> list[tuple[float, int]]:
    """(seconds, tokens) of every chunk after the first."""
    return [
        (later.time_s - earlier.time_s, later.tokens) for earlier, later in pairwise(request.chunks)
    ]


def weighted_samples(
    prefix: str, requests: Iterable[RequestRecord]
) -> tuple[np.ndarray, np.ndarray]:
    """Values in seconds and how often each counts, of one latency family (`FAMILIES`).

    [samples] each, in request order; what is no finite number is left out.
    """
    found = [pair for request in requests for pair in _SAMPLES[prefix](request)]
    values = np.array([value for value, _ in found], dtype=float)
    counts = np.array([count for _, count in found], dtype=np.int64)
    sound = np.isfinite(values)
    return values[sound], counts[sound]


def samples(prefix: str, requests: Iterable[RequestRecord]) -> np.ndarray:
    """The pooled samples of one latency family in request order, each as often as it counts."""
    return np.repeat(*weighted_samples(prefix, requests))


def _sent(request: RequestRecord) -> float:
    assert request.sent_s is not None, f"{request.request_id} was not sent"
    return request.sent_s


def _one(value: float | None) -> list[tuple[float, int]]:
    return [] if value is None else [(value, 1)]


_SAMPLES: dict[str, Callable[[RequestRecord], list[tuple[float, int]]]] = {
    "ttft_s": lambda r: _one(ttft_s(r)),
    "ttft_sched_s": lambda r: _one(r.chunks[0].time_s - r.intended_s),
    "ttfo_s": lambda r: _one(ttfo_s(r)),
    "tpot_s": lambda r: _one(tpot_s(r)),
    "tpot_compat_s": lambda r: _one(tpot_compat_s(r)),
    "itl_s": lambda r: [(gap / n, n) for gap, n in gaps(r) if n > 0],
    "icl_s": lambda r: [(gap, 1) for gap, _ in gaps(r)],
    "e2e_s": lambda r: _one(e2e_s(r)),
    "e2e_sched_s": lambda r: _one(r.chunks[-1].time_s - r.intended_s),
}
