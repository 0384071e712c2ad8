"""Commands that measure: run, resume, demo, stop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.watch import Stopped
from kernels.interrupt import EXIT_INTERRUPTED
from workbench.cli_options import (
    EXIT_GATE,
    EXIT_PARTIAL,
    BudgetOption,
    JsonOption,
    MaxTrials,
    RepeatsOption,
    StoreOption,
    WithoutOption,
)
from workbench.cli_output import out, say, say_json, say_labels
from workbench.cli_plan import (
    budget_of,
    loaded,
    narrowed,
    say_environment,
    say_factors,
    say_memory,
    show_outlook,
)
from workbench.engine_starts import EngineStarts
from workbench.errors import UsageError
from workbench.interrupts import stop_on_interrupt
from workbench.invocation import DEFAULT_STORE, command_line
from workbench.judged import violations
from workbench.pareto import DEFAULT_X, DEFAULT_Y
from workbench.preflight import busy_note
from workbench.search_result import search_lines
from workbench.store import Run, Store
from workbench.trial_line import trial_line
from workbench.words import counts_words, duration_words

if TYPE_CHECKING:
    from workbench.runs import Job

TargetOption = Annotated[str | None, typer.Option(hidden=True)]
STOPPED = {
    Stopped.BUDGET: "the budget is spent: no further trial would end within it",
    Stopped.REQUEST: "stopped on request after a whole trial",
    Stopped.INTERRUPT: "stopped after a whole trial",
}
DEMO_PLAN = "demo.yaml"


def run(  # noqa: PLR0913 - its options
    file: Annotated[Path, typer.Argument(help="A plan in YAML.")],
    store: StoreOption = DEFAULT_STORE,
    max_trials: MaxTrials = None,
    budget: BudgetOption = None,
    repeats: RepeatsOption = None,
    without: WithoutOption = None,
    dry_run: Annotated[bool, typer.Option(help="Print the plan and stop.")] = False,
    target: TargetOption = None,
    json: JsonOption = False,
) -> None:
    """Measure a plan and store every trial as it ends. Ctrl-C once ends after the trial."""
    from workbench.runs import begin, outlook

    chosen, budget_s = Store(store), budget_of(budget)
    asked = narrowed(loaded(file, max_trials, target, repeats), without)
    found = outlook(asked, chosen)
    if dry_run:
        show_outlook(found, budget_s=budget_s, json=json)
        return
    say_environment(found)
    say_memory(found)
    raise typer.Exit(measure_job(begin(found, chosen, budget_s=budget_s), json=json))


def resume(
    run_id: Annotated[
        str | None,
        typer.Argument(help="The run, or the beginning of its id; the newest unfinished one."),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    budget: BudgetOption = None,
    retry_failed: Annotated[
        bool, typer.Option(help="Also measure anew what failed or was skipped.")
    ] = False,
    allow_drift: Annotated[
        bool, typer.Option(help="Go on although code or checkpoint changed.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Measure what a stored run still lacks. Failed trials only with --retry-failed."""
    from workbench import resumption

    chosen, budget_s = Store(store), budget_of(budget)
    run = chosen.run(run_id) if run_id is not None else _unfinished(chosen)
    state = run.summary.state
    if state == "complete" or (state == "partial" and not retry_failed):
        say(f"run {run.run_id}: every planned trial is stored, nothing is left to measure")
        _say_unmeasured(run, store)
        if json:
            say_json(_run_document(run))
        raise typer.Exit(_exit_code(run))
    job = resumption.resume(
        chosen,
        run.run_id,
        retry_failed=retry_failed,
        allow_drift=allow_drift,
        budget_s=budget_s,
    )
    if not retry_failed:
        _say_unmeasured(run, store)
    raise typer.Exit(measure_job(job, json=json))


