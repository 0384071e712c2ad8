"""The bench you stand at: `import workbench as wb`.

Notebooks and pages use the names below, and `from workbench import figures` for what is drawn
(that alone needs plotly); nothing else of the workbench is meant for them. Importing the names
loads neither torch nor pandas. (`wb.pareto`, `wb.report` and `wb.compare` are the functions;
their modules are reached as `from workbench.pareto import ...`.)
"""

from __future__ import annotations

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
from workbench.importers.intake import import_files
from workbench.joint import joint
from workbench.live import SweepRun, confirm, sweep
from workbench.pareto import DEFAULT_X, DEFAULT_Y, Axis
from workbench.prices import Prices, PriceTable, load_prices, table_of
from workbench.report import report, write_bundle
from workbench.stand_in import null_server
from workbench.store import Run, RunSummary, RunWriter, Store
from workbench.words import counts_words

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
