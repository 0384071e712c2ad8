"""Commands that check and make: verify, make-checkpoint, doctor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from workbench.cli_options import JsonOption
from workbench.cli_output import say, say_json, show_table
from workbench.errors import UsageError
from workbench.invocation import DEFAULT_STORE


def verify(
    directory: Annotated[Path, typer.Argument(help="A checkpoint with outputs.safetensors.")],
    json: JsonOption = False,
) -> None:
    """Run the engine on a checkpoint and print its largest difference from stored outputs."""
    from dataclasses import asdict

    from engine.verify import verify as run_verify

    found = run_verify(directory)
    rows = [asdict(row) for row in found.rows]
    if rows:
        cells = [[_cell(value) for value in row.values()] for row in rows]
        show_table(str(directory), [name.replace("_", " ") for name in rows[0]], cells)
    say("passed" if found.passed else "past the tolerance", style=None if found.passed else "red")
    if json:
        say_json({"passed": found.passed, "rows": rows})
    if not found.passed:
        raise typer.Exit(1)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)


def make_checkpoint(
    kind: Annotated[str, typer.Argument(help="toy or small")],
    directory: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    json: JsonOption = False,
) -> None:
    """Write a random checkpoint in the released form. What it says means nothing."""
    from engine.make_checkpoint import Kind
    from engine.make_checkpoint import make_checkpoint as make

    kinds = get_args(Kind)
    if kind not in kinds:
        raise UsageError(
            f"there is no kind {kind!r}.",
            where="make-checkpoint",
            remedy=f"Choose among {', '.join(kinds)}.",
        )
    made = make(cast("Kind", kind), seed=seed, directory=directory)
    say(f"wrote {made}")
    if json:
        say_json({"directory": str(made)})


def doctor(
    store: Annotated[Path, typer.Option("--store", help="Where results would go.")] = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Say what this machine has, what is missing, and what each of it means."""
    from workbench.doctor import examine

    findings = examine(store)
    rows = [(f.level, f.subject, f.message) for f in findings]
    show_table("doctor", ("", "subject", "finding"), rows)
    if json:
        say_json([{"level": f.level, "subject": f.subject, "message": f.message} for f in findings])
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


COMMANDS: dict[str, Callable[..., None]] = {
    "verify": verify,
    "make-checkpoint": make_checkpoint,
    "doctor": doctor,
}
