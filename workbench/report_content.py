"""What a report says, before it has a form: all numbers are text here, each with its n."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbench.catalogue import METRICS
from workbench.errors import WorkbenchError
from workbench.figures_text import number, value_text
from workbench.fronts import Front, comparison_groups, pareto
from workbench.pareto import DEFAULT_X, DEFAULT_Y
from workbench.report_tables import SHOWN, Row, Table, configuration, point_table, spread_words
from workbench.words import counts_words

if TYPE_CHECKING:
    import pandas as pd

    from workbench.figures_facts import Best
    from workbench.store import Run

HEADLINES = (
    ("output_tok_s_device", "Most output per device"),
    ("tok_s_user", "Fastest for one user"),
    ("ttft_s_p50", "Shortest wait for the first token"),
)
HOST_GROUPS = (
    "packages", "environment_variables", "engine_settings", "torch_build", "torch_threads",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Content:
    """Everything that a report of one run shows."""

    run_id: str
    title: str
    question: str
    labels: Row
    state: str
    facts: tuple[tuple[str, str], ...]  # model, accelerator, ...
    verdicts: Row
    front: Table
    figure_html: str | None  # made by plotly, whose own encoder escapes it
    plotly_script: str | None
    figure_note: str  # why there is no figure
    problems: Table
    points: Table
    definitions: Table
    environment: Table
    missing_environment: Table
    plan_yaml: str
    reproduce: Row
    limits: Row


def gather(run: Run) -> Content:
    """The content of the report of `run`, from its stored trials."""
    points, summary = run.points(), run.summary
    front = pareto(points, DEFAULT_X, DEFAULT_Y)
    figure, script, note = _figure(points, front, f"{summary.model} on {summary.accelerator}")
    return Content(
        run_id=run.run_id,
        title=summary.name,
        question=summary.question or "(the plan asks no question)",
        labels=summary.labels,
        state=summary.state,
        facts=_facts(run),
        verdicts=verdicts(points),
        front=_front_table(points, front),
        figure_html=figure,
        plotly_script=script,
        figure_note=note,
        problems=_problems(run.trials()),
        points=point_table(points),
        definitions=_definitions(points),
        environment=_environment(run.environment),
        missing_environment=Table(headers=("field", "why it is missing"), rows=_reasons(run)),
        plan_yaml=_plan_yaml(run),
        reproduce=_reproduce(run),
        limits=_limits(run, points),
    )


def _front_table(points: pd.DataFrame, front: Front) -> Table:
    """The points on a front, those of one comparison group together under its name."""
    rows = points.assign(group=[name or "" for name in front.group_of])[front.on_front]
    if rows.empty:
        return point_table(rows)
    return point_table(rows.sort_values(["group", front.x.metric, "trial_id"]))


def verdicts(points: pd.DataFrame) -> Row:
    """The best valid point by each headline metric, in a sentence with its interval and n.

    What may not be compared (other models, arithmetic or workloads) has a best of its own.
    """
    from workbench.figures_facts import best

    sound = points[points["valid"].astype(bool)]
    names = np.array(comparison_groups(sound), dtype=object)
    groups = sorted(set(names))
    found = [
        _verdict(top, words, of=f" of {group}" if len(groups) > 1 else "")
        for metric, words in HEADLINES
        for group in groups
        if (top := best(sound[names == group], metric)).value is not None
    ]
    return tuple(found) or ("No valid point was measured, so there is no answer yet.",)


def _verdict(top: Best, words: str, *, of: str) -> str:
    spread = spread_words(top.low, top.high, top.n, top.repeats)
    spread = f"within-run {spread}" if top.low is not None and top.repeats == 1 else spread
    return (
        f"{words}{of}: {number(top.value)} {top.spec.unit} ({spread}; {top.spec.label}), "
        f"with {top.where or 'the only configuration'}."
    )


def _problems(points: pd.DataFrame) -> Table:
    rows = [
        (str(p["trial_id"]), str(p["state"]), configuration(p), str(p["reason"]))
        for _, p in points[~points["valid"].astype(bool)].iterrows()
    ]
    return Table(headers=("trial", "state", "configuration", "reason"), rows=tuple(rows))


def _definitions(points: pd.DataFrame) -> Table:
    specs = [METRICS[name] for name in SHOWN if name in points.columns]
    rows = [(s.label, s.unit, str(s.direction), s.basis, s.definition) for s in specs]
    return Table(headers=("metric", "unit", "better", "basis", "definition"), rows=tuple(rows))


def _facts(run: Run) -> tuple[tuple[str, str], ...]:
    summary = run.summary
    counts = counts_words(summary.counts)
    return (
        ("model", summary.model),
        ("accelerator", summary.accelerator),
        ("engine", summary.engine),
        ("started", summary.started_utc),
        ("trials", f"{counts or 'none'} of {summary.planned} planned ({summary.state})"),
        ("run", run.run_id),
    )


def _environment(manifest: Mapping[str, object]) -> Table:
    rows = [
        (name, value_text(value))
        for name, value in sorted(manifest.items())
        if name not in (*HOST_GROUPS, "reasons", "devices") and value is not None
    ]
    for group in HOST_GROUPS:
        inner = manifest.get(group)
        if isinstance(inner, Mapping):
            rows += [
                (f"{group}.{name}", value_text(value)) for name, value in sorted(inner.items())
            ]
    devices = manifest.get("devices")
    if isinstance(devices, list):
        rows += [(f"device {place}", str(device)) for place, device in enumerate(devices)]
    return Table(headers=("field", "value"), rows=tuple(rows))


def _reasons(run: Run) -> tuple[Row, ...]:
    reasons = run.environment.get("reasons")
    items = reasons.items() if isinstance(reasons, Mapping) else ()
    return tuple((str(name), str(reason)) for name, reason in sorted(items))


def _plan_yaml(run: Run) -> str:
    import yaml

    return yaml.safe_dump(run.plan, sort_keys=True, allow_unicode=True, width=100)


def _reproduce(run: Run) -> Row:
    """The commands that measure the same plan again; the trial ids show whether it is the same."""
    sha = run.environment.get("git_sha")
    checkout = [f"git checkout {sha}"] if isinstance(sha, str) else []
    dirty = run.environment.get("git_dirty") is True
    note = ["# the checkout had uncommitted changes: see git_diff_hash"] if dirty else []
    return (*note, *checkout, "workbench run plan.lock.yaml")


def _limits(run: Run, points: pd.DataFrame) -> Row:
    """What these numbers cannot carry."""
    limits = [f"Labelled: {label}." for label in run.summary.labels]
    if not len(points) or points["repeats"].max() == 1:
        limits.append(
            "One repeat: intervals are within-run only and do not cover run-to-run noise."
        )
    else:
        limits.append(
            "Several repeats: values are their means, quantiles those of all their requests; the "
            "intervals are Student's over the repeats."
        )
    unsound = int((~points["valid"].astype(bool)).sum())
    if unsound:
        limits.append(f"{unsound} of {len(points)} points are not valid and are on no front.")
    stored = len(run.documents())
    if stored < run.planned:
        limits.append(f"{run.planned - stored} planned trials were not measured.")
    limits.append("The front picks maxima, which flatters them; measure its points afresh.")
    return tuple(limits)


def _figure(
    points: pd.DataFrame, front: Front, subtitle: str
) -> tuple[str | None, str | None, str]:
    """The front as HTML, plotly's script, and why they are missing."""
    if front.x.metric not in points.columns or front.y.metric not in points.columns:
        return None, None, "Nothing was measured, so there is no figure."
    try:
        from plotly.offline import get_plotlyjs

        from workbench import figures
    except ImportError:
        return None, None, "plotly is not installed here, so the figure is left out."
    try:
        figure = figures.pareto(points, front, look=figures.Look(subtitle=subtitle, columns=110))
    except WorkbenchError as error:
        return None, None, str(error)
    html = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id="front",
        config={"displaylogo": False, "responsive": True},
    )
    return html, get_plotlyjs(), ""
