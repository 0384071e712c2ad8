"""Time operations beside their floor and their peers: `python -m kernels.bench [--op OP ...]`.

Floors are those of `kernels.cost` under ceilings measured in the same run. Times are of replays
of a captured graph of several calls, medians, implementations in turn. Cold: each call reads
another of several sets of inputs that together exceed the cache (`kernels.input_sets` says where
they cannot); warm: the same set again and again. What could not be timed is told with its reason;
after a fault from which the device does not recover the rest is told so, and the bench ends with 1.
`--json FILE` holds after each case what `workbench import` stores as a run; `--beside FILE` leaves
out what an earlier one holds. `--device cpu` times the definitions and what torch has, by the
host's clock.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    import torch

    from kernels.bench_document import BenchDocument, earlier, rows_of
    from kernels.case import VALUE_BYTES, Arguments, Case
    from kernels.cases import RELEASE_CASES, TIMED_CASES
    from kernels.cost import Ceilings, Cost
    from kernels.input_sets import input_sets
    from kernels.ops import REFERENCE
    from kernels.peers import peers_of
    from kernels.plan import arch_of
    from kernels.program import device_here, ended
    from kernels.registry import IMPLEMENTATIONS, load
    from kernels.stopwatch import Captured, Stopwatch, Work, first_line
    from kernels.stopwatch_host import HostStopwatch
    from kernels.surroundings import surroundings

FORMAT = "kernel bench"
VERSION = 1
FEW_ROWS = 128
LATE = "out of time: see --limit-s"
LOST = "not timed: the device had failed before"
FIRST_OPS = frozenset(
    ("rms_norm", "swiglu", "insert_rows", "linear", "wide_linear", "run_experts", "attend_turned",
     "score_rows", "best_rows", "choose_tokens", "between_sublayers", "route", "verify")
)  # fmt: skip
"""Those that a step at the widths of the release spends its time on: timed before the rest."""

OURS = {"reference", *(i.name for i in IMPLEMENTATIONS)}

Bind = Callable[[Arguments], Work | None]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One implementation of one case. Seconds a call."""

    op: str
    case: str
    rows: int
    implementation: str
    is_peer: bool
    cold_s: float
    warm_s: float
    floor_s: float
    cost: Cost

    @property
    def fraction(self) -> float:
        """Of the floor that the cold call reaches."""
        return self.floor_s / self.cold_s


@dataclass(frozen=True, kw_only=True)
class Missing:
    """One implementation of one case that could not be timed."""

    op: str
    case: str
    rows: int
    implementation: str
    why: str


class Watch(Protocol):
    """What a bench needs of a stopwatch."""

    def ceilings(self) -> Ceilings:
        """Of the device."""
        ...

    def seconds(self, work: Work) -> float:
        """Of one call."""
        ...

    def capture(self, works: Sequence[Work]) -> Captured:
        """Calls that go round the works."""
        ...

    def compare(self, arms: Mapping[str, Captured]) -> dict[str, float]:
        """Seconds of one call of each arm."""
        ...

    def failure(self) -> str | None:
        """Why nothing runs on the device any more; None where it does."""
        ...


class Bench:
    """Cases on a device."""

    def __init__(self, device: torch.device, watch: Watch, *, with_definitions: bool) -> None:
        self._device = device
        self._arch = arch_of(device)
        self._watch = watch
        self._with_definitions = with_definitions
        self.ceilings: Ceilings = watch.ceilings()

    def time(self, case: Case, rows: int) -> list[Timing | Missing]:
        """Every implementation and peer, on the same inputs; what raises is missing."""
        try:
            return self._timed(case, rows)
        except Exception as error:  # noqa: BLE001  a device may raise anything
            return [_missing(case, rows, first_line(error))]

    def _timed(self, case: Case, rows: int) -> list[Timing | Missing]:
        cost = case.cost(rows, VALUE_BYTES)
        sets = input_sets(case, rows, self._device)
        cold: dict[str, Captured] = {}
        warm: dict[str, Captured] = {}
        told: list[Timing | Missing] = []
        about = {"op": case.op, "case": case.name, "rows": rows}
        for name, bind in self._arms(case):
            try:
                if works := _ready(bind, sets):
                    captured = self._watch.capture(works), self._watch.capture(works[:1])
                    cold[name], warm[name] = captured
            except Exception as error:  # noqa: BLE001  a peer, or a compiler, may raise anything
                told.append(Missing(**about, implementation=name, why=first_line(error)))
        times = self._watch.compare(cold), self._watch.compare(warm)
        told += [
            Timing(
                **about,
                implementation=name,
                is_peer=name not in OURS,
                cold_s=times[0][name],
                warm_s=times[1][name],
                floor_s=self.ceilings.floor_s(cost),
                cost=cost,
            )
            for name in cold
        ]
        return told

    def _arms(self, case: Case) -> Iterator[tuple[str, Bind]]:
        if self._with_definitions and not case.waits:
            yield "reference", _bound(getattr(REFERENCE, case.op), case)
        for one in IMPLEMENTATIONS if self._device.type == "cuda" else ():
            waits = case.waits and case.weights is not None and one.leaves == case.weights
            if not waits and case.is_served_by(one, self._arch, torch.bfloat16):
                yield one.name, _bound(load(one), case)
        for peer in peers_of(case.op):
            yield peer.name, peer.bind


