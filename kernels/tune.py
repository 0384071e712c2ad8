"""Write the tables of launch configurations: `python -m kernels.tune [--name NAME ...]`.

On the device at hand, each candidate of each kernel runs the timed cases of its operation, each
call on another set of inputs, so that parameters are read from memory as in a step. The one with
the least time, as a share of the best for each case, is kept for the class of shapes that asked.
Candidates that do not compile are told and left out. `--dry-run` prints and writes
nothing. `--check` first leaves out candidates that do not agree with the definition on the device,
on the small cases and the smallest of a release that ask the table, in bfloat16; it has half of
`--limit-s`. A table that could not be timed whole within `--limit-s` is told and not written.
`--share I/N` does nothing but check one of N shares of the candidates: processes side by side
compile what a run after them finds in the compiler's cache. Run `python -m kernels.check` and
`python -m kernels.aot --write` after it.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    import torch

    from kernels.agreement import Outcome, check
    from kernels.case import VALUE_BYTES, Arguments, Case, Run
    from kernels.cases import CHECKED_CASES, RELEASE_CASES, SMALL_CASES, TIMED_CASES
    from kernels.input_sets import input_sets
    from kernels.program import ended, seconds, share
    from kernels.registry import IMPLEMENTATIONS, load
    from kernels.stopwatch import Stopwatch, Work
    from kernels.tuning import CONFIGS, Config, Tunable, current_arch, forced

MODULES = (
    "kernels.attention.triton_hopper",
    "kernels.norm.triton_cuda",
    "kernels.activation.triton_cuda",
    "kernels.hyper_connection.triton_cuda",
    "kernels.hyper_connection.triton_cuda_narrow",
    "kernels.hyper_connection.triton_fused",
    "kernels.indexer.triton_cuda",
    "kernels.indexer.triton_hopper",
    "kernels.topk.triton_cuda",
    "kernels.grouped_matmul.triton_packed",
    "kernels.matmul.triton_packed",
    "kernels.matmul.triton_hopper",
)
"""Those that have TUNABLES."""
CHECKED_ROWS = (5, 130, 600)
CHECKED_RERUNS = 5
SHARE_OF_CHECKS = 0.5  # of the time
LATE = "out of time: see --limit-s"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One candidate on one case at one size."""

    shapes: frozenset[str]
    case: tuple[str, int]
    config: Config
    seconds: float


def tunables(modules: Iterable[str] = MODULES) -> Iterator[Tunable]:
    """Every kernel with a choice."""
    for name in modules:
        yield from importlib.import_module(name).TUNABLES


def agreeing(
    tunable: Tunable,
    outcomes: Callable[[], Iterable[Outcome]],
    is_late: Callable[[], bool] = lambda: False,
) -> Tunable:
    """With those candidates alone under which every outcome passes; the rest are told."""
    kept = []
    for config in tunable.candidates:
        about = f"  {tunable.name} {dict(config)}"
        if is_late():
            _say(f"{about} is left out: {LATE}")
            continue
        with forced(tunable, config):
            found = list(outcomes())
        failed = [outcome for outcome in found if not outcome.passed]
        for outcome in failed:
            _say(f"{about} is left out: {outcome.line}")
        if not failed:
            kept.append(config)
            _say(f"{about} agrees in {len(found)} checks")
    return replace(tunable, candidates=tuple(kept))


def share_of_candidates(tunable: Tunable, asked: str) -> Tunable:
    """With the candidates of a share `I/N`, from 1."""
    number, count = map(int, asked.split("/"))
    return replace(tunable, candidates=tunable.candidates[number - 1 :: count])


def checked_cases(tunable: Tunable, run: Run, device: torch.device) -> list[Case]:
    """What `--check` holds candidates to: of the cases that ask the table, every small one and
    the smallest of a release.
    """

    def asking(cases: Iterable[Case]) -> Iterator[Case]:
        for case in cases:
            if case.op == tunable.op and case.checked_rows is None:
                made = (case.make(rows, torch.bfloat16, device) for rows in CHECKED_ROWS)
                if any(asks(tunable, case, run, held) for held in made):
                    yield case

    large = sorted((*RELEASE_CASES, *CHECKED_CASES), key=_bytes)
    return list(dict.fromkeys((*asking(SMALL_CASES), *islice(asking(large), 1))))


def _bytes(case: Case) -> int:
    return case.cost(max(CHECKED_ROWS), VALUE_BYTES).bytes


def run_of(tunable: Tunable) -> Run:
    """The launcher that asks the table."""
    asked = tunable.op, tunable.implementation
    (run,) = (load(i) for i in IMPLEMENTATIONS if (i.op, i.name) == asked)
    return run


