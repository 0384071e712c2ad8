"""What is measured of a load in rounds: a window a round, pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.load_specs import ROUND_LOADS, Load, PrefillStepLoad
from experiments.load_tally import LoadTally, RoundTally
from experiments.measurement import Measurement, Window, succeeded
from experiments.records import RequestRecord


@dataclass(frozen=True)
class Rounds:
    """The requests of a phase, round by round, in the order of sending."""

    size: int
    whole: tuple[tuple[RequestRecord, ...], ...]  # every request of the round succeeded
    left_out: int  # rounds that lack a request, or in which one failed

    @classmethod
    def of(cls, issued: Sequence[RequestRecord], size: int) -> Rounds:
        """Cut requests into rounds of `size`."""
        found = [tuple(issued[at : at + size]) for at in range(0, len(issued), size)]
        whole = [each for each in found if len(each) == size and all(map(succeeded, each))]
        return cls(size=size, whole=tuple(whole), left_out=len(found) - len(whole))


def in_rounds(measurement: Measurement, load: Load) -> Measurement:
    """The measurement with the windows of its rounds; unchanged for a load without rounds.

    A round without a window (one request ended before the last one began) is left out and
    counted. Where no round has one, the window is empty.
    """
    if not isinstance(load, ROUND_LOADS):
        return measurement
    rounds = Rounds.of(measurement.issued, load.slots)
    prefill = isinstance(load, PrefillStepLoad)
    found = [prefill_window(r) if prefill else full_batch_window(r) for r in rounds.whole]
    windows = tuple(window for window in found if window is not None)
    begin = measurement.window_s[0]
    tally = RoundTally(
        size=load.slots,
        measured=len(windows),
        left_out=rounds.left_out + len(found) - len(windows),
        prefill=prefill,
    )
    told = measurement.tally or LoadTally()
    return replace(
        measurement,
        window_s=(windows[0][0], windows[-1][1]) if windows else (begin, begin),
        windows_s=windows,
        spread_tokens=not prefill,
        tally=replace(told, rounds=tally),
    )


def full_batch_window(requests: Sequence[RequestRecord]) -> Window | None:
    """From the last request's first token to the end of the first to end; None if there is none.

    Inside it all decode, and tokens between its edges are counted as if each chunk's had come
    evenly since the chunk before.
    """
    start = max(r.chunks[0].time_s for r in requests)
    end = min(r.chunks[-1].time_s for r in requests)
    return (start, end) if end > start else None


def prefill_window(requests: Sequence[RequestRecord]) -> Window | None:
    """From the first sending to the last first token."""
    start = min(r.sent_s for r in requests if r.sent_s is not None)
    end = max(r.chunks[0].time_s for r in requests)
    return (start, end) if end > start else None


def most_requests(load: Load, limit: int) -> int:
    """The most that may be sent: whole rounds, where the load has rounds; at least one."""
    if not isinstance(load, ROUND_LOADS):
        return limit
    return max(1, limit // load.slots) * load.slots
