"""The command calibrate: what the load generator does by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli_options import EXIT_GATE, JsonOption
from workbench.cli_output import err, say, say_json, show_table
from workbench.cli_plan import loaded
from workbench.words import point_words

if TYPE_CHECKING:
    from experiments.records import Calibration

DEFAULT_PLAN = "client.yaml"
HEADERS = ("point", "clients", "req/s", "E2E p50", "E2E p99", "late p99", "CPU")


def calibrate(
    file: Annotated[
        Path | None, typer.Argument(help="A plan with target: http; none: 500 req/s.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Put a plan's load on a server that answers at once: what is measured is the client.

    Exit code 3 where the client cannot send it.
    """
    from dataclasses import asdict
    from importlib.resources import files

    from experiments.plan_calibration import plan_calibrations, shortfalls

    path = file or Path(str(files("experiments") / "plans" / DEFAULT_PLAN))
    plan = loaded(path, None, None)
    with err.status("calibrating"):
        found = [(trial.point, result) for trial, result in plan_calibrations(plan)]
    rows = [(point_words(point.axes), *calibration_cells(result)) for point, result in found]
    show_table(plan.name, HEADERS, rows, whole=HEADERS[1:])
    short = [shortfalls(result, plan.gates) for _, result in found]
    _say_verdict([point_words(point.axes) for point, _ in found], short)
    if json:
        told = zip(found, short, strict=True)
        say_json([{"axes": p.axes, **asdict(result), "shortfalls": s} for (p, result), s in told])
    if any(short):
        raise typer.Exit(EXIT_GATE)


def _say_verdict(points: list[str], short: list[tuple[str, ...]]) -> None:
    for point, why in zip(points, short, strict=True):
        if why:
            said = f"the client cannot send this: {'; '.join(why)} ({point})"
            say(said, style="bold red")
    if any(short):
        say("use more clients, a lower rate, or a quieter host")
    else:
        say("the client can send this: nothing is beyond the limits of the plan's gates")


def calibration_cells(found: Calibration) -> tuple[str, ...]:
    """One calibration as a row: the share of a core is of the busiest client."""
    return (
        str(found.processes),
        f"{found.achieved_request_s:.1f}",
        _ms(found.overhead_p50_s),
        _ms(found.overhead_p99_s),
        _ms(found.lag_p99_s),
        "not sampled" if found.client_cpu_percent is None else f"{found.client_cpu_percent:.0f} %",
    )


def _ms(seconds: float | None) -> str:
    """A closed loop is never late: it has no schedule."""
    return "no schedule" if seconds is None else f"{1e3 * seconds:.2f} ms"


COMMANDS: dict[str, Callable[..., None]] = {"calibrate": calibrate}
