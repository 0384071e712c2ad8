"""Time operations beside their floor: `python -m kernels.bench [--op OP ...] [--json FILE]`.

The floor is the least bytes that a case must move over the bandwidth of a large copy measured
in the same run. Times are of replays of a captured graph of several calls, the median of
`ROUNDS`, implementations in turn. Cold: each call reads another of several sets of inputs that
together exceed the cache; warm: the same set again and again. A definition that waits for the
device cannot be captured, and is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from kernels.case import Arguments, Case, Run
from kernels.cases import RELEASE_CASES, TIMED_CASES
from kernels.ops import REFERENCE
from kernels.plan import IMPLEMENTATIONS, load

ROWS = (1, 32, 128, 2048, 8192)
ROUNDS = 25
CALLS = 12
CACHE_BYTES = 128_000_000  # more than any L2 of today
MOST_SETS = 12


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One implementation of one case. Seconds a call."""

    op: str
    case: str
    rows: int
    implementation: str
    cold_s: float
    warm_s: float
    floor_s: float

    @property
    def fraction(self) -> float:
        """Of the floor that the cold call reaches."""
        return self.floor_s / self.cold_s


class Bench:
    """A device with its measured bandwidth."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.Stream(device)
        self.copy_bytes_s = self._copy_bytes_s()

    def time(self, case: Case, rows: int) -> list[Timing]:
        """The definition and every implementation, on the same inputs."""
        size = case.floor_bytes(rows, 2)
        count = min(MOST_SETS, max(2, CACHE_BYTES // size + 1))
        sets = [case.make(rows, torch.bfloat16, self._device) for _ in range(count)]
        runs: dict[str, Run] = {} if case.waits else {"reference": getattr(REFERENCE, case.op)}
        runs |= {i.name: load(i) for i in IMPLEMENTATIONS if i.op == case.op}
        calls = {name: self._called(run, case) for name, run in runs.items()}
        cold = self._compare({name: self._captured(run, sets) for name, run in calls.items()})
        warm = self._compare({name: self._captured(run, sets[:1]) for name, run in calls.items()})
        return [
            Timing(
                op=case.op,
                case=case.name,
                rows=rows,
                implementation=name,
                cold_s=cold[name],
                warm_s=warm[name],
                floor_s=size / self.copy_bytes_s,
            )
            for name in runs
        ]

    def _called(self, run: Run, case: Case) -> Run:
        """By the arguments of the case, in the order that it makes them."""
        return lambda *arguments: case.call(run, arguments)

    def _captured(self, run: Run, sets: list[Arguments]) -> torch.cuda.CUDAGraph:  # noqa: TID251
        for arguments in sets[:2]:
            run(*arguments)  # compiles, and fills caches of the libraries
        graph = torch.cuda.CUDAGraph()  # noqa: TID251
        with torch.cuda.graph(graph):  # noqa: TID251
            for call in range(CALLS):
                run(*sets[call % len(sets)])
        return graph

    def _compare(self, graphs: dict[str, torch.cuda.CUDAGraph]) -> dict[str, float]:  # noqa: TID251
        """Median seconds a call, the arms in turn."""
        seen: dict[str, list[float]] = {name: [] for name in graphs}
        for graph in graphs.values():
            graph.replay()
        for _ in range(ROUNDS):
            for name, graph in graphs.items():
                seen[name].append(self._seconds(graph.replay) / CALLS)
        return {name: statistics.median(times) for name, times in seen.items()}

    def _seconds(self, work: Callable[[], object]) -> float:
        start, end = (torch.Event(self._device, enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def _copy_bytes_s(self) -> float:
        """Bytes read and written a second by a copy of 2 GiB; the median of ten."""
        source = torch.empty(1 << 31, dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        times = [self._seconds(lambda: target.copy_(source)) for _ in range(11)][1:]
        return 2 * source.numel() / statistics.median(times)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m kernels.bench", description=__doc__)
    parser.add_argument("--op", action="append", help="only these operations")
    parser.add_argument("--json", type=Path, help="also write the timings here")
    options = parser.parse_args()
    torch.manual_seed(0)
    bench = Bench(torch.device("cuda"))
    print(f"copy {bench.copy_bytes_s / 1e12:.2f} TB/s")  # noqa: T201
    found: list[Timing] = []
    for case in (*RELEASE_CASES, *TIMED_CASES):
        if options.op is None or case.op in options.op:
            for rows in ROWS:
                timings = bench.time(case, rows)
                found += timings
                for t in timings:
                    print(  # noqa: T201
                        f"{t.op:14} {t.case:28} {t.rows:5} rows {t.implementation:10} cold "
                        f"{t.cold_s * 1e6:9.1f} us  warm {t.warm_s * 1e6:9.1f} us  floor "
                        f"{t.floor_s * 1e6:7.1f} us  {t.fraction:5.2f}"
                    )
    if options.json:
        document = {
            "device": torch.cuda.get_device_name(),  # noqa: TID251
            "torch": torch.__version__,
            "copy_bytes_s": bench.copy_bytes_s,
            "timings": [asdict(t) for t in found],
        }
        options.json.write_text(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
