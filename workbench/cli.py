"""The command `workbench`.

Exit codes: 0 ok, 1 failure, or part of an import was refused, 2 bad input, 3 a gate did not pass,
4 some trials failed or a gate is undecided, 130 interrupted. torch and pandas are loaded by the
commands that need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from kernels.errors import WorkbenchError
from kernels.interrupt import EXIT_INTERRUPTED
from workbench import (
    cli_calibrate,
    cli_check,
    cli_checkpoints,
    cli_compare,
    cli_cost,
    cli_eval,
    cli_import,
    cli_peers,
    cli_plan,
    cli_report,
    cli_run,
    cli_show,
)
from workbench.cli_output import err, never_stop_at_a_character, say, say_error

if TYPE_CHECKING:
    from typer import Context


class _ExplainedGroup(TyperGroup):
    """Turns our errors into one message and their exit code; no traceback."""

    def invoke(self, ctx: Context) -> object:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except WorkbenchError as error:
            say_error(error)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            err.print("interrupted; what was finished is stored")
            raise typer.Exit(EXIT_INTERRUPTED) from error


app = typer.Typer(
    cls=_ExplainedGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _say_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(f"workbench {version('inference-workbench')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Measure an inference engine so that the numbers can be defended."""


MODULES = (
    cli_plan, cli_run, cli_eval, cli_show, cli_compare, cli_report, cli_import, cli_cost,
    cli_calibrate, cli_check, cli_checkpoints,
)  # fmt: skip
for commands in (module.COMMANDS for module in MODULES):
    for name, function in commands.items():
        app.command(name)(function)
app.add_typer(cli_peers.app, name="peers")


def main() -> None:
    """Run the command that the arguments name; `workbench.entry` calls it."""
    never_stop_at_a_character()
    app()
