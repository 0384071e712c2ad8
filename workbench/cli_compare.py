"""Commands that hold measurements against each other: compare, confirm."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli_options import (
    EXIT_GATE,
    EXIT_UNDECIDED,
    BudgetOption,
    JsonOption,
    StoreOption,
    axis_of,
)
from workbench.cli_output import say_json
from workbench.errors import UsageError
from workbench.invocation import DEFAULT_STORE
from workbench.pareto import DEFAULT_X, DEFAULT_Y
from workbench.store import Store

if TYPE_CHECKING:
    from workbench.compare import Comparison
    from workbench.compare_gate import Gated

ARM = "RUN, or RUN:setting=value,setting=value for some of its points."


def compare(
    arms: Annotated[
        tuple[str, str], typer.Argument(metavar="A B", help=f"The baseline, and what is new: {ARM}")
    ],
    metric: Annotated[
        list[str] | None, typer.Option(help="Compare by this metric; may be repeated.")
    ] = None,
    gate: Annotated[
        str | None,
        typer.Option(
            help="Exit with 3 where B is beyond doubt worse than this, such as 3%, and with 4 "
            "where repeats are too few to say; 0 is a pass."
        ),
    ] = None,
    accept: Annotated[
        list[str] | None, typer.Option(help="Compare although this differs; may be repeated.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Say whether B is better than A: what differs between them first, then what that did."""
    from workbench.arms import parse_arm
    from workbench.compare import compare as compared
    from workbench.compare_tables import show_gate

    threshold = None if gate is None else share_of(gate, "--gate")
    chosen = Store(store)
    a, b = (parse_arm(chosen, text) for text in arms)
    found = compared(a, b, metrics=metric, accept=accept or ())
    found.show()
    if found.blocked:
        if json:
            say_json(_document(found))
        found.verdict(found.metrics[0])  # refuses, with what to do
    judged = None if threshold is None else found.gate(threshold)
    if judged is not None:
        show_gate(judged)
    if json:
        say_json(_document(found) | {"gate": None if judged is None else _gate_document(judged)})
    if judged is not None:
        raise typer.Exit(_exit_code(judged))


def confirm(  # noqa: PLR0913 - its options
    run_id: Annotated[str, typer.Argument(help="The run whose front is measured again.")],
    points: Annotated[int | None, typer.Option(help="At most this many, surest first.")] = None,
    repeats: Annotated[int, typer.Option(help="Fresh repeats of each.")] = 3,
    x: Annotated[str, typer.Option(help="metric:max or metric:min")] = str(DEFAULT_X),
    y: Annotated[str, typer.Option(help="metric:max or metric:min")] = str(DEFAULT_Y),
    budget: BudgetOption = None,
    dry_run: Annotated[bool, typer.Option(help="Print what would be measured and stop.")] = False,
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Measure the points of a front again with fresh prompts: what is left of its maxima."""
    from workbench.cli_plan import budget_of, show_outlook
    from workbench.cli_run import measure_job
    from workbench.compare_tables import show_confirmation
    from workbench.confirm import chosen_points, confirmation, confirming_plan, fresh_seed
    from workbench.runs import begin, outlook

    chosen, axes = Store(store), (axis_of("--x", x), axis_of("--y", y))
    budget_s = budget_of(budget)
    if points is not None and points < 1:
        raise UsageError(f"{points} is no number of points.", where="--points")
    parent = chosen.run(run_id)
    names = chosen_points(parent, axes, points)
    plan = confirming_plan(parent, names, repeats, seed=fresh_seed(parent, chosen))
    found = outlook(plan, chosen)
    if dry_run:
        show_outlook(found, budget_s=budget_s, json=json)
        return
    job = begin(found, chosen, parent=parent.run_id, budget_s=budget_s)
    code = measure_job(job, json=False)
    confirmed = confirmation(job.writer.run.refresh(), parent, axes)
    show_confirmation(confirmed)
    if json:
        say_json({**dataclasses.asdict(confirmed), "points": confirmed.points.to_dict("records")})
    raise typer.Exit(code)


def share_of(text: str, option: str) -> float:
    """`3%` or `0.03` as 0.03; UsageError for anything else."""
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        return float(number) / (100 if percent else 1)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no share.", where=option, remedy="Use one such as 3% or 0.03."
        ) from error


def _document(found: Comparison) -> dict[str, object]:
    """A comparison for a program."""
    from workbench.compare_tables import difference_rows

    tables = {} if found.blocked else {
        "overall": found.overall.to_dict("records"), "points": found.points.to_dict("records")
    }  # fmt: skip
    return {
        "a": found.a.label,
        "b": found.b.label,
        "differences": difference_rows(found),
        "blocked": [one.name for one in found.blocked],
        "matched_points": len(found.matches.rows),
        **tables,
    }


def _gate_document(judged: Gated) -> dict[str, object]:
    told = {"failed": judged.failed, "decided": judged.decided, "summary": judged.summary}
    return {**dataclasses.asdict(judged), **told}


def _exit_code(judged: Gated) -> int:
    if judged.failed:
        return EXIT_GATE
    return 0 if judged.decided else EXIT_UNDECIDED


COMMANDS: dict[str, Callable[..., None]] = {"compare": compare, "confirm": confirm}
