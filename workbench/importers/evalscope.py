"""EvalScope's performance detail: rows whose columns carry their unit and direction.

A column is read by its key only where its unit is one of those expected; a request rate of -1 is
its word for a closed loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.records import AxisValue
from workbench.importers.cells import at, count, mapping, number, rows, text
from workbench.importers.document import Document, Form
from workbench.importers.foreign import (
    Column,
    Foreign,
    ForeignPoint,
    Format,
    derived,
    leftovers,
    told,
)
from workbench.importers.speeds import TPOT, speeds

SCALES = {"s": 1.0, "ms": 1e-3, "tok/s": 1.0, "req/s": 1.0}
METRICS = {
    "request_throughput": ("request_s", "req/s", "successful requests / time"),
    "output_token_throughput": ("output_tok_s", "tok/s", "output tokens / time"),
    "total_token_throughput": ("total_tok_s", "tok/s", "(prompt + output tokens) / time"),
    "avg_latency": ("e2e_s_mean", "s", "mean of last chunk - sent"),
    "p99_latency": ("e2e_s_p99", "s", "p99 of last chunk - sent"),
    "avg_ttft": ("ttft_s_mean", "s", "mean of first chunk - sent"),
    "p99_ttft": ("ttft_s_p99", "s", "p99 of first chunk - sent"),
    "avg_tpot": ("tpot_compat_s_mean", "s", f"mean of {TPOT}"),
    "p99_tpot": ("tpot_compat_s_p99", "s", f"p99 of {TPOT}"),
}
FAILING = Column(key="", metric="error_rate", unit="", meaning="1 - successful / all requests")
FIELDS = ("concurrency", "request_rate", "success_rate")


def _recognises(document: Document) -> bool:
    found = mapping(document.value) if document.form is Form.JSON else {}
    return {"summary_columns", "summary_rows"} <= found.keys()


def _read(document: Document) -> Foreign:
    report = mapping(document.value)
    units = {
        str(column.get("key")): text(at(column, "semantics", "raw_unit"))
        for column in rows(report.get("summary_columns"))
    }
    columns = [
        Column(key=key, metric=metric, unit=unit, meaning=meaning, scale=SCALES[told_unit])
        for key, (metric, unit, meaning) in METRICS.items()
        if (told_unit := units.get(key) or "") in SCALES
    ]
    found = rows(report.get("summary_rows"))
    return Foreign(points=tuple(_point(row, columns, report) for row in found))


def _point(
    row: Mapping[str, object], columns: list[Column], report: Mapping[str, object]
) -> ForeignPoint:
    cells = mapping(row.get("values"))
    counts = [count(value) for value in mapping(row.get("sample_counts")).values()]
    done = max((n for n in counts if n is not None), default=None)
    found = told(cells, columns, done)
    success = number(cells.get("success_rate"))
    if success is not None:
        found += (derived("1 - success_rate / 100", 1 - success / 100, FAILING),)
    model = text(report.get("model"))
    return ForeignPoint(
        engine={} if model is None else {"model": model},
        workload=_load(cells),
        numbers=(*found, *speeds(found), *leftovers(cells, {*(c.key for c in columns), *FIELDS})),
        samples=done,
    )


def _load(cells: Mapping[str, object]) -> dict[str, AxisValue]:
    rate, slots = number(cells.get("request_rate")), count(cells.get("concurrency"))
    if rate is not None and rate > 0:
        return {"load": "poisson", "rate": rate, "max_concurrency": slots}
    return {"load": "closed", "batch_size": slots}


FORMATS = (
    Format(name="evalscope", tool="EvalScope", title="an EvalScope performance detail",
           recognises=_recognises, read=_read,
           expects="JSON with `summary_columns`, `summary_rows`"),
)  # fmt: skip
