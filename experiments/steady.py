"""Where the steady part of a measurement begins, and whether it is steady."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from experiments.measurement import Measurement
from experiments.resampling import t_quantile

BIN_S = 1.0
BATCH = 5
NEEDED_BINS = 50
"""Whole bins of one second below which nothing is cut off and no slope is judged."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """How far throughput moves along the window, as a share of its mean."""

    share: float  # slope x length / mean; positive: it grew
    error: float  # half width of its 95 % interval

    def clearly_above(self, limit: float) -> bool:
        """True when even the near end of the interval is beyond `limit`."""
        return abs(self.share) - self.error > limit


def without_ramp(measurement: Measurement) -> Measurement:
    """The measurement from where MSER-5 says that throughput had settled.

    Output tokens of one-second bins, averaged in fives; the cut is the one of the first half
    that leaves the smallest squared error of the mean of the rest. Requests sent before it keep
    their tokens in the rates, and give no latency. A window of fewer than 50 s, or of several
    stretches, is left as it is.
    """
    bins = binned(measurement)
    if len(bins) < NEEDED_BINS or measurement.windows_s:
        return measurement
    ramp_s = BATCH * BIN_S * mser(_batches(bins))
    start, end = measurement.window_s
    return replace(measurement, window_s=(start + ramp_s, end), ramp_s=ramp_s)


def drift(measurement: Measurement) -> Drift | None:
    """The straight line through the throughput of the window; None where it is too short.

    Fitted to averages of five bins, so that bursts of a second do not count as certainty.
    """
    bins = binned(measurement)
    if len(bins) < NEEDED_BINS or measurement.windows_s or not bins.sum():
        return None
    level = _batches(bins)
    n = len(level)
    place = (np.arange(n) - (n - 1) / 2) / n  # [batches], the whole window is 1 long
    spread = float(place @ place)
    slope = float(place @ level) / spread
    rest = level - level.mean() - slope * place
    deviation = float(np.sqrt(rest @ rest / (n - 2) / spread))
    mean = float(level.mean())
    return Drift(share=slope / mean, error=t_quantile(0.975, n - 2) * deviation / mean)


def binned(measurement: Measurement) -> np.ndarray:
    """[bins] output tokens of every whole second of the window."""
    start, end = measurement.window_s
    count = int((end - start) / BIN_S + 1e-9)
    if count < 1:
        return np.zeros(0)
    chunks = [c for r in measurement.issued for c in r.chunks if start <= c.time_s <= end]
    edges = start + BIN_S * np.arange(count + 1)
    found, _ = np.histogram(
        [c.time_s for c in chunks], bins=edges, weights=[float(c.tokens) for c in chunks]
    )
    return found


def mser(level: np.ndarray) -> int:
    """How many leading values to drop, at most half: the marginal standard error rule."""
    n = len(level)
    errors = [float(level[d:].var()) / (n - d) for d in range(n // 2)]
    return int(np.argmin(errors)) if errors else 0


def _batches(bins: np.ndarray) -> np.ndarray:
    """[bins // 5] averages; bins left over at the end are not looked at."""
    whole = len(bins) - len(bins) % BATCH
    return bins[:whole].reshape(-1, BATCH).mean(axis=1)
