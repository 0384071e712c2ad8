"""What a report says, before it has a form: all numbers are text here, each with its n."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.metric_specs import METRICS
from workbench.errors import WorkbenchError
from workbench.figures_text import MISSING, interval, number, value_text
from workbench.fronts import Front, comparison_groups, pareto
from workbench.pareto import Axis

if TYPE_CHECKING:
    import pandas as pd

    from workbench.store import Run

X = Axis(metric="tok_s_user", direction="max")
Y = Axis(metric="output_tok_s_device", direction="max")
HEADLINES = (
    (Y, "Most output per device"),
    (X, "Fastest for one user"),
    (Axis(metric="ttft_s_p50", direction="min"), "Shortest wait for the first token"),
)
SHOWN = (
    "output_tok_s_device", "tok_s_user", "ttft_s_p50", "tpot_s_p50", "e2e_s_p50",
    "acceptance_length", "energy_j_token",
)  # fmt: skip
HOST_FIELDS = ("reasons", "packages", "environment_variables", "engine_settings", "devices")
Row = tuple[str, ...]


class Measured(str):
    """`12.3 (11.9 to 12.8, n=64)`, whose two halves a page may set on two lines."""

    __slots__ = ("aside", "head")

    def __new__(cls, head: str, aside: str = "") -> Measured:
        """`aside` is the interval and n, or why there is no number; empty for nothing to say."""
        text = super().__new__(cls, f"{head} ({aside})" if aside else head)
        text.head, text.aside = head, aside
        return text


@dataclass(frozen=True, kw_only=True)
class Table:
    """Headers and rows of text; `note` says what the rows leave out because it is always so."""

    headers: Row
    rows: tuple[Row, ...]
    note: str = ""


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
    front = pareto(points, X, Y)
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
    return point_table(rows.sort_values(["group", X.metric, "trial_id"]))


def verdicts(points: pd.DataFrame) -> Row:
    """The best valid point by each headline metric, in a sentence with its interval and n.

    What may not be compared (other models, arithmetic or workloads) has a best of its own.
    """
    sound = points[points["valid"].astype(bool)]
    names = np.array(comparison_groups(sound), dtype=object)
    groups = sorted(set(names))
    found = [
        _verdict(best, axis, words, of=f" of {group}" if len(groups) > 1 else "")
        for axis, words in HEADLINES
        for group in groups
        if (best := best_point(sound[names == group], axis)) is not None
    ]
    return tuple(found) or ("No valid point was measured, so there is no answer yet.",)


def _verdict(best: pd.Series, axis: Axis, words: str, *, of: str) -> str:
    spec = METRICS[axis.metric]
    return (
        f"{words}{of}: {number(best[axis.metric])} {spec.unit} "
        f"({_spread(best, axis.metric)}; {spec.label}), with {configuration(best)}."
    )


def best_point(points: pd.DataFrame, axis: Axis) -> pd.Series | None:
    """The valid point with the best finite value; None when there is none."""
    if axis.metric not in points.columns:
        return None
    sound = points[points["valid"].astype(bool) & points[axis.metric].notna()]
    if sound.empty:
        return None
    place = sound[axis.metric].idxmax() if axis.direction == "max" else sound[axis.metric].idxmin()
    return sound.loc[place]


def measured(point: pd.Series, metric: str) -> Measured:
    """`12.3 (11.9 to 12.8, n=64)`; a missing number is a dash with its reason."""
    value = point.get(metric)
    if not _present(value):
        reason = point.get(f"{metric}.reason")
        return Measured(MISSING, reason if isinstance(reason, str) else "")
    return Measured(number(value), _spread(point, metric))


def _spread(point: pd.Series, metric: str) -> str:
    """`11.9 to 12.8, n=64`; of several repeats their number, since their spread is not judged."""
    spread = interval(point.get(f"{metric}.low"), point.get(f"{metric}.high"))
    repeats = int(point.get("repeats", 1))
    said = [f"{repeats} repeats"] if repeats > 1 else [spread] if spread else []
    return ", ".join([*said, f"n={int(point[f'{metric}.n'])}"])


def configuration(point: pd.Series) -> str:
    """The axes of a point in words, those that it has."""
    axes = [name for name in point.index if str(name).startswith("axis.")]
    shown = [name for name in axes if _present(point[name])]
    pairs = [f"{name.removeprefix('axis.')}={value_text(point[name])}" for name in shown]
    return ", ".join(pairs) or "the only configuration"


def _present(value: object) -> bool:
    return value is not None and value == value


def point_table(points: pd.DataFrame) -> Table:
    """One row a point: axes, workload, state and the metrics shown, with intervals.

    What is the same for every point (one workload, one group, a metric that no point has) goes
    into the note instead of a column.
    """
    axes = [str(name) for name in points.columns if str(name).startswith("axis.")]
    varying = [name for name in ("group", "workload.name") if _varies(points, name)]
    shown = [name for name in SHOWN if name in points.columns]
    metrics = [name for name in shown if points[name].notna().any()]
    plain = [*axes, *varying]
    headers = ["trial", *(_plain_header(name) for name in plain), "state"]
    headers += [f"{METRICS[name].label} [{METRICS[name].unit}]" for name in metrics]
    rows = [
        (
            str(point["trial_id"]),
            *(value_text(point[name]) if _present(point[name]) else MISSING for name in plain),
            str(point["state"]),
            *(measured(point, name) for name in metrics),
        )
        for _, point in points.iterrows()
    ]
    absent = [_absent(points, name) for name in shown if name not in metrics]
    return Table(headers=tuple(headers), rows=tuple(rows), note=" ".join(absent))


def _varies(points: pd.DataFrame, column: str) -> bool:
    return column in points.columns and points[column].nunique(dropna=False) > 1


def _plain_header(column: str) -> str:
    return column.removeprefix("axis.").removesuffix(".name").replace("_", " ")


def _absent(points: pd.DataFrame, metric: str) -> str:
    reasons = points.get(f"{metric}.reason")
    said = [] if reasons is None else sorted({r for r in reasons if isinstance(r, str)})
    why = f": {'; '.join(said)}" if said else ""
    return f"{METRICS[metric].label} is missing for every point{why}."


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
    counts = ", ".join(f"{count} {state}" for state, count in summary.counts.items() if count)
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
        if name not in HOST_FIELDS and value is not None
    ]
    for group in HOST_FIELDS[1:4]:
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
        limits.append("Several repeats: values are their means; how they scatter is not judged.")
    unsound = int((~points["valid"].astype(bool)).sum())
    if unsound:
        limits.append(f"{unsound} of {len(points)} points are not valid and are on no front.")
    stored = len(run.trial_ids())
    if stored < run.planned:
        limits.append(f"{run.planned - stored} planned trials were not measured.")
    limits.append("The front picks maxima, which flatters them; measure its points afresh.")
    return tuple(limits)


def _figure(
    points: pd.DataFrame, front: Front, subtitle: str
) -> tuple[str | None, str | None, str]:
    """The front as HTML, plotly's script, and why they are missing."""
    if X.metric not in points.columns or Y.metric not in points.columns:
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