def _bound(run: Callable[..., object], case: Case) -> Bind:
    return lambda arguments: lambda: case.call(run, arguments)


def _ready(bind: Bind, sets: list[Arguments]) -> list[Work]:
    """The works of an arm, which has run; none where the arm cannot do the case."""
    works = [work for arguments in sets if (work := bind(arguments)) is not None]
    for work in works:  # compiles, and prepares what is kept beside parameters: a graph would do
        work()  # that in each replay
    return works


def _reason(error: Exception) -> str:
    first = (str(error).strip() or "no message").splitlines()[0]
    return f"{type(error).__name__}: {first[:200]}"


def line(told: Timing | Missing) -> str:
    """One line of the table."""
    head = f"{told.op:20} {told.case:34} {told.rows:6} rows {told.implementation:14}"
    if isinstance(told, Missing):
        return f"{head} {told.why}"
    return (
        f"{head} cold {told.cold_s * 1e6:9.1f} us  warm {told.warm_s * 1e6:9.1f} us  "
        f"floor {told.floor_s * 1e6:8.1f} us  {told.fraction:5.2f}"
    )


def _sizes(ops: Sequence[str] | None) -> Iterator[tuple[Case, int]]:
    """The cases of some operations (None: all) at each size: `FIRST_OPS` first, and of either
    group the decode sizes of all cases first.
    """
    cases = [c for c in (*RELEASE_CASES, *TIMED_CASES) if ops is None or c.op in ops]
    sizes = [(case, rows) for case in cases for rows in case.timed_rows]
    yield from sorted(sizes, key=lambda size: (size[0].op not in FIRST_OPS, size[1] > FEW_ROWS))


def _missing(case: Case, rows: int, why: str) -> Missing:
    return Missing(op=case.op, case=case.name, rows=rows, implementation="any", why=why)


def add_to(document: BenchDocument, told: Sequence[Timing | Missing]) -> None:
    """What `workbench import` reads: seconds, bytes and operations a call."""
    document.add(
        timings=[asdict(t) for t in told if isinstance(t, Timing)],
        missing=[asdict(m) for m in told if isinstance(m, Missing)],
    )


def _held(paths: Sequence[Path]) -> set[tuple[object, ...]]:
    """The cases and sizes that earlier documents hold."""
    found = list(earlier(paths, FORMAT))
    rows = [row for one in found for name in ("timings", "missing") for row in rows_of(one, name)]
    return {_size_of(row) for row in rows if row.get("why") not in (LATE, LOST)}


def _size_of(row: Mapping[str, object]) -> tuple[object, ...]:
    return row.get("op"), row.get("case"), row.get("rows")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kernels.bench", description=__doc__)
    ops = sorted({case.op for case in (*RELEASE_CASES, *TIMED_CASES)})
    parser.add_argument("--device", type=device_here, default="cuda")
    parser.add_argument("--op", action="append", metavar="OP", help="only these operations",
                        choices=ops)  # fmt: skip
    parser.add_argument("--rows", type=int, action="append", help="only these numbers of rows")
    parser.add_argument("--json", type=Path, help="also write the document here")
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="FILE",
                        help="an earlier document; what it holds is left out")  # fmt: skip
    parser.add_argument("--definitions", action="store_true", help="time the definitions too")
    parser.add_argument("--limit-s", type=float, default=230, help="begin no case after so long")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    begun_s = time.monotonic()
    torch.manual_seed(0)
    device: torch.device = options.device
    held = _held(options.beside)
    watch = Stopwatch(device) if device.type == "cuda" else HostStopwatch()
    with_definitions = options.definitions or device.type != "cuda"
    bench = Bench(device, watch, with_definitions=with_definitions)
    about = {"format": FORMAT, "version": VERSION, **surroundings(device)}
    document = BenchDocument(options.json, {**about, "ceilings": asdict(bench.ceilings)})
    print(*(f"{k} {v:.3e}" for k, v in asdict(bench.ceilings).items()))  # noqa: T201
    sizes = [(c, n) for c, n in _sizes(options.op) if options.rows is None or n in options.rows]
    sizes = [(c, n) for c, n in sizes if (c.op, c.name, n) not in held]
    for place, (case, rows) in enumerate(sizes, 1):
        late = time.monotonic() - begun_s > options.limit_s
        told = [_missing(case, rows, LATE)] if late else bench.time(case, rows)
        print(*map(line, told), sep="\n", flush=True)  # noqa: T201
        add_to(document, told)
        if any(isinstance(one, Missing) for one in told) and (why := watch.failure()):
            return _lost(document, sizes[place:], why)
    return 0


def _lost(document: BenchDocument, rest: Sequence[tuple[Case, int]], why: str) -> int:
    """What a bench ends with where nothing runs on its device any more."""
    print(f"the device fails: {why}; {len(rest)} more cases are not timed")  # noqa: T201
    add_to(document, [_missing(case, rows, LOST) for case, rows in rest])
    return 1


if __name__ == "__main__":
    sys.exit(ended(main))
