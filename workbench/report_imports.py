"""What a report says of imported runs: files, notes, how their tools came by each number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.catalogue import METRICS
from workbench.figures_headline import headline
from workbench.report_tables import SHOWN, Row, Table

if TYPE_CHECKING:
    import pandas as pd

    from workbench.store import Run

UNJUDGED = (
    "Imported results passed no gate of this workbench: what their tools do not tell (clocks, "
    "drivers, prompts, lost requests) was not looked at."
)


def imports_table(runs: Sequence[Run]) -> Table:
    """One row a file of an imported run: run, tool, file, hash, what was dropped and why."""
    rows = [
        (run.run_id, _tool(origin), str(file.get("name")), str(file.get("sha256"))[:16], notes)
        for run in runs
        if (origin := run.origin) is not None
        for notes in [" ".join(map(str, _listed(origin.get("notes"))))]
        for file in _listed(origin.get("files"))
        if isinstance(file, dict)
    ]
    return Table(headers=("run", "tool", "file", "sha256", "notes"), rows=tuple(rows))


def _tool(origin: object) -> str:
    assert hasattr(origin, "get")
    version = origin.get("tool_version")
    unseen = "" if origin.get("format_seen") else "; read by its documented form"
    return f"{origin.get('tool')} {version or 'of unknown version'}{unseen}"


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def basis_table(points: pd.DataFrame) -> Table:
    """How another tool came by each metric that the report shows; empty where none did."""
    names = dict.fromkeys((headline(points).x, headline(points).y, *SHOWN))
    rows = [
        (METRICS[name].label, str(told))
        for name in names
        if f"{name}.basis" in points
        for told in dict.fromkeys(points[f"{name}.basis"].dropna())
    ]
    return Table(headers=("metric", "how another tool came by it"), rows=tuple(rows))


def import_lines(run: Run) -> Row:
    """The command that imports the same files again."""
    assert run.origin is not None
    files = [str(f.get("name")) for f in _listed(run.origin.get("files")) if isinstance(f, dict)]
    stated = run.origin.get("devices_stated")
    gpus = f" --gpus {stated}" if stated is not None else ""
    return (f"# measured by {run.code_version}", f"workbench import {' '.join(files)}{gpus}")
