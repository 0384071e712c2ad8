"""The bench you stand at: `import workbench as wb`.

Notebooks and pages use the names below, and `from workbench import figures` for what is drawn
(that alone needs plotly); nothing else of the workbench is meant for them. A name is imported when
it is first asked for, none of them loads torch or pandas, and importing the package loads
nothing: the command can be interrupted quietly from its first moment. (`wb.pareto`, `wb.report`
and `wb.compare` are the functions; their modules are reached as `from workbench.pareto import
...`.)
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.metric_specs import MetricSpec
    from experiments.records import ForeignNumber, TrialRecord
    from kernels.errors import WorkbenchError
    from workbench.arms import Arm, select
    from workbench.bands import Band, Estimate
    from workbench.catalogue import METRICS
    from workbench.compare import Comparison, compare
    from workbench.confirm import Confirmation, confirmation
    from workbench.errors import BenchError
    from workbench.fronts import Front, comparison_groups, pareto
    from workbench.importers.catalogue import FORMATS as IMPORT_FORMATS
    from workbench.importers.intake import Intake, import_files
    from workbench.joint import joint
    from workbench.live import SweepRun, confirm, sweep
    from workbench.pareto import DEFAULT_X, DEFAULT_Y, Axis
    from workbench.prices import Prices, PriceTable, load_prices, table_of
    from workbench.report import report, write_bundle
    from workbench.stand_in import null_server
    from workbench.store import Run, RunSummary, RunWriter, Store
    from workbench.words import counts_words

HOMES = {
    "MetricSpec": "experiments.metric_specs",
    "ForeignNumber": "experiments.records",
    "TrialRecord": "experiments.records",
    "WorkbenchError": "kernels.errors",
    "Arm": "workbench.arms",
    "select": "workbench.arms",
    "Band": "workbench.bands",
    "Estimate": "workbench.bands",
    "METRICS": "workbench.catalogue",
    "Comparison": "workbench.compare",
    "compare": "workbench.compare",
    "Confirmation": "workbench.confirm",
    "confirmation": "workbench.confirm",
    "BenchError": "workbench.errors",
    "Front": "workbench.fronts",
    "comparison_groups": "workbench.fronts",
    "pareto": "workbench.fronts",
    "IMPORT_FORMATS": "workbench.importers.catalogue:FORMATS",
    "import_files": "workbench.importers.intake",
    "Intake": "workbench.importers.intake",
    "joint": "workbench.joint",
    "SweepRun": "workbench.live",
    "confirm": "workbench.live",
    "sweep": "workbench.live",
    "DEFAULT_X": "workbench.pareto",
    "DEFAULT_Y": "workbench.pareto",
    "Axis": "workbench.pareto",
    "Prices": "workbench.prices",
    "PriceTable": "workbench.prices",
    "load_prices": "workbench.prices",
    "table_of": "workbench.prices",
    "report": "workbench.report",
    "write_bundle": "workbench.report",
    "null_server": "workbench.stand_in",
    "Run": "workbench.store",
    "RunSummary": "workbench.store",
    "RunWriter": "workbench.store",
    "Store": "workbench.store",
    "counts_words": "workbench.words",
}
"""Where each name is defined; `:NAME` where it has another one there."""

__all__ = [
    "sweep",
    "SweepRun",
    "Store",
    "Run",
    "RunSummary",
    "RunWriter",
    "Axis",
    "DEFAULT_X",
    "DEFAULT_Y",
    "Front",
    "Band",
    "Estimate",
    "pareto",
    "comparison_groups",
    "compare",
    "select",
    "Arm",
    "Comparison",
    "confirm",
    "confirmation",
    "Confirmation",
    "import_files",
    "Intake",
    "IMPORT_FORMATS",
    "ForeignNumber",
    "joint",
    "report",
    "write_bundle",
    "null_server",
    "METRICS",
    "MetricSpec",
    "Prices",
    "PriceTable",
    "load_prices",
    "table_of",
    "TrialRecord",
    "counts_words",
    "BenchError",
    "WorkbenchError",
]


class _Bench(ModuleType):
    """The package, whose names stay what they are when a module of one's name is imported."""

    def __getattr__(self, name: str) -> object:
        if name not in HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module, _, there = HOMES[name].partition(":")
        found = getattr(importlib.import_module(module), there or name)
        super().__setattr__(name, found)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        """Leave out what Python's import binds here: `workbench.pareto`, the module."""
        if name not in HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *HOMES})


sys.modules[__name__].__class__ = _Bench
