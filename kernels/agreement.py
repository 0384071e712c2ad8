"""Hold implementations against their definitions: what one of them does on one case.

Inputs are fresh and random and memory held NaN; the definition computes in float64 on the same
inputs. Twenty runs must give the same bits, and a few rows by themselves what they gave among
the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
EVERY_CASE = tuple(dict.fromkeys((*SMALL_CASES, *RELEASE_CASES, *CHECKED_CASES)))
"""Some small cases are those of a release."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One implementation on one case at one size."""

    op: str
    case: str
    implementation: str
    dtype: str
    rows: int
    error: float | None = None
    limit: float | None = None
    repeats_bitwise: bool = False
    alone_bitwise: bool = False  # a row is the same whatever runs beside it, if that is promised
    raised: str | None = None  # in place of a result

    @property
    def share(self) -> float:
        """Of the error that is allowed; infinite where there is no result."""
        if self.error is None or self.limit is None:
            return float("inf")
        if self.limit == 0:
            return 0.0 if self.error == 0 else float("inf")
        return self.error / self.limit

    @property
    def passed(self) -> bool:
        """Within its tolerance, and the same bits every time."""
        return self.share <= 1 and self.repeats_bitwise and self.alone_bitwise

    @property
    def line(self) -> str:
        """For people."""
        about = f"{self.op} {self.implementation} {self.dtype} {self.rows} rows, {self.case}"
        if self.raised is not None:
            return f"FAILED {about}: {self.raised}"
        bits = "" if self.repeats_bitwise else ", differs from run to run"
        alone = "" if self.alone_bitwise else ", differs beside other rows"
        return (f"{'passed' if self.passed else 'FAILED'} {about}: error {self.error:.2e} of "
                f"{self.limit:.1e}{bits}{alone}")  # fmt: skip


def check(
    device: torch.device, *, rows: tuple[int, ...] = ROWS, reruns: int = RERUNS,
    cases: Sequence[Case] = EVERY_CASE, name: str | None = None,
    dtypes: Sequence[torch.dtype] = DTYPES,
) -> Iterator[Outcome]:  # fmt: skip
    """Every implementation (of one name) on every case of its operation; what raises has failed."""
    arch = arch_of(device)
    for case in cases:
        for implementation in (i for i in IMPLEMENTATIONS if name in (None, i.name)):
            for dtype in dtypes:
                if case.is_served_by(implementation, arch, dtype):
                    for count in case.checked_rows or rows:
                        yield _outcome(case, implementation, dtype, count, device, reruns)


def _outcome(
    case: Case,
    implementation: Implementation,
    dtype: torch.dtype,
    rows: int,
    device: torch.device,
    reruns: int,
) -> Outcome:
    about = Outcome(
        op=case.op, case=case.name, implementation=implementation.name, rows=rows,
        dtype=str(dtype).removeprefix("torch."),
    )  # fmt: skip
    try:
        return replace(about, **_found(case, implementation, dtype, rows, device, reruns))
    except Exception as error:  # noqa: BLE001  a compiler or a device may raise anything
        first = (str(error).strip() or "no message").splitlines()[0]
        return replace(about, raised=f"{type(error).__name__}: {first[:300]}")


def _found(
    case: Case,
    implementation: Implementation,
    dtype: torch.dtype,
    rows: int,
    device: torch.device,
    reruns: int,
) -> dict[str, Any]:
    run = load(implementation)
    arguments = case.make(rows, dtype, device)
    _poison(device)
    # Before the definition, which would leave the answer in memory.
    found = case.observe(run, arguments)
    wide = arguments if case.is_rounding else tolerance.widened(arguments)
    exact = case.observe(getattr(REFERENCE, case.op), wide)
    return {
        "error": tolerance.error(found, exact),
        "limit": _limit(case, dtype, found),
        "repeats_bitwise": all(_same(found, case.observe(run, arguments)) for _ in range(reruns)),
        "alone_bitwise": not (case.is_invariant and implementation.is_invariant)
        or rows <= ALONE
        or _same_alone(found, case, run, arguments),
    }


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
