"""A sweep from Python or a notebook: it runs in a child process, the caller watches the store."""

from __future__ import annotations

import dataclasses
import html
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.watch import Stopped
from workbench.errors import BenchError
from workbench.invocation import DEFAULT_STORE, command_line
from workbench.pareto import DEFAULT_X, DEFAULT_Y, Axis
from workbench.progress import Progress
from workbench.store import Run, RunSummary, Store
from workbench.words import counts_words, duration_words, point_words

if TYPE_CHECKING:
    from experiments.plan import Plan

RUNNER_LOG = "runner.log"
POLL_S = 0.5
TAIL_LINES = 20


class SweepFailedError(BenchError):
    """The process that measures ended before its last trial."""

    exit_code = 1


class SweepRun(Run):
    """A run and the process that measures it."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        super().__init__(folder)
        self._process = process

    def __repr__(self) -> str:
        summary = self.refresh().summary
        return f"<SweepRun {self.run_id}: {progress_text(self._alive(summary))}>"

    def wait(self) -> SweepRun:
        """Block until the sweep has ended; returns the run as stored.

        SweepFailedError with the end of its log when it ended early and nobody asked for that.
        KeyboardInterrupt asks the sweep to stop after the trial in flight, then goes on to the
        caller.
        """
        for _ in self._summaries():
            pass
        return self._checked()

    def live(self) -> SweepRun:
        """Like `wait`, and shows the progress: in place in a notebook, as lines elsewhere."""
        if _in_notebook():
            self._show_in_notebook()
        else:
            self._show_as_text()
        return self._checked()

    def _show_in_notebook(self) -> None:
        from IPython.display import HTML, display

        handle = display(HTML(progress_html(self._alive(self.summary))), display_id=True)
        for summary in self._summaries():
            handle.update(HTML(progress_html(summary, self.progress())))

    def _show_as_text(self) -> None:
        from workbench.cli_output import say

        shown = None
        for summary in self._summaries():
            line = progress_text(summary)
            if line != shown:
                say(line)
            shown = line

    def _summaries(self) -> Iterator[RunSummary]:
        """The run's summary again and again until its process has ended, then once more."""
        try:
            while self._process.poll() is None:
                yield self._alive(self.refresh().summary)
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            self._process.send_signal(signal.SIGINT)
            raise
        yield self.refresh().summary

    def _alive(self, summary: RunSummary) -> RunSummary:
        """The summary, which is no interruption while the process lives or has yet to begin."""
        if summary.state == "interrupted" and self._process.poll() is None:
            return dataclasses.replace(summary, state="starting")
        return summary

    def _checked(self) -> SweepRun:
        self._process.wait()
        if len(self.refresh().documents()) >= self.planned:
            return self  # whatever the states of the trials: they are the result
        told = self.progress()
        if told is not None and told.sweep.stopped in (Stopped.BUDGET, Stopped.REQUEST):
            return self
        store = self.folder.parent
        log = (self.folder / RUNNER_LOG).read_text("utf-8", "replace").splitlines()
        raise SweepFailedError(
            "the sweep ended early:\n" + "\n".join(log[-TAIL_LINES:]),
            where=self.run_id,
            remedy=f"Go on with `{command_line('resume', self.run_id, store=store)}`.",
        )


def sweep(
    plan: str | Path | Mapping[str, object],
    store: str | Path = DEFAULT_STORE,
    budget: str | None = None,
    **overrides: object,
) -> SweepRun:
    """Start measuring `plan` (a path or a mapping) in a child process; returns at once.

    `overrides` replace fields of the plan, such as `max_trials=4`; `budget` is a time such as
    `4h`, after which no trial is begun. Whatever is wrong with the plan is raised here, before
    anything starts; an optional arm that cannot start here is left out with a warning. Works
    inside a running event loop.
    """
    from experiments.arm_choice import present
    from experiments.plan import load_plan

    found = load_plan(Path(plan) if isinstance(plan, str) else plan)
    if overrides:
        found = load_plan({**found.document(), **overrides})
    found, absent = present(found)
    for arm, why in absent.items():
        warnings.warn(f"the arm {arm} is left out: {why}", stacklevel=2)
    return _started(found, Store(store), budget=budget)


def confirm(
    run: Run,
    points: int | None = None,
    repeats: int = 3,
    *,
    x: Axis = DEFAULT_X,
    y: Axis = DEFAULT_Y,
) -> SweepRun:
    """Start measuring the points of the run's front again, with fresh prompts, in its store.

    At most `points` of them, the surest first; `confirmation` holds the new run against this one.
    """
    from workbench.confirm import chosen_points, confirming_plan, fresh_seed

    store = Store(run.folder.parent)
    names = chosen_points(run, (x, y), points)
    plan = confirming_plan(run, names, repeats, seed=fresh_seed(run, store))
    return _started(plan, store, parent=run.run_id)


def _started(
    plan: Plan, chosen: Store, *, budget: str | None = None, parent: str | None = None
) -> SweepRun:
    from workbench.runs import begin, outlook

    looked = outlook(plan, chosen)
    for field, variable in looked.from_environment.items():
        given = f"{field}={looked.plan.engine[field]} comes from {variable} and is kept in the plan"
        warnings.warn(given, stacklevel=3)
    run = begin(looked, chosen, parent=parent).close()
    command = [sys.executable, "-m", "workbench", "resume", run.run_id]
    command += [] if budget is None else ["--budget", budget]
    with (run.folder / RUNNER_LOG).open("wb") as log:
        process = subprocess.Popen(
            [*command, "--store", str(chosen.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # an interrupt of the notebook is passed on once, by wait()
        )
    return SweepRun(run.folder, process)


def progress_text(summary: RunSummary) -> str:
    """`3 of 8 trials (2 ok, 1 failed), running`."""
    counts = counts_words(summary.counts) or "none yet"
    stored = sum(summary.counts.values())
    return f"{stored} of {summary.planned} trials ({counts}), {summary.state}"


def progress_html(summary: RunSummary, progress: Progress | None = None) -> str:
    """A bar with the same words, what is measured now and the time left; labels below it."""
    stored = sum(summary.counts.values())
    labels = "".join(f"<div><b>{html.escape(label)}</b></div>" for label in summary.labels)
    return (
        f"<div style='font-family:sans-serif'><progress style='width:20em' "
        f"value='{stored}' max='{max(summary.planned, 1)}'></progress> "
        f"{html.escape(progress_text(summary))}{_now_html(progress)}{labels}</div>"
    )


def _now_html(progress: Progress | None) -> str:
    """The trial in flight and the forecast; nothing where neither is known."""
    current = progress.sweep.current if progress is not None else None
    if progress is None or current is None:
        return ""
    left = duration_words(progress.sweep.time_left_s)
    words = f"{point_words(current.axes)}, {current.activity}; time left: {left}"
    return f"<div>{html.escape(words)}</div>"


def _in_notebook() -> bool:
    """True under a Jupyter kernel."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")
