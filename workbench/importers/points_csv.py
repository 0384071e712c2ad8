"""Our own export of points, `workbench export --to csv`, read back with samples and intervals.

What was measured is kept with it: these points were measured by the workbench, elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from experiments.records import AxisValue, MetricValue
from workbench.catalogue import METRICS
from workbench.cost import COST_METRICS
from workbench.importers.cells import axis, count, number, text, texts
from workbench.importers.document import Document, Form
from workbench.importers.foreign import Foreign, ForeignPoint, Format

NEEDED = {"run_id", "trial_id", "state", "valid"}
COSTS = "Costs were left out: they follow from the prices of the store that reads."


def _rows(document: Document) -> list[dict[str, str]]:
    found = document.value if document.form is Form.CSV else []
    if not isinstance(found, list) or not all(isinstance(row, list) for row in found):
        return []
    if not found:
        return []
    header = [str(name) for name in found[0]]
    return [dict(zip(header, row, strict=False)) for row in found[1:] if row]


def _recognises(document: Document) -> bool:
    found = _rows(document)
    return bool(found) and found[0].keys() >= NEEDED


def _read(document: Document) -> Foreign:
    found = _rows(document)
    costs = any(name in COST_METRICS for name in found[0])
    return Foreign(points=tuple(map(_point, found)), notes=(COSTS,) if costs else ())


def _point(row: Mapping[str, str]) -> ForeignPoint:
    valid = row.get("valid") == "True"
    told = text(row.get("reason")) or "no reason kept"
    return ForeignPoint(
        engine=_settings(row, "engine.") | {"measured_in": text(row.get("run_id"))},
        workload=_settings(row, "workload."),
        numbers=(),
        invalid=None if valid else f"{row.get('state')}: {told}",
        labels=_labels(row.get("labels") or ""),
        repeat=count(row.get("repeat")) or 0,
        metrics={name: _metric(row, name) for name in METRICS
                 if _is_told(row, name) and name not in COST_METRICS},
    )  # fmt: skip


def _labels(cell: str) -> tuple[str, ...]:
    try:
        return texts(json.loads(cell))
    except (ValueError, RecursionError):
        return ()


def _is_told(row: Mapping[str, str], name: str) -> bool:
    """Also without a count of samples: other tools often write none."""
    return any(row.get(f"{name}{part}") for part in ("", ".n", ".reason"))


def _settings(row: Mapping[str, str], prefix: str) -> dict[str, AxisValue]:
    found = {n.removeprefix(prefix): _cell(cell) for n, cell in row.items() if n.startswith(prefix)}
    return {name: value for name, value in found.items() if value is not None}


def _cell(cell: str) -> AxisValue:
    plain = cell.removeprefix("'")
    return axis(number(plain)) if number(plain) is not None else axis(plain)


def _metric(row: Mapping[str, str], name: str) -> MetricValue:
    value, low, high = (number(row.get(f"{name}{part}")) for part in ("", ".low", ".high"))
    reason = text(row.get(f"{name}.reason"))
    return MetricValue(
        value=value, n=count(row.get(f"{name}.n")), low=low, high=high,
        reason=reason if value is not None else reason or "the cell is empty",
        basis=text(row.get(f"{name}.basis")),
    )  # fmt: skip


FORMATS = (
    Format(name="points-csv", tool="inference-workbench", title="points as this workbench exports",
           recognises=_recognises, read=_read,
           expects="CSV with `run_id`, `trial_id`, `state`, `valid`"),
)  # fmt: skip
