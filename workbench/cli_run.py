"""Commands that measure: init, plan, run, resume, demo."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from workbench.cli_options import (
    EXIT_GATE,
    EXIT_INTERRUPTED,
    EXIT_PARTIAL,
    JsonOption,
    StoreOption,
)
from workbench.cli_output import out, say, say_json, say_labels, show_table
from workbench.errors import UsageError
from workbench.figures_text import value_text
from workbench.invocation import DEFAULT_STORE, command_line
from workbench.pareto import DEFAULT_X, DEFAULT_Y
from workbench.store import Run, Store
from workbench.words import counts_words, point_words

if TYPE_CHECKING:
    from experiments.plan import Plan
    from experiments.records import TrialRecord
    from workbench.runs import Job, Outlook

MaxTrials = Annotated[int | None, typer.Option(help="Measure at most this many trials.")]
TargetOption = Annotated[str | None, typer.Option(hidden=True)]
TEMPLATE = Path(__file__).parent / "templates" / "plan.yaml"
DEMO_PLAN = "demo.yaml"


def init(
    directory: Annotated[Path, typer.Argument(help="Where plan.yaml is written.")] = Path(),
) -> None:
    """Write a commented plan.yaml to start from."""
    from workbench.files import explained, write_file

    path = directory / "plan.yaml"
    with explained(directory):
        occupied = path.exists()
    if occupied:
        raise UsageError(
            "exists already and is not overwritten.",
            where=str(path),
            remedy="Choose another directory, or move the file away.",
        )
    with explained(directory):
        directory.mkdir(parents=True, exist_ok=True)
    write_file(path, TEMPLATE.read_bytes())
    look, measure = command_line("plan", path), command_line("run", path)
    say(f"wrote {path}; look at it with `{look}`, then `{measure}`")


def plan(
    file: Annotated[Path, typer.Argument(help="A plan in YAML.")],
    store: StoreOption = DEFAULT_STORE,
    max_trials: MaxTrials = None,
    json: JsonOption = False,
) -> None:
    """Print the points of a plan, engine starts, and the time and disk it will take."""
    from workbench.runs import outlook

    found = outlook(_load(file, max_trials, None), Store(store))
    _show_outlook(found)
    if json:
        say_json(_outlook_document(found))


def run(
    file: Annotated[Path, typer.Argument(help="A plan in YAML.")],
    store: StoreOption = DEFAULT_STORE,
    max_trials: MaxTrials = None,
    dry_run: Annotated[bool, typer.Option(help="Print the plan and stop.")] = False,
    target: TargetOption = None,
    json: JsonOption = False,
) -> None:
    """Measure a plan and store every trial as it ends. Ctrl-C once ends after the trial."""
    from workbench.runs import begin, outlook

    chosen = Store(store)
    found = outlook(_load(file, max_trials, target), chosen)
    if dry_run:
        _show_outlook(found)
        if json:
            say_json(_outlook_document(found))
        return
    _say_environment(found)
    raise typer.Exit(_measure(begin(found, chosen), json=json))


def resume(
    run_id: Annotated[
        str | None,
        typer.Argument(help="The run, or the beginning of its id; the newest unfinished one."),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
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

    chosen = Store(store)
    run = chosen.run(run_id) if run_id is not None else _unfinished(chosen)
    state = run.summary.state
    if state == "complete" or (state == "partial" and not retry_failed):
        say(f"run {run.run_id}: every planned trial is stored, nothing is left to measure")
        _say_unmeasured(run, store)
        if json:
            say_json(_run_document(run))
        raise typer.Exit(_exit_code(run))
    job = resumption.resume(chosen, run.run_id, retry_failed=retry_failed, allow_drift=allow_drift)
    if not retry_failed:
        _say_unmeasured(run, store)
    raise typer.Exit(_measure(job, json=json))


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
    """Sweep a small random checkpoint; ends with the front, a report and the dashboard command."""
    from importlib.resources import files

    from workbench.runs import begin, outlook

    chosen = Store(store)
    path = Path(str(files("experiments") / "plans" / DEMO_PLAN))
    found = outlook(_load(path, max_trials, None), chosen)
    _say_factors(found)
    _say_environment(found)
    job = begin(found, chosen)
    code = _measure(job, json=False)
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


def _load(file: Path, max_trials: int | None, target: str | None) -> Plan:
    """The plan with the options of the command line laid over it."""
    from experiments.plan import load_plan

    found = load_plan(file)
    changes: dict[str, object] = {}
    if max_trials is not None:
        changes["max_trials"] = max_trials
    if target is not None:
        changes["target"] = target
    return load_plan({**found.document(), **changes}) if changes else found


def _measure(job: Job, *, json: bool) -> int:
    """Measure with a progress bar; the exit code of the run."""
    from workbench.runs import stop_on_interrupt

    run_id = job.writer.run.run_id
    say(f"run {run_id}: {job.remaining} trials, at least {_duration(job.estimate_s)}")
    stopped = False
    try:
        with stop_on_interrupt() as stop, _progress() as bar, closing(job.records()) as records:
            task = bar.add_task("trials", total=len(job.outlook.trials), completed=len(job.done))
            bar.refresh()
            for record in records:
                bar.console.print(_line(record), highlight=False, markup=False, soft_wrap=True)
                bar.advance(task)
                if stop.asked and job.remaining:
                    stopped = True
                    break
    finally:
        stored = job.close()
    if stopped:
        again = command_line("resume", run_id, store=stored.folder.parent)
        say(f"stopped after a whole trial; go on with `{again}`")
    summary = stored.summary
    say(f"{summary.state}: {_counts(stored)}")
    if json:
        say_json(_run_document(stored))
    return EXIT_INTERRUPTED if stopped else _exit_code(stored)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("time left"),
        TimeRemainingColumn(),
        console=out,
    )


def _line(record: TrialRecord) -> str:
    """One trial in one line."""
    axes = point_words(record.point.axes)
    rate = record.metrics.get("output_tok_s")
    speed = f"  {rate.value:,.1f} tok/s" if rate and rate.value is not None else ""
    reason = f"  ({record.reason})" if record.reason else ""
    return f"{record.state:<7} {axes}{speed}{reason}"


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


def _show_outlook(found: Outlook) -> None:
    rows = [
        (str(place), t.trial_id, point_words(t.point.axes), str(t.repeat))
        for place, t in enumerate(found.trials, start=1)
    ]
    show_table(
        f"{found.plan.name}: {found.plan.question}",
        ("#", "trial", "point", "repeat"),
        rows,
        whole=("trial",),
    )
    _say_factors(found)
    _say_environment(found)
    say(
        f"{len(found.trials)} trials, {found.engine_starts} engine starts, at least "
        f"{_duration(found.estimate_s)}, at most about {found.estimate_bytes / 1e6:,.1f} MB"
    )


def _say_factors(found: Outlook) -> None:
    """Of each workload its rows and content, and how a trace was scaled to the context."""
    workloads = {str(t.point.workload.get("name")): t.point.workload for t in found.trials}
    for name, facts in sorted(workloads.items()):
        said = [f"{facts['rows']} rows"] if "rows" in facts else []
        said.append(f"content: {facts.get('content')}")
        if "scale_used" in facts:
            said.append(f"lengths are those of the trace times {value_text(facts['scale_used'])}")
        say(f"workload {name}: {'; '.join(said)}")
    models = {Path(str(t.facts.model)).name for t in found.trials if not t.facts.simulated}
    if models:
        say(f"texts become tokens by the tokenizer of {', '.join(sorted(models))}")


def _say_environment(found: Outlook) -> None:
    """Which engine settings come from the environment; the stored plan holds them."""
    for name, variable in found.from_environment.items():
        value = found.plan.engine[name]
        say(f"note: {name}={value} comes from {variable} and is kept in the plan", style="yellow")


def _outlook_document(found: Outlook) -> dict[str, object]:
    return {
        "trials": [
            {"trial_id": t.trial_id, "axes": t.point.axes, "repeat": t.repeat} for t in found.trials
        ],
        "engine_starts": found.engine_starts,
        "estimate_s": found.estimate_s,
        "estimate_bytes": found.estimate_bytes,
    }


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


COMMANDS: dict[str, Callable[..., None]] = {
    "init": init,
    "plan": plan,
    "run": run,
    "resume": resume,
    "demo": demo,
}
