"""The bench you stand at: `import workbench as wb`.

The names below are the whole interface of notebooks and pages. Importing them loads neither
torch nor pandas. (`wb.pareto` and `wb.report` are the functions; their modules are reached as
`from workbench.pareto import ...`.)
"""

from __future__ import annotations

from workbench.errors import BenchError
from workbench.fronts import Front, pareto
from workbench.live import SweepRun, sweep
from workbench.pareto import Axis
from workbench.report import report
from workbench.store import Run, RunSummary, RunWriter, Store

__all__ = [
    "sweep",
    "SweepRun",
    "Store",
    "Run",
    "RunSummary",
    "RunWriter",
    "Axis",
    "Front",
    "pareto",
    "report",
    "BenchError",
]
