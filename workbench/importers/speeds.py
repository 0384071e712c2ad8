"""Numbers that follow from others of one file: interactivity from TPOT, statistics of requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.records import ForeignNumber
from workbench.exports.samples import quantile
from workbench.importers.cells import number
from workbench.importers.foreign import Column, derived

TPOT = "(E2E - TTFT) / (output tokens - 1), one value a request"
BY_QUANTILE = {"tok_s_user_p50": "p50", "tok_s_user_p1": "p99"}
HARMONIC = Column(
    key="", metric="tok_s_user", unit="tok/s/user",
    meaning="sum(output tokens - 1) / sum(E2E - TTFT) over the requests of the file",
)  # fmt: skip


def speeds(told: Sequence[ForeignNumber]) -> tuple[ForeignNumber, ...]:
    """Quantiles of the interactivity from those of TPOT: a reciprocal turns the order round.

    None where the file has its own, or TPOT is missing or 0.
    """
    known = {one.metric: one for one in told if one.value is not None}
    found = []
    for metric, statistic in BY_QUANTILE.items():
        source = known.get(f"tpot_compat_s_{statistic}") or known.get(f"tpot_s_{statistic}")
        value = None if source is None else number(source.value)
        if source is not None and value and metric not in known:
            column = Column(key="", metric=metric, unit="tok/s/user", side="",
                            meaning=f"1 / {source.meaning}")  # fmt: skip
            found.append(derived(f"1 / {source.key}", 1 / value, column))
    return tuple(found)


def sampled(key: str, prefix: str, meaning: str, samples: Sequence[float]) -> list[ForeignNumber]:
    """Mean and quantiles of one number of every request, as many as its samples carry."""
    if not samples:
        return []
    values = np.asarray(samples, dtype=float)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    with np.errstate(over="ignore"):  # no finite number is none of the file
        told = {"mean": float(values.mean())} | {n: quantile(values, q) for n, q in shares.items()}
    return [
        derived(
            f"{statistic} of {key}",
            value,
            Column(key="", metric=f"{prefix}_{statistic}", unit="s",
                   meaning=f"{statistic} of {meaning}, of the requests of the file"),
        )
        for statistic, value in told.items()
        if value is not None
    ]  # fmt: skip


def harmonic(e2e_s: Sequence[float], ttft_s: Sequence[float], tokens: Sequence[float],
             key: str) -> list[ForeignNumber]:  # fmt: skip
    """The interactivity over all requests that have a time between tokens; [] for none."""
    rows = [(e - t, n - 1) for e, t, n in zip(e2e_s, ttft_s, tokens, strict=True)
            if n > 1 and e > t]  # fmt: skip
    if not rows:
        return []
    return [derived(key, sum(n for _, n in rows) / sum(t for t, _ in rows), HARMONIC)]
