"""What a report says of the runs behind its numbers: environment, differences, commands, limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.catalogue import METRICS
from workbench.comparability import Side, differences
from workbench.corrections import correction_lines
from workbench.figures_text import value_text
from workbench.report_imports import UNJUDGED, import_lines
from workbench.report_tables import SHOWN, Row, Table
from workbench.words import counts_words

if TYPE_CHECKING:
    import pandas as pd

    from workbench.store import Run

BUNDLE = "report.zip"
ONE_REPEAT = "One repeat: intervals are within-run only and do not cover run-to-run noise."
REPEATS = (
    "Several repeats: values are their means, quantiles those of all their requests; the "
    "intervals are Student's over the repeats."
)
MAXIMA = "The front picks maxima, which flatters them: `workbench confirm` measures it afresh."


def facts_table(runs: Sequence[Run]) -> Table:
    """Model, accelerator, engine, time, trials: one column a run."""
    rows = [tuple(told) for told in zip(*(_facts(run) for run in runs), strict=True)]
    names = ("model", "accelerator", "engine", "started", "trials")
    headers = ("run", *(run.run_id for run in runs))
    return Table(
        headers=headers, rows=tuple((name, *row) for name, row in zip(names, rows, strict=True))
    )


def _facts(run: Run) -> Row:
    summary = run.summary
    counts = counts_words(summary.counts) or "none"
    trials = f"{counts} of {summary.planned} planned ({summary.state})"
    tool = "" if run.origin is None else f" from {run.origin.get('tool')}"
    engine = summary.engine + tool
    return (summary.model, summary.accelerator, engine, summary.started_utc, trials)


def differences_table(runs: Sequence[Run]) -> Table:
    """What differs between the first run and every later one, what forbids a delta first."""
    rows = [
        (f"{run.run_id} against {runs[0].run_id}", str(one.severity), one.sentence)
        for run in runs[1:]
        for one in differences(_side(runs[0]), _side(run))
    ]
    note = "" if rows else "Nothing that is known differs." if len(runs) > 1 else ""
    return Table(headers=("runs", "weight", "what differs"), rows=tuple(rows), note=note)


def _side(run: Run) -> Side:
    points = run.points()
    return Side(run=run, points=points[points["valid"].astype(bool)].reset_index(drop=True))


def environment_table(runs: Sequence[Run]) -> Table:
    """One row a fact of the manifest, one column a run; facts that no run knows are left out."""
    told = [flat(run.environment) for run in runs]
    names = sorted({name for facts in told for name, value in facts.items() if value is not None})
    rows = [(name, *(value_text(facts.get(name)) for facts in told)) for name in names]
    headers = ("field", *(("value",) if len(runs) == 1 else tuple(run.run_id for run in runs)))
    return Table(headers=headers, rows=tuple(rows))


def missing_table(runs: Sequence[Run]) -> Table:
    """Why facts are not known."""
    rows = []
    for run in runs:
        reasons = run.environment.get("reasons")
        items = sorted(reasons.items()) if isinstance(reasons, Mapping) else ()
        name = (run.run_id,) if len(runs) > 1 else ()
        rows += [(*name, str(field), str(reason)) for field, reason in items]
    headers = (*(("run",) if len(runs) > 1 else ()), "field", "why it is missing")
    return Table(headers=headers, rows=tuple(rows))


def flat(manifest: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Facts by dotted name: `packages.torch`, `devices[0].name`; without the reasons."""
    found: dict[str, object] = {}
    for name, value in manifest.items():
        if name == "reasons" and not prefix:
            continue
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            for place, item in enumerate(value):
                inner = item if isinstance(item, Mapping) else {"value": item}
                found |= flat(inner, f"{prefix}{name}[{place}].")
        else:
            found[f"{prefix}{name}"] = value
    return found


def definitions_table(points: pd.DataFrame) -> Table:
    """The exact meaning of every metric that the report shows."""
    specs = [METRICS[name] for name in SHOWN if name in points.columns]
    rows = [(s.label, s.unit, str(s.direction), s.basis, s.definition) for s in specs]
    return Table(headers=("metric", "unit", "better", "basis", "definition"), rows=tuple(rows))


def plan_name(run: Run, runs: Sequence[Run]) -> str:
    """Where the locked plan of a run lies beside its report."""
    return "plan.lock.yaml" if len(runs) == 1 else f"{run.run_id}.plan.lock.yaml"


def reproduce_lines(runs: Sequence[Run]) -> Row:
    """The commands that measure the same again; equal trial ids show that it is the same."""
    lines: list[str] = []
    for run in runs:
        if run.origin is not None:
            lines += import_lines(run)
            continue
        lines += _checkout(run)
        lines.append(f"workbench run {plan_name(run, runs)}")
    if all(run.origin is not None for run in runs):
        return tuple(lines)
    lines += [
        "# or, from the bundle that `workbench report --bundle` writes, with a verdict:",
        f"workbench reproduce {BUNDLE} --run",
    ]
    return tuple(lines)


def _checkout(run: Run) -> list[str]:
    sha, version = run.environment.get("git_sha"), run.code_version
    found = [f"# code {version}"]
    if run.environment.get("git_dirty") is True:
        found.append("# the checkout had uncommitted changes: see git_diff_hash")
    return found + ([f"git checkout {sha}"] if isinstance(sha, str) else [])


def limits(runs: Sequence[Run], points: pd.DataFrame) -> Row:
    """What these numbers cannot carry."""
    labels = dict.fromkeys(label for run in runs for label in run.summary.labels)
    found = [f"Labelled: {label}." for label in labels]
    for run in runs:
        of = f"{run.run_id}: " if len(runs) > 1 else ""
        found += [of + line for line in correction_lines(run.folder, run.documents())]
    if any(run.origin is not None for run in runs):
        found.append(UNJUDGED)
    found.append(ONE_REPEAT if not len(points) or points["repeats"].max() == 1 else REPEATS)
    unsound = int((~points["valid"].astype(bool)).sum())
    if unsound:
        found.append(f"{unsound} of {len(points)} points are not valid and are on no front.")
    lacking = sum(max(0, run.planned - len(run.documents())) for run in runs)
    if lacking:
        found.append(f"{lacking} planned trials were not measured.")
    found.append(MAXIMA)
    return tuple(found)
