"""Commands that look: ls, status, show, pareto, dashboard."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from shlex import quote
from types import FrameType
from typing import Annotated

import typer

from experiments.errors import MissingPackageError
from experiments.records import Gate
from workbench.cli_options import JsonOption, PricesOption, StoreOption, WideOption, axis_of
from workbench.cli_output import has_room, say, say_error, say_json, show_table
from workbench.cli_status import progress_document, status_lines
from workbench.corrections import correction_lines
from workbench.errors import PortInUseError, UsageError
from workbench.invocation import DEFAULT_STORE, command_line
from workbench.search_result import beyond_limits, beyond_lines, search_lines
from workbench.store import Run, RunSummary, Store
from workbench.stored_run import attempt
from workbench.trial_files import read_document
from workbench.words import counts_words

AXIS = "metric:max or metric:min; left out: what the form of the load is about"
LAST_PORT = 65_535
RunArgument = Annotated[
    str | None, typer.Argument(help="The run, or the beginning of its id; the newest if left out.")
]


def ls(
    store: StoreOption = DEFAULT_STORE,
    reindex: Annotated[bool, typer.Option(help="Rebuild index.sqlite first.")] = False,
    wide: WideOption = False,
    json: JsonOption = False,
) -> None:
    """List the stored runs, newest first."""
    chosen = Store(store)
    if reindex:
        say(f"indexed {chosen.reindex()} trials")
    runs = chosen.runs()
    if runs:
        _show_runs(str(store), runs, wide=wide)
    else:
        again = command_line("demo", store=store)
        say(f"This store holds no run yet; `{again}` makes one.")
    for error in chosen.unreadable():
        say_error(error)
    if json:
        say_json([_document(summary) for summary in runs])


def status(
    run_id: RunArgument = None,
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Say how far a run is."""
    run = chosen(Store(store), run_id)
    for line in status_lines(run, store):
        say(line)
    if json:
        say_json({**_document(run.summary), "progress": progress_document(run)})


