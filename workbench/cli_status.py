"""How far a run is, what it does now and what went wrong, in lines for a terminal."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import cast

from workbench.catalogue import METRICS
from workbench.figures_headline import headline_of
from workbench.figures_text import number
from workbench.invocation import command_line
from workbench.outcomes import outcome_in
from workbench.progress import Progress
from workbench.search_result import search_lines
from workbench.store import Run
from workbench.words import counts_words, duration_words, point_words

SHOWN_FAILURES = 10


def status_lines(run: Run, store: Path) -> list[str]:
    """State and counts, the trial in flight, time left, failures with their reason, what to do."""
    summary, progress = run.summary, run.progress()
    counts, stored = counts_words(summary.counts) or "none", len(run.documents())
    lines = [f"{run.run_id}: {summary.state}, {stored} of {summary.planned} trials ({counts})"]
    if progress is not None and summary.state == "running":
        lines += _now(progress)
    lines += _failures(run)
    lines += search_lines(run) or _best(run)
    if summary.state == "interrupted":
        lines.append(f"go on with `{command_line('resume', run.run_id, store=store)}`")
    return lines


def progress_document(run: Run) -> dict[str, object] | None:
    """progress.json as a program reads it; None where there is none."""
    found = run.progress()
    return None if found is None else dataclasses.asdict(found)


def _now(progress: Progress) -> list[str]:
    sweep, lines = progress.sweep, []
    if (current := sweep.current) is not None:
        again = f", attempt {current.attempt}" if current.attempt > 1 else ""
        lines.append(f"now: {point_words(current.axes)}, {current.activity}{again}")
    lines.append(f"time left: {duration_words(sweep.time_left_s)}")
    if progress.budget_left_s is not None:
        lines.append(f"budget left: {duration_words(progress.budget_left_s)}")
    return lines


def _best(run: Run) -> list[str]:
    """The best trial so far by what its form of load is about; none where forms are mixed."""
    sound = [d for d in run.documents() if d["state"] == "ok"]
    points = [cast("dict[str, dict[str, object]]", d["point"]) for d in sound]
    leads = {headline_of(point["workload"]).axes[1] for point in points}
    if len(leads) != 1:
        return []
    (lead,) = leads
    told = [
        (value, point)
        for document, point in zip(sound, points, strict=True)
        if (value := outcome_in(document).values.get(lead.metric)) is not None
    ]
    if not told:
        return []
    choose = max if lead.direction == "max" else min
    value, point = choose(told, key=lambda pair: pair[0])
    heading = METRICS[lead.metric].heading
    return [f"best so far: {heading} {number(value)} at {point_words(point['axes'])}"]


def _failures(run: Run) -> list[str]:
    """The newest trials that measured nothing, each with its reason."""
    found = [d for d in run.documents() if d["state"] in ("failed", "skipped", "cancelled")]
    lines = []
    for item in found[-SHOWN_FAILURES:]:
        point = item["point"]
        axes = point.get("axes", {}) if isinstance(point, dict) else {}
        lines.append(f"{item['state']}: {point_words(axes)} ({item['reason']})")
    if len(found) > SHOWN_FAILURES:
        lines.insert(0, f"the newest {SHOWN_FAILURES} of {len(found)} trials without numbers:")
    return lines
