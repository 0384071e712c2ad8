"""Trials whose metrics are truly those of their requests, at speeds that tests choose."""

import dataclasses

import numpy as np

from experiments.measurement import Measurement
from experiments.metrics import measure
from experiments.records import Chunk, TrialRecord
from experiments.statistics import with_intervals
from tests.fakes import records

COUNT = 12  # requests of a trial


def trial(
    *,
    speed: float = 1.0,
    repeat: int = 0,
    seed: int = 0,
    count: int = COUNT,
    intervals: bool = True,
    **axes,
) -> TrialRecord:
    """One trial `speed` times as fast as the plain one; requests differ by `seed` and repeat."""
    requests = requests_at(speed, np.random.default_rng([seed, repeat]), count)
    m = Measurement(
        requests=requests, window_s=(0.0, max(r.chunks[-1].time_s for r in requests)), devices=1
    )
    metrics = measure(m)
    if intervals:
        metrics = with_intervals(metrics, m, draws=100, seed=seed)
    plain = records.record(repeat=repeat, **axes)
    return dataclasses.replace(
        plain, metrics=metrics, requests=requests, window_s=m.window_s, labels=()
    )


def requests_at(speed, generator, count):
    """`count` requests one after another, ten tokens each."""
    found, now = [], 0.0
    for index in range(count):
        first = now + 0.05 * generator.uniform(0.8, 1.2) / speed
        gap = 0.01 * generator.uniform(0.9, 1.1) / speed
        chunks = tuple(Chunk(time_s=first + k * gap, tokens=1) for k in range(10))
        plain = records.requests_of(1, count=1)[1]
        found.append(
            dataclasses.replace(
                plain,
                request_id=f"r{index}",
                index=index,
                intended_s=now,
                dispatched_s=now,
                sent_s=now,
                chunks=chunks,
                ended_s=chunks[-1].time_s,
                output_tokens=10,
                requested_output_tokens=10,
                warm_up=False,
            )
        )
        now = chunks[-1].time_s
    return tuple(found)


def repeats(times: int, *, speed: float = 1.0, noise: float = 0.01, seed: int = 0, **axes):
    """`times` repeats of one point whose speed scatters by `noise` from run to run."""
    generator = np.random.default_rng([seed, 17])
    speeds = speed * np.exp(noise * generator.standard_normal(times))
    return [
        trial(speed=float(one), repeat=k, seed=seed, intervals=times == 1, **axes)
        for k, one in enumerate(speeds)
    ]