def show(
    run_id: RunArgument = None,
    trial: Annotated[
        str | None, typer.Option(help="One trial in full, by the beginning of its id.")
    ] = None,
    wide: WideOption = False,
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Show a run's trials, or everything about one trial."""
    from workbench.cli_tables import show_points

    run = chosen(Store(store), run_id)
    if trial is not None:
        _show_trial(run, _trial_of(run, trial), json=json)
        return
    say(f"{run.run_id}: {run.summary.question}")
    beyond = beyond_limits(run)
    show_points(run.points(), wide=wide, beyond=beyond)
    corrected = correction_lines(run.folder, run.documents())
    for line in (*beyond_lines(beyond), *search_lines(run), *corrected):
        say(line)
    if json:
        say_json({"run": _document(run.summary), "trials": run.judged()})


def _trial_of(run: Run, prefix: str) -> str:
    """The stored trial whose id is `prefix` or begins with it; of its attempts the newest."""
    ids = run.trial_ids()
    if prefix in ids:
        return prefix
    found = [name for name in ids if name.startswith(prefix)]
    if not found or len({attempt(name)[0] for name in found}) > 1:
        several = f"fits several trials: {', '.join(sorted(found))}."
        raise UsageError(
            f"{prefix!r} {several if found else 'is no stored trial of this run.'}",
            where=run.run_id,
            remedy="Give more of the id." if found else "`workbench show` lists the trials.",
        )
    return max(found, key=attempt)


def _show_trial(run: Run, trial: str, *, json: bool) -> None:
    from workbench.cli_tables import show_foreign, show_metrics

    record = run.trial(trial)
    say(f"{trial}: {record.state}{f' ({record.reason})' if record.reason else ''}")
    settings = {
        **{f"axis.{k}": v for k, v in record.point.axes.items()},
        **{f"engine.{k}": v for k, v in record.point.engine.items()},
        **{f"workload.{k}": v for k, v in record.point.workload.items()},
    }
    show_table("configuration", ("field", "value"), [(k, str(v)) for k, v in settings.items()])
    show_metrics(record.metrics)
    if record.foreign:
        show_foreign(record.foreign)
    gates = [(g.name, _result(g), g.message) for g in record.gates]
    show_table("gates", ("gate", "result", "message"), gates)
    if record.evals:
        from workbench.cli_answers import show_answers

        show_answers(record)
    for name, path in run.files(trial).items():
        say(f"{name}: {path.stat().st_size:,} bytes")
    if json:
        say_json(read_document(run.folder / "trials" / trial))


def _result(gate: Gate) -> str:
    if not gate.judged:
        return "not judged"
    return "passed" if gate.passed else "failed"


def pareto(  # noqa: PLR0913 - its options
    run_id: RunArgument = None,
    x: Annotated[str | None, typer.Option(help=AXIS)] = None,
    y: Annotated[str | None, typer.Option(help=AXIS)] = None,
    by: Annotated[str | None, typer.Option(help="A column, such as axis.draft_length.")] = None,
    at: Annotated[
        float | None, typer.Option(help="Also rank the points that reach this x.")
    ] = None,
    prices: PricesOption = None,
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Print the configurations that nothing else beats, and how sure that is."""
    from workbench.cli_tables import front_document, show_at, show_front
    from workbench.figures_headline import headline
    from workbench.fronts import pareto as front_of
    from workbench.prices import load_prices

    table = load_prices(prices) if prices else None
    run = chosen(Store(store), run_id)
    points = run.points(prices=table)
    leads = headline(points).axes
    axes = (axis_of("--x", x or str(leads[0])), axis_of("--y", y or str(leads[1])))
    front = front_of(points, *axes, by, runs=[run])
    show_front(points, front)
    for line in search_lines(run):
        say(line)
    if at is not None:
        show_at(points, front, at)
    if json:
        say_json(front_document(points, front))


def dashboard(
    store: StoreOption = DEFAULT_STORE,
    port: Annotated[int | None, typer.Option(help="A free one is chosen if left out.")] = None,
    address: Annotated[str, typer.Option(help="Where it listens.")] = "127.0.0.1",
) -> None:
    """Serve the pages of a store until interrupted."""
    from workbench.doctor import requirement

    if importlib.util.find_spec("streamlit") is None:
        raise MissingPackageError(
            "the pages need streamlit, which is not installed here.",
            where="workbench dashboard",
            remedy=f"Install it with `pip install {quote(requirement('streamlit'))}`; "
            "`workbench report` needs no such package.",
        )
    if port is not None and not 1 <= port <= LAST_PORT:
        raise UsageError(
            f"{port} is no port.",
            where="--port",
            remedy=f"Use 1 to {LAST_PORT}, or leave it out for a free one.",
        )
    chosen = _free_port(address, port or 0)
    say(f"pages of {store}: http://{address}:{chosen}  (Ctrl-C stops them)", style="bold")
    options = ["--store", str(store), "--port", str(chosen), "--address", address]
    command = [sys.executable, "-m", "dashboards", *options]  # a storey above: run, not imported
    raise typer.Exit(_serve(command))


def _serve(command: list[str]) -> int:
    """Run `command` until it ends; SIGTERM and SIGINT end all of its processes.

    Both are passed on as SIGTERM: a program that was started in the background ignores SIGINT,
    and so would its children.
    """
    served = subprocess.Popen(command, start_new_session=True)

    def pass_on(_number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(served.pid, signal.SIGTERM)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        code = served.wait()
        return code if code >= 0 else 128 - code  # as a shell tells of a signal
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _free_port(address: str, port: int) -> int:
    """`port` if nothing listens on it; 0 is any free one."""
    import errno
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUseError(
                    f"another process listens on port {port} of {address}.",
                    where="--port",
                    remedy="Stop it, choose another port, or leave --port out for a free one.",
                ) from error
            raise UsageError(
                f"nothing can listen on {address} ({error.strerror}).",
                where="--address",
                remedy="Use an address of this host, such as 127.0.0.1.",
            ) from error
        return int(probe.getsockname()[1])


def chosen(store: Store, run_id: str | None) -> Run:
    """The run named, or the newest one."""
    if run_id is not None:
        return store.run(run_id)
    runs = store.runs()
    if not runs:
        remedy = f"Try `{command_line('demo', store=store.path)}`."
        raise UsageError("holds no run yet.", where=str(store.path), remedy=remedy)
    return store.run(runs[0].run_id)


def _show_runs(title: str, runs: Sequence[RunSummary], *, wide: bool) -> None:
    """A row a run; on a narrow terminal what is known of it stands below its id."""
    if has_room(wide):
        headers = ("run", "state", "trials", "model", "question", "accelerator")
        show_table(title, headers, [*map(_facts, runs)], whole=("run", "state"), wide=wide)
        return
    say(title)
    for run_id, state, trials, model, question, _ in map(_facts, runs):
        say(f"{run_id}  {state}, {trials}")
        say(f"  {model}: {question}")


def _facts(summary: RunSummary) -> tuple[str, ...]:
    trials = f"{counts_words(summary.counts) or '0'} of {summary.planned}"
    return (
        summary.run_id, summary.state, trials, summary.model, summary.question,
        summary.accelerator,
    )  # fmt: skip


def _document(summary: RunSummary) -> dict[str, object]:
    return {name: getattr(summary, name) for name in summary.__dataclass_fields__}


COMMANDS: dict[str, Callable[..., None]] = {
    "ls": ls,
    "status": status,
    "show": show,
    "pareto": pareto,
    "dashboard": dashboard,
}