def measured(
    tunable: Tunable, cases: Iterable[Case], watch: Stopwatch, is_late: Callable[[], bool]
) -> Iterator[Seen]:
    """Each candidate on each case at each size, the candidates of a case in turn; none of a case
    that is begun late.
    """
    run, device = run_of(tunable), torch.device("cuda")
    for case in cases:
        for rows in case.timed_rows:
            if is_late():
                return
            if not asks(tunable, case, run, case.make(rows, torch.bfloat16, device)):
                continue
            sets = input_sets(case, rows, device)
            graphs, asked = {}, {}
            for place, config in enumerate(tunable.candidates):
                with forced(tunable, config) as shapes:
                    try:
                        graphs[str(place)] = watch.capture(_works(case, run, sets))
                    except Exception as error:  # noqa: BLE001  the compiler may raise anything
                        _say(f"  {tunable.name} {dict(config)}: {type(error).__name__}")
                    asked[str(place)] = frozenset(shapes)
            for place, seconds in watch.compare(graphs).items():
                yield Seen(
                    shapes=asked[place],
                    case=(case.name, rows),
                    config=tunable.candidates[int(place)],
                    seconds=seconds,
                )


def asks(tunable: Tunable, case: Case, run: Run, held: Arguments) -> bool:
    """Whether a case depends on the table at all."""
    with forced(tunable, tunable.default) as shapes:
        case.call(run, held)
    return bool(shapes)


def _works(case: Case, run: Run, sets: list[Arguments]) -> list[Work]:
    works: list[Work] = [lambda held=held: case.call(run, held) for held in sets]
    for work in works:  # prepares what is kept beside parameters
        work()
    return works


def best(seen: Iterable[Seen]) -> dict[str, Config]:
    """By class, the candidate whose times are least as shares of the best of each case."""
    found = list(seen)
    fastest: dict[tuple[str, int], float] = {}
    for one in found:
        fastest[one.case] = min(one.seconds, fastest.get(one.case, one.seconds))
    shares: dict[str, dict[str, list[float]]] = {}
    configs: dict[str, Config] = {}
    for one in found:
        name = json.dumps(dict(one.config), sort_keys=True)
        configs[name] = one.config
        for shapes in one.shapes:
            shares.setdefault(shapes, {}).setdefault(name, []).append(
                one.seconds / fastest[one.case]
            )
    return {
        shapes: configs[min(_complete(each), key=lambda name: sum(each[name]))]
        for shapes, each in shares.items()
    }


def _complete(shares: Mapping[str, list[float]]) -> list[str]:
    """Candidates that ran every case."""
    most = max(map(len, shares.values()))
    return [name for name, each in shares.items() if len(each) == most]


def write(name: str, arch: int, configs: Mapping[str, Config]) -> None:
    """Replace the entries of one architecture in a table."""
    path = CONFIGS / f"{name}.json"
    held = json.loads(path.read_text()) if path.is_file() else {}
    held[str(arch)] = {shapes: dict(configs[shapes]) for shapes in sorted(configs)}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(held, indent=1, sort_keys=True) + "\n")


def _agreeing(tunable: Tunable, is_late: Callable[[], bool]) -> Tunable:
    device = torch.device("cuda")
    cases = checked_cases(tunable, run_of(tunable), device)
    about = {"rows": CHECKED_ROWS, "reruns": CHECKED_RERUNS, "dtypes": (torch.bfloat16,)}
    outcomes = functools.partial(check, device, cases=cases, name=tunable.implementation, **about)
    return agreeing(tunable, outcomes, is_late)


def _tune(tunable: Tunable, watch: Stopwatch, options: argparse.Namespace, arch: int) -> None:
    begun_s = time.monotonic()

    def is_late(part: float = 1.0) -> bool:
        return time.monotonic() - begun_s > part * options.limit_s

    if options.share is not None:
        _agreeing(share_of_candidates(tunable, options.share), is_late)
        return
    cases = [case for case in (*RELEASE_CASES, *TIMED_CASES) if case.op == tunable.op]
    if options.check:
        tunable = _agreeing(tunable, lambda: is_late(SHARE_OF_CHECKS))
    seen = []
    for one in measured(tunable, cases, watch, is_late):
        _say(f"{tunable.name} {one.case} {one.seconds * 1e6:.1f} us {dict(one.config)}")
        seen.append(one)
    configs = best(seen)
    _say(f"{tunable.name}: {json.dumps({k: dict(v) for k, v in configs.items()})}")
    if is_late():
        _say(f"{tunable.name} is not written: {LATE}")
    elif configs and not options.dry_run:
        write(tunable.name, arch, configs)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m kernels.tune", description=__doc__)
    parser.add_argument("--name", action="append", help="only these tables")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    parser.add_argument("--check", action="store_true", help="leave out what does not agree")
    parser.add_argument("--share", type=share, metavar="I/N", help="only check one of N shares")
    parser.add_argument("--limit-s", type=seconds, default=600.0, help="for each table")
    options = parser.parse_args()
    arch = current_arch()
    if arch is None:
        _say("there is no CUDA device here to tune for")
        return 2
    torch.manual_seed(0)
    watch = Stopwatch(torch.device("cuda"))
    for tunable in tunables():
        if options.name is None or tunable.name in options.name:
            _tune(tunable, watch, options, arch)
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
