"""Hold every implementation against its definition on a device: `python -m kernels.check`.

Each case runs on fresh random inputs and memory that held NaN, against float64 on the same
inputs, and twenty times over, bit by bit; and a few of its rows by themselves, which must come
out as they did among the others. Exit code 1 where one fails.

Each outcome is told as it is found, and `--json FILE` holds all that were found so far. A device
has room for several of these at once: `--share I/N` is one of N shares of the cases, of which the
first has those that fill a device. `--beside FILE` leaves out cases that an earlier FILE holds.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    import torch

    from kernels.agreement import EVERY_CASE, ROWS, Outcome, check
    from kernels.bench_document import BenchDocument, earlier, rows_of
    from kernels.case import Case
    from kernels.cases import SMALL_CASES
    from kernels.program import device_here, ended, share
    from kernels.shares import share_of
    from kernels.surroundings import surroundings

FORMAT = "kernel check"
LARGE_BYTES = 1 << 28  # of a case that is held in float64, and in several copies


def _bytes(case: Case) -> int:
    """Of a case at its most rows once it is float64: an upper bound for what is not packed."""
    return case.cost(max(case.checked_rows or ROWS), torch.float64.itemsize).bytes


def summaries(outcomes: Sequence[Outcome]) -> Iterator[dict[str, object]]:
    """How each implementation of each operation fared in each dtype."""
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault((one.op, one.implementation, one.dtype), []).append(one)
    for (op, implementation, dtype), mine in groups.items():
        worst = max(mine, key=lambda one: one.share)
        yield {
            "op": op, "implementation": implementation, "dtype": dtype, "checks": len(mine),
            "passed": sum(one.passed for one in mine), "worst_error": _finite(worst.error),
            "worst_limit": worst.limit, "worst_case": worst.case, "worst_rows": worst.rows,
        }  # fmt: skip


def case_key(case: Case) -> str:
    """What tells a case from others, in a document."""
    rows = "" if case.checked_rows is None else f", {case.checked_rows} rows"
    return f"{case.op}: {case.name}{rows}"


def run_cases(
    cases: Sequence[Case], device: torch.device, document: BenchDocument, rows: tuple[int, ...]
) -> list[Outcome]:
    """Check them, telling each outcome; after each case the document has all so far."""
    outcomes: list[Outcome] = []
    for case in cases:
        fresh = []
        for outcome in check(device, rows=rows, cases=(case,)):
            print(outcome.line, flush=True)  # noqa: T201
            fresh.append(outcome)
        outcomes += fresh
        document.put(results=list(summaries(outcomes)))
        document.add(failed=[_told(one) for one in fresh if not one.passed], cases=[case_key(case)])
    return outcomes


def _told(failed: Outcome) -> dict[str, object]:
    names = ("op", "case", "implementation", "dtype", "rows")
    return {**{name: getattr(failed, name) for name in names}, "why": failed.line}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _held(documents: Sequence[Mapping[str, object]]) -> set[str]:
    found = [one.get("cases") for one in documents]
    return {str(key) for keys in found if isinstance(keys, list) for key in keys}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kernels.check", description=__doc__)
    parser.add_argument("--device", type=device_here, default="cuda")
    parser.add_argument("--op", action="append", metavar="OP", help="only these operations",
                        choices=sorted({case.op for case in EVERY_CASE}))  # fmt: skip
    parser.add_argument("--small", action="store_true", help="only the small cases")
    parser.add_argument("--rows", type=int, action="append", help="in place of the usual counts")
    parser.add_argument("--share", type=share, default="1/1", metavar="I/N",
                        help="one of N shares of them")  # fmt: skip
    parser.add_argument("--json", type=Path, help="also write the document here")
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="FILE",
                        help="an earlier document, whose cases are left out")  # fmt: skip
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    torch.manual_seed(0)
    device: torch.device = options.device
    before = list(earlier(options.beside, FORMAT))
    held = _held(before)
    every = SMALL_CASES if options.small else EVERY_CASE
    asked = [c for c in every if options.op is None or c.op in options.op]
    cases = [
        c for c in share_of(asked, options.share, _bytes, LARGE_BYTES) if case_key(c) not in held
    ]
    facts = {"format": FORMAT, "version": 1, **surroundings(device), "share": options.share}
    document = BenchDocument(options.json, {**facts, "results": []})
    outcomes = run_cases(cases, device, document, tuple(options.rows or ROWS))
    failed = [one for one in outcomes if not one.passed]
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} passed")  # noqa: T201
    for outcome in failed:
        print(outcome.line)  # noqa: T201
    return 1 if failed or any(rows_of(one, "failed") for one in before) else 0


if __name__ == "__main__":
    sys.exit(ended(main))
