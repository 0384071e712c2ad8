"""Commands that look: ls, status, show, pareto, report, dashboard."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from workbench.cli_options import JsonOption, StoreOption
from workbench.cli_output import say, say_error, say_json, say_labels, show_front, show_table
from workbench.errors import MissingPackageError, UsageError
from workbench.invocation import DEFAULT_STORE, command_line
from workbench.pareto import DEFAULT_X, DEFAULT_Y, Axis
from workbench.store import Run, RunSummary, Store
from workbench.words import counts_words

LAST_PORT = 65_535
RunArgument = Annotated[
    str | None, typer.Argument(help="The run, or the beginning of its id; the newest if left out.")
]


def ls(
    store: StoreOption = DEFAULT_STORE,
    reindex: Annotated[bool, typer.Option(help="Rebuild index.sqlite first.")] = False,
    json: JsonOption = False,
) -> None:
    """List the stored runs, newest first."""
    chosen = Store(store)
    if reindex:
        say(f"indexed {chosen.reindex()} trials")
    runs = chosen.runs()
    if runs:
        headers = ("run", "state", "trials", "model", "accelerator", "question")
        show_table(str(store), headers, [_summary_row(summary) for summary in runs])
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
    run = _chosen(Store(store), run_id)
    summary = run.summary
    counts, stored = counts_words(summary.counts) or "none", len(run.documents())
    say(f"{run.run_id}: {summary.state}, {stored} of {summary.planned} trials ({counts})")
    if summary.state == "interrupted":
        say(f"go on with `{command_line('resume', run.run_id, store=store)}`")
    if json:
        say_json(_document(summary))


def show(
    run_id: RunArgument = None,
    trial: Annotated[str | None, typer.Option(help="One trial, in full.")] = None,
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Show a run's trials, or everything about one trial."""
    from workbench.report_tables import point_table

    run = _chosen(Store(store), run_id)
    if trial is not None:
        _show_trial(run, trial, json=json)
        return
    say(f"{run.run_id}: {run.summary.question}")
    points = run.points()
    say_labels(points)
    table = point_table(points)
    show_table("trials", table.headers, table.rows)
    if table.note:
        say(table.note)
    if json:
        say_json({"run": _document(run.summary), "trials": run.documents()})


def _show_trial(run: Run, trial: str, *, json: bool) -> None:
    record = run.trial(trial)
    say(f"{trial}: {record.state}{f' ({record.reason})' if record.reason else ''}")
    settings = {
        **{f"axis.{k}": v for k, v in record.point.axes.items()},
        **{f"engine.{k}": v for k, v in record.point.engine.items()},
        **{f"workload.{k}": v for k, v in record.point.workload.items()},
    }
    show_table("configuration", ("field", "value"), [(k, str(v)) for k, v in settings.items()])
    rows = [
        (name, str(m.value), str(m.n), "" if m.low is None else f"{m.low:.4g} to {m.high:.4g}",
         m.reason or "")
        for name, m in record.metrics.items()
    ]  # fmt: skip
    show_table("metrics", ("metric", "value", "n", "95 % interval", "why missing"), rows)
    gates = [(g.name, "passed" if g.passed else "failed", g.message) for g in record.gates]
    show_table("gates", ("gate", "result", "message"), gates)
    for name, path in run.files(trial).items():
        say(f"{name}: {path.stat().st_size:,} bytes")
    if json:
        found = {str(item["trial_id"]): item for item in run.documents()}
        say_json(found[trial])


def pareto(
    run_id: RunArgument = None,
    x: Annotated[str, typer.Option(help="metric:max or metric:min")] = str(DEFAULT_X),
    y: Annotated[str, typer.Option(help="metric:max or metric:min")] = str(DEFAULT_Y),
    by: Annotated[str | None, typer.Option(help="A column, such as axis.draft_length.")] = None,
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Print the configurations that nothing else beats."""
    from workbench.fronts import pareto as front_of

    points = _chosen(Store(store), run_id).points()
    front = front_of(points, _axis("--x", x), _axis("--y", y), by)
    show_front(points, front)
    if json:
        pairs = zip(points["trial_id"], front.excluded, strict=True)
        excluded = {trial_id: reason for trial_id, reason in pairs if reason is not None}
        say_json({"members": front.members, "groups": front.groups, "excluded": excluded})


def report(
    run_id: RunArgument = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to.")] = None,
    formats: Annotated[str, typer.Option("--format", help="Of html,md,csv.")] = "html,md,csv",
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Write the report of a run: HTML without network, Markdown, CSV, plan, checksums."""
    from workbench.report import report as write_report

    names = [name.strip() for name in formats.split(",") if name.strip()]
    paths = write_report(_chosen(Store(store), run_id), out, names)
    for path in paths.values():
        say(str(path))
    if json:
        say_json({name: str(path) for name, path in paths.items()})


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
    chosen = port if port is not None else _free_port(address)
    say(f"pages of {store}: http://{address}:{chosen}  (Ctrl-C stops them)", style="bold")
    options = ["--store", str(store), "--port", str(chosen), "--address", address]
    command = [sys.executable, "-m", "dashboards", *options]  # a storey above: run, not imported
    raise typer.Exit(subprocess.call(command))


def _free_port(address: str) -> int:
    import socket

    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            raise UsageError(
                f"nothing can listen on {address} ({error.strerror}).",
                where="--address",
                remedy="Use an address of this host, such as 127.0.0.1.",
            ) from error
        return int(probe.getsockname()[1])


def _chosen(store: Store, run_id: str | None) -> Run:
    """The run named, or the newest one."""
    if run_id is not None:
        return store.run(run_id)
    runs = store.runs()
    if not runs:
        remedy = f"Try `{command_line('demo', store=store.path)}`."
        raise UsageError("holds no run yet.", where=str(store.path), remedy=remedy)
    return store.run(runs[0].run_id)


def _axis(option: str, text: str) -> Axis:
    metric, _, direction = text.rpartition(":")
    if not metric or direction not in ("max", "min"):
        raise UsageError(
            f"{text!r} does not say which way is better.",
            where=option,
            remedy="Write metric:max or metric:min, such as ttft_s_p50:min.",
        )
    return Axis(metric=metric, direction="max" if direction == "max" else "min")


def _summary_row(summary: RunSummary) -> tuple[str, ...]:
    sound = summary.counts.get("ok", 0)  # type: ignore[call-overload]
    trials = f"{sound} ok, {sum(summary.counts.values())} of {summary.planned}"
    return (
        summary.run_id,
        summary.state,
        trials,
        summary.model,
        summary.accelerator,
        summary.question,
    )


def _document(summary: RunSummary) -> dict[str, object]:
    return {name: getattr(summary, name) for name in summary.__dataclass_fields__}


COMMANDS: dict[str, Callable[..., None]] = {
    "ls": ls,
    "status": status,
    "show": show,
    "pareto": pareto,
    "report": report,
    "dashboard": dashboard,
}
