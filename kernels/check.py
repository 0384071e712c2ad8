"""Hold every implementation against its definition on a device: `python -m kernels.check`.

Each case runs on fresh random inputs and memory that held NaN, against float64 on the same
inputs, and twenty times over, bit by bit; and a few of its rows by themselves, which must come
out as they did among the others. Exit code 1 where one fails.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kernels import tolerance
from kernels.case import Arguments, Case, Run
from kernels.cases import CHECKED_CASES, RELEASE_CASES, SMALL_CASES
from kernels.ops import REFERENCE
from kernels.plan import arch_of
from kernels.registry import IMPLEMENTATIONS, Implementation, load

ROWS = (0, 1, 3, 17, 128, 257, 600)
RERUNS = 20
ALONE = 3  # rows that are run again without the others
DTYPES = (torch.float32, torch.bfloat16)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One implementation on one case at one size."""

    op: str
    case: str
    implementation: str
    dtype: str
    rows: int
    error: float
    limit: float
    repeats_bitwise: bool
    alone_bitwise: bool  # a row is the same whatever runs beside it, if that is promised

    @property
    def passed(self) -> bool:
        """Within its tolerance, and the same bits every time."""
        return self.error <= self.limit and self.repeats_bitwise and self.alone_bitwise


def check(
    device: torch.device, *, rows: tuple[int, ...] = ROWS, reruns: int = RERUNS,
    cases: tuple[Case, ...] = (*SMALL_CASES, *RELEASE_CASES, *CHECKED_CASES),
) -> Iterator[Outcome]:  # fmt: skip
    """Every implementation on every case of its operation."""
    for case in cases:
        for implementation in IMPLEMENTATIONS:
            if implementation.op == case.op:
                for dtype in DTYPES:
                    if _runs(implementation, case, dtype, device):
                        for count in case.checked_rows or rows:
                            yield _outcome(case, implementation, dtype, count, device, reruns)


def _runs(
    implementation: Implementation, case: Case, dtype: torch.dtype, device: torch.device
) -> bool:
    name = str(dtype).removeprefix("torch.")
    return implementation.needs.lacking(arch_of(device), name, case.head_dim) is None


def _outcome(
    case: Case,
    implementation: Implementation,
    dtype: torch.dtype,
    rows: int,
    device: torch.device,
    reruns: int,
) -> Outcome:
    run = load(implementation)
    arguments = case.make(rows, dtype, device)
    _poison(device)
    # Before the definition, which would leave the answer in memory.
    found = case.observe(run, arguments)
    wide = arguments if case.is_rounding else tolerance.widened(arguments)
    exact = case.observe(getattr(REFERENCE, case.op), wide)
    return Outcome(
        op=case.op,
        case=case.name,
        implementation=implementation.name,
        dtype=str(dtype).removeprefix("torch."),
        rows=rows,
        error=tolerance.error(found, exact),
        limit=_limit(case, dtype, found),
        repeats_bitwise=all(_same(found, case.observe(run, arguments)) for _ in range(reruns)),
        alone_bitwise=not (case.is_invariant and implementation.is_invariant)
        or rows <= ALONE
        or _same_alone(found, case, run, arguments),
    )


def _limit(case: Case, dtype: torch.dtype, found: object) -> float:
    own = case.bfloat16_limit if dtype == torch.bfloat16 else None
    chosen = own if own is not None else case.limit
    return tolerance.limit(found) if chosen is None else chosen


def _poison(device: torch.device) -> None:
    """Leave NaN in memory that the allocator hands out next."""
    held = [torch.full((size,), torch.nan, device=device) for size in (1 << 10, 1 << 16, 1 << 22)]
    del held


def _same(first: object, again: object) -> bool:
    pairs = zip(tolerance.tensors(first), tolerance.tensors(again), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def _same_alone(found: object, case: Case, run: Run, arguments: Arguments) -> bool:
    rows = next(tolerance.tensors(arguments)).shape[0]
    alone = case.observe(run, tolerance.first_rows(arguments, rows, ALONE))
    pairs = zip(tolerance.tensors(found), tolerance.tensors(alone), strict=True)
    return all(torch.equal(a[: len(b)], b) for a, b in pairs)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m kernels.check", description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--op", action="append", help="only these operations")
    options = parser.parse_args()
    torch.manual_seed(0)
    every = (*SMALL_CASES, *RELEASE_CASES, *CHECKED_CASES)
    cases = tuple(c for c in every if options.op is None or c.op in options.op)
    outcomes = list(check(torch.device(options.device), cases=cases))
    failed = [o for o in outcomes if not o.passed]
    for op in dict.fromkeys(o.op for o in outcomes):
        mine = [o for o in outcomes if o.op == op]
        worst = max(mine, key=lambda o: o.error / o.limit if o.limit else 0.0)
        print(  # noqa: T201
            f"{op:14} {sum(o.passed for o in mine)} of {len(mine)} pass; worst error "
            f"{worst.error:.2e} of {worst.limit:.1e} ({worst.case}, {worst.dtype}, "
            f"{worst.rows} rows)"
        )
    for outcome in failed:
        print(f"FAILED {outcome}")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
