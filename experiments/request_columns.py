"""The requests of one trial as columns: quantiles over many requests without an object for each.

What a sample is says `experiments.measurement`; here the same samples come from whole arrays,
some fifty times faster. `succeeded` is the caller's to judge, since only the trial knows which
requests came before its window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RequestColumns:
    """Requests that succeeded, each with at least one chunk. Seconds on the trial's clock."""

    intended_s: Array  # [requests], as the next one
    sent_s: Array
    chunk_count: Counts  # [requests]
    chunk_time_s: Array  # [chunks], request after request, as the next one
    chunk_tokens: Counts
    spoken_s: Array | None = None
    """[requests] the first chunk that is not reasoning, NaN for none; None: no chunk is."""
    unsuccessful: int  # issued requests that failed or were cancelled
    client_lag_s: Array | None = None
    """[issued] from the instant at which a request could leave the client; None: no client."""

    @property
    def first_s(self) -> Array:
        """[requests] the first chunk."""
        return self.chunk_time_s[self._starts]

    @property
    def last_s(self) -> Array:
        """[requests] the last chunk."""
        return self.chunk_time_s[self._starts + self.chunk_count - 1]

    @property
    def tokens(self) -> Counts:
        """[requests] tokens of all chunks."""
        if not len(self.chunk_count):
            return np.empty(0, dtype=np.int64)
        return np.add.reduceat(self.chunk_tokens, self._starts)

    @property
    def _starts(self) -> Counts:
        return np.cumsum(self.chunk_count) - self.chunk_count

    def samples(self, family: str) -> Array:
        """The pooled samples of a latency family, in request order; KeyError for no family."""
        if family in ("itl_s", "icl_s"):
            return self._between_chunks(by_token=family == "itl_s")
        decode_s = self.last_s - self.first_s
        if family == "tpot_s":
            after_first = self.tokens - self.chunk_tokens[self._starts]
            timed = (after_first > 0) & (decode_s > 0)
            return decode_s[timed] / after_first[timed]
        if family == "ttfo_s":
            spoken_s = self.first_s if self.spoken_s is None else self.spoken_s
            return (spoken_s - self.sent_s)[~np.isnan(spoken_s)]
        if family == "tpot_compat_s":
            after_one = self.tokens - 1
            return decode_s[after_one > 0] / after_one[after_one > 0]
        return {
            "ttft_s": self.first_s - self.sent_s,
            "ttft_sched_s": self.first_s - self.intended_s,
            "e2e_s": self.last_s - self.sent_s,
            "e2e_sched_s": self.last_s - self.intended_s,
        }[family]

    def _between_chunks(self, *, by_token: bool) -> Array:
        follows = np.ones(len(self.chunk_time_s), dtype=bool)
        follows[self._starts] = False
        gaps = np.diff(self.chunk_time_s, prepend=0.0)[follows]
        tokens = self.chunk_tokens[follows]
        return np.repeat(gaps / np.maximum(tokens, 1), tokens) if by_token else gaps