def stop(
    run_id: Annotated[
        str | None,
        typer.Argument(help="The run, or the beginning of its id; the newest that is running."),
    ] = None,
    skip: Annotated[bool, typer.Option(help="Give up the trial in flight and go on.")] = False,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Ask the process that measures a run to end after the trial in flight, or to skip that one."""
    from workbench.progress import order_skip, order_stop

    chosen = Store(store)
    run = chosen.run(run_id) if run_id is not None else _running(chosen)
    if skip:
        say(f"asked {run.run_id} to give up trial {order_skip(run.folder)}")
        return
    order_stop(run.folder)
    say(f"asked {run.run_id} to end after the trial in flight")


def _running(store: Store) -> Run:
    """The newest run that is being measured."""
    for summary in store.runs():
        if summary.state == "running":
            return store.run(summary.run_id)
    raise UsageError(
        "holds no run that is being measured.",
        where=str(store.path),
        remedy="`workbench ls` lists the runs.",
    )


def _unfinished(store: Store) -> Run:
    """The newest run that is interrupted or partial."""
    for summary in store.runs():
        if summary.state in ("interrupted", "partial"):
            return store.run(summary.run_id)
    raise UsageError(
        "holds no run that was cut short or has failed trials.",
        where=str(store.path),
        remedy="`workbench ls` lists the runs; give the id of one.",
    )


def _say_unmeasured(run: Run, store: Path) -> None:
    """That failed trials are not measured again, and what does so."""
    counts = run.summary.counts
    failed = sum(counts[state] for state in counts if state in ("failed", "skipped"))
    if failed:
        again = command_line("resume", run.run_id, "--retry-failed", store=store)
        say(f"{failed} failed or skipped trials are not measured again; `{again}` does that")


def demo(
    store: StoreOption = DEFAULT_STORE,
    max_trials: MaxTrials = None,
    json: JsonOption = False,
) -> None:
    """Sweep `nano`, a small trained checkpoint; ends with the front, a report and where to look."""
    from importlib.resources import files

    from workbench.runs import begin, outlook

    chosen = Store(store)
    path = Path(str(files("experiments") / "plans" / DEMO_PLAN))
    found = outlook(loaded(path, max_trials, None), chosen)
    say_factors(found)
    say_environment(found)
    job = begin(found, chosen)
    code = measure_job(job, json=False)
    stored = job.writer.run.refresh()
    _finish_demo(stored, store)
    if json:
        say_json(_run_document(stored))
    valid = stored.points()["valid"].any()
    raise typer.Exit(EXIT_INTERRUPTED if code == EXIT_INTERRUPTED else 0 if valid else 1)


def _finish_demo(stored: Run, store: Path) -> None:
    from workbench.cli_tables import show_front
    from workbench.fronts import pareto
    from workbench.report import report

    points = stored.points()
    if points["valid"].any():
        show_front(points, pareto(points, DEFAULT_X, DEFAULT_Y))
    else:
        say_labels(points)
    paths = report(stored)
    say(f"report: {paths['report.html']}")
    say(f"pages:  {command_line('dashboard', store=store)}", style="bold")


def measure_job(job: Job, *, json: bool) -> int:
    """Measure with a progress bar; the exit code of the run."""
    if (busy := busy_note()) is not None:
        say(f"note: {busy}", style="yellow")
    run_id = job.writer.run.run_id
    again = command_line("resume", run_id, store=job.writer.run.folder.parent)
    time = f"{job.outlook.pace.about} {duration_words(job.estimate_s)}"
    say(f"run {run_id}: {_most(job)}{job.remaining} trials, {time}")
    try:
        with (
            stop_on_interrupt(job.watch),
            _progress() as bar,
            EngineStarts(job.watch, say),
            closing(job.records()) as records,
        ):
            task = bar.add_task("trials", total=job.outlook.agenda.at_most, completed=job.stored)
            bar.refresh()
            for record in records:
                say(trial_line(record))
                bar.advance(task)
    except KeyboardInterrupt:
        say(f"go on with `{again}`")
        raise
    finally:
        stored = job.close()
    stopped = job.watch.snapshot().stopped
    if job.remaining:
        say(f"{STOPPED.get(stopped or Stopped.ERROR, 'stopped')}; go on with `{again}`")
    say(f"{stored.summary.state}: {_counts(stored)}")
    for line in (*violations(stored.judged()), *search_lines(stored)):
        say(line)
    if json:
        say_json(_run_document(stored))
    if job.remaining:
        return EXIT_PARTIAL if stopped is Stopped.BUDGET else EXIT_INTERRUPTED
    return _exit_code(stored)


def _most(job: Job) -> str:
    """`at most` where a stop rule or a search may end earlier."""
    plan = job.outlook.plan
    return "at most " if plan.search is not None or plan.repeat_rule.stop is not None else ""


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("time left"),
        TimeRemainingColumn(),
        console=out,
    )


def _exit_code(stored: Run) -> int:
    """0 all ok, 3 a gate failed, 4 some trials failed, 1 nothing was measured."""
    counts = stored.summary.counts
    measured = sum(counts[state] for state in counts if state in ("ok", "invalid"))
    unmeasured = sum(counts.values()) - measured
    if unmeasured:
        return EXIT_PARTIAL if measured else 1
    return EXIT_GATE if any(counts[state] for state in counts if state == "invalid") else 0


def _counts(stored: Run) -> str:
    summary = stored.summary
    shown = counts_words(summary.counts) or "nothing"
    return f"{shown} of {summary.planned} trials, in {stored.folder}"


def _run_document(stored: Run) -> dict[str, object]:
    summary = stored.summary
    return {
        "run_id": stored.run_id,
        "state": summary.state,
        "planned": summary.planned,
        "counts": dict(summary.counts),
        "path": str(stored.folder),
    }


COMMANDS: dict[str, Callable[..., None]] = {
    "run": run,
    "resume": resume,
    "demo": demo,
    "stop": stop,
}
