"""Goes on with a stored run: what its plan still lacks, and what failed where that is asked for.

A trial is the unit: what was in flight when the process ended is measured from its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from experiments.records import TrialId, TrialState
from workbench.errors import DriftError, UsageError
from workbench.outcomes import outcome_in
from workbench.preflight import check_devices
from workbench.provenance import manifest
from workbench.runs import Job, Outlook, accelerator_of, outlook
from workbench.store import Run, Store
from workbench.stored_run import attempt
from workbench.surroundings import differences

UNMEASURED = (TrialState.FAILED, TrialState.SKIPPED)
Stored = dict[TrialId, dict[str, object]]


def resume(
    store: Store,
    run_id: str,
    *,
    retry_failed: bool = False,
    allow_drift: bool = False,
    budget_s: float | None = None,
) -> Job:
    """Open a stored run to measure what its plan still lacks, cancelled trials included.

    `retry_failed` also measures anew what failed or was skipped: the new attempt is stored
    beside the old one. DriftError when what measures changed since (`drift`), unless
    `allow_drift`: then the new trials are labelled. RunLockedError while another process writes
    the run.
    """
    from experiments.plan import load_plan

    run = store.run(run_id)
    run.check_measured_here()
    found = outlook(load_plan(run.plan), store)
    check_devices(found)
    if retry_failed and found.plan.search is not None:
        raise UsageError(
            "is a search, which went on from what failed; another result would lead it elsewhere.",
            where=run.run_id,
            remedy="Start a new run with `workbench run`.",
        )
    changes = drift(run, found, manifest(folder=store.path))
    if changes and not (allow_drift and found.plan.search is None):
        raise _drifted(run, found, changes)
    writer = store.writer(run.run_id)
    stored = _by_cell(writer.run, found) if changes else _by_id(writer.run)
    again = {key for key, item in stored.items() if _is_due(item, retry_failed=retry_failed)}
    return Job(
        outlook=found,
        writer=writer,
        told={key: outcome_in(item) for key, item in stored.items() if key not in again},
        retried={key: next_attempt(str(stored[key]["trial_id"])) for key in again},
        drifted=bool(changes),
        budget_s=budget_s,
    )


def _is_due(item: Mapping[str, object], *, retry_failed: bool) -> bool:
    """Whether a stored trial is measured again."""
    cancelled = item["state"] == TrialState.CANCELLED
    return cancelled or (retry_failed and item["state"] in UNMEASURED)


def _drifted(run: Run, found: Outlook, changes: list[str]) -> DriftError:
    remedy = (
        "Start a new run with `workbench run`, or pass --allow-drift to go on and label the new "
        "trials."
    )
    if found.plan.search is not None:
        remedy = (
            "Start a new run with `workbench run`: a search decides by its earlier trials, so it "
            "cannot go on with others."
        )
    return DriftError(
        f"{' and '.join(changes)} since the run began, so its trials would not be comparable.",
        where=run.run_id,
        remedy=remedy,
    )


def next_attempt(trial_id: str) -> TrialId:
    """The id under which the trial stored as `trial_id` is stored when it is measured again."""
    first, retries = attempt(trial_id)
    return TrialId(f"{first}.retry{retries + 1}")


def drift(run: Run, found: Outlook, environment: Mapping[str, object]) -> list[str]:
    """What changed between the stored run and now, in words; empty when nothing did.

    Code, checkpoint, accelerator and what `workbench.surroundings` watches; where all are the
    same, the stored trials must be trials of the plan.
    """
    pairs = {
        "the code": (run.code_version, found.code_version),
        "the checkpoint": (run.checkpoint_fingerprint, found.fingerprint),
        "the accelerator": (run.summary.accelerator, accelerator_of(found, environment)),
    }
    changes = [
        f"{name} changed ({old} to {new})" for name, (old, new) in pairs.items() if old != new
    ]
    changes += differences(run.environment, environment)
    strangers = _strangers(run, found)
    if strangers and not changes:
        changes.append(f"the configuration changed ({len(strangers)} trials are not of the plan)")
    return changes


def _strangers(run: Run, found: Outlook) -> set[TrialId]:
    """Stored trials that the plan does not ask for. A search asks as the stored ones lead it."""
    stored = _by_id(run)
    if found.plan.search is None:
        return stored.keys() - {trial.trial_id for trial in found.trials}
    from experiments.agenda import replayed

    return stored.keys() - replayed(found.agenda, {k: outcome_in(v) for k, v in stored.items()})


def _by_id(run: Run) -> Stored:
    """The newest attempt at each stored trial, by the id of its first."""
    return {attempt(str(item["trial_id"]))[0]: item for item in run.documents()}


def _by_cell(run: Run, found: Outlook) -> Stored:
    """The planned trials whose cell is stored, under another id since something drifted."""
    stored = {_cell(_point(item).get("axes"), item["repeat"]): item for item in run.documents()}
    cells = {trial.trial_id: _cell(trial.point.axes, trial.repeat) for trial in found.trials}
    return {trial_id: stored[cell] for trial_id, cell in cells.items() if cell in stored}


def _point(item: Mapping[str, object]) -> Mapping[str, object]:
    point = item.get("point")
    return point if isinstance(point, Mapping) else {}


def _cell(axes: object, repeat: object) -> str:
    """Within one run a trial is known by its axes and its repeat, even after a drift."""
    return json.dumps([axes, repeat], sort_keys=True)
