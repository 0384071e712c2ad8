"""Commands that hold measurements against each other: compare, confirm."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli_options import EXIT_GATE, JsonOption, StoreOption
from workbench.cli_output import say_json
from workbench.errors import UsageError
from workbench.invocation import DEFAULT_STORE
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
        typer.Option(help="Exit with 3 where B is beyond doubt worse than this, such as 3%."),
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
    if judged is not None and judged.failed:
        raise typer.Exit(EXIT_GATE)


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
    return {**dataclasses.asdict(judged), "failed": judged.failed}


COMMANDS: dict[str, Callable[..., None]] = {"compare": compare}
