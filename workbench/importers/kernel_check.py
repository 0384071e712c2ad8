"""Our own check of kernels on a device: `python -m kernels.check`.

One point an operation, implementation and dtype: how far the worst of its checks was off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from experiments.records import ForeignNumber
from workbench.importers.cells import axis, mapping, number, rows, text
from workbench.importers.document import Document
from workbench.importers.foreign import Column, Foreign, ForeignPoint, Format, derived, told
from workbench.importers.kernel_bench import bench_version, is_bench, surroundings

KIND = "kernel check"
COUNTS = (
    Column(key="checks", unit="", meaning="cases at each number of rows"),
    Column(key="passed", unit="", meaning="checks within tolerance and equal bit by bit"),
    Column(key="worst_error", unit="", meaning="norm of the error / norm of the exact result"),
    Column(key="worst_limit", unit="", meaning="the tolerance of that check"),
)
SHARE = Column(key="", unit="", meaning="worst error / its tolerance: 1 is the most that passes")


def _read(document: Document) -> Foreign:
    found = mapping(document.value)
    return Foreign(
        points=tuple(_point(found, row) for row in rows(found.get("results"))),
        version=bench_version(found),
        notes=tuple(text(row.get("why")) or "a check failed" for row in rows(found.get("failed"))),
    )


def _point(found: Mapping[str, object], row: Mapping[str, object]) -> ForeignPoint:
    checks, passed = number(row.get("checks")), number(row.get("passed"))
    failed = None if checks is None or passed is None else round(checks - passed)
    return ForeignPoint(
        engine={
            **surroundings(found),
            "model": "kernels",
            "implementation": axis(row.get("implementation")),
            "dtype": axis(row.get("dtype")),
        },
        workload={"kind": KIND, "op": axis(row.get("op")), "share": axis(found.get("share"))},
        numbers=(*told(row, COUNTS), *_share(row)),
        invalid=f"{failed} of its {checks:g} checks failed" if failed else None,
        devices=1,
    )


def _share(row: Mapping[str, object]) -> Iterator[ForeignNumber]:
    error, limit = number(row.get("worst_error")), number(row.get("worst_limit"))
    if error is not None and limit:
        yield derived("worst_error / worst_limit", error / limit, SHARE)


FORMATS = (
    Format(
        name="kernel-check", tool="kernels.check", title="checks of kernels on a device",
        recognises=is_bench("kernel check"), read=_read, expects='"format": "kernel check"',
    ),
)  # fmt: skip
