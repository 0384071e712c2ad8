"""What a report says, before it has a form: all numbers are text here, each with its n."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.arms import ARM_AXIS
from workbench.errors import WorkbenchError
from workbench.figures_headline import headline
from workbench.fronts import Front, pareto
from workbench.joint import joint, together
from workbench.report_facts import (
    definitions_table,
    differences_table,
    environment_table,
    facts_table,
    limits,
    missing_table,
    plan_name,
    reproduce_lines,
)
from workbench.report_imports import basis_table, imports_table
from workbench.report_tables import (
    MOST_ROWS,
    SECTIONS,
    Row,
    Table,
    configuration,
    point_table,
)
from workbench.svg_front import front_svg

if TYPE_CHECKING:
    import pandas as pd

    from workbench.store import Run


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The front as a picture: always as SVG where there is one, and by plotly unless static."""

    svg: str | None
    live: str | None  # HTML made by plotly, whose own encoder escapes it
    script: str | None  # plotly itself
    note: str  # why a picture is missing


@dataclass(frozen=True, kw_only=True)
class Content:
    """Everything that a report shows."""

    title: str
    question: str
    labels: Row
    verdicts: Row
    facts: Table
    drawn: Drawn
    front: Table
    differences: Table  # between runs; empty for one run
    problems: Table
    points: Table
    definitions: Table
    imports: Table  # of runs that another tool measured; empty without any
    bases: Table  # how that tool came by its numbers
    environment: Table
    missing_environment: Table
    plans: tuple[tuple[str, str], ...]  # file name, YAML
    reproduce: Row
    limits: Row
    sections: Row
    several: bool  # runs


def gather(
    runs: Sequence[Run], *, sections: Sequence[str] = SECTIONS, static: bool = False
) -> Content:
    """The content of one report of `runs` (at least one), from their stored trials."""
    from workbench.report_verdicts import best_points, comparisons, effects

    points = joint(runs)
    several = len(runs) > 1
    by = "run_id" if several else _engines(points)
    front = pareto(points, *headline(points).axes, by, runs=runs)
    summaries = [run.summary for run in runs]
    questions = list(dict.fromkeys(one.question for one in summaries if one.question))
    told = best_points(points)
    return Content(
        title=", ".join(dict.fromkeys(summary.name for summary in summaries)),
        question=" / ".join(questions) or "(the plan asks no question)",
        labels=tuple(dict.fromkeys(label for one in summaries for label in one.labels)),
        verdicts=(*(comparisons(runs) if several else effects(runs[0], points)), *told),
        facts=facts_table(runs),
        drawn=_drawn(points, front, by, static=static),
        front=_front_table(points, front),
        differences=differences_table(runs),
        problems=_problems(together([run.trials() for run in runs])),
        points=point_table(points, most=MOST_ROWS),
        definitions=definitions_table(points),
        imports=imports_table(runs),
        bases=basis_table(points),
        environment=environment_table(runs),
        missing_environment=missing_table(runs),
        plans=tuple((plan_name(run, runs), plan_yaml(run)) for run in runs),
        reproduce=reproduce_lines(runs),
        limits=limits(runs, points),
        sections=tuple(sections),
        several=several,
    )


def _engines(points: pd.DataFrame) -> str | None:
    """The column that tells engines apart where a run has several: each has its own front."""
    column = f"axis.{ARM_AXIS}"
    return column if column in points and points[column].nunique() > 1 else None


def plan_yaml(run: Run) -> str:
    """The locked plan of a run, as `workbench run` reads it."""
    import yaml

    return yaml.safe_dump(run.plan, sort_keys=True, allow_unicode=True, width=100)


def _front_table(points: pd.DataFrame, front: Front) -> Table:
    """The points on a front, those of one comparison group together under its name."""
    rows = points.assign(group=[name or "" for name in front.group_of])[front.on_front]
    if rows.empty:
        return point_table(rows)
    return point_table(rows.sort_values(["group", front.x.metric, "trial_id"]), most=MOST_ROWS)


def _problems(trials: pd.DataFrame) -> Table:
    bad = trials[~trials["valid"].astype(bool)]
    rows = [
        (str(p["trial_id"]), str(p["state"]), configuration(p), str(p["reason"]))
        for _, p in bad.head(MOST_ROWS).iterrows()
    ]
    left = len(bad) - len(rows)
    return Table(
        headers=("trial", "state", "configuration", "reason"),
        rows=tuple(rows),
        note=f"{left:,} more are in points.csv." if left else "",
    )


def _drawn(points: pd.DataFrame, front: Front, by: str | None, *, static: bool) -> Drawn:
    measured = {front.x.metric, front.y.metric} <= set(points.columns)
    svg = front_svg(points, front) if measured else None
    if svg is None:
        note = "No point has both numbers, so there is no figure."
        return Drawn(svg=None, live=None, script=None, note=note)
    if static:
        return Drawn(svg=svg, live=None, script=None, note="")
    try:
        from plotly.offline import get_plotlyjs

        from workbench import figures
    except ImportError:
        note = "plotly is not installed here, so the figure answers to no mouse."
        return Drawn(svg=svg, live=None, script=None, note=note)
    try:
        figure = figures.pareto(points, front, by=by, look=figures.Look(columns=110))
    except WorkbenchError as error:
        return Drawn(svg=svg, live=None, script=None, note=str(error))
    live = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id="front",
        config={"displaylogo": False, "responsive": True},
    )
    return Drawn(svg=svg, live=live, script=get_plotlyjs(), note="")
