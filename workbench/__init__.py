"""The bench you stand at: `import workbench as wb`.

Everything is loaded when it is first used, so that importing this costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.errors import BenchError
    from workbench.store import Run, RunSummary, RunWriter, Store

_HOMES = {
    "BenchError": "workbench.errors",
    "Run": "workbench.store",
    "RunSummary": "workbench.store",
    "RunWriter": "workbench.store",
    "Store": "workbench.store",
}

__all__ = ["Store", "Run", "RunSummary", "RunWriter", "BenchError"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
