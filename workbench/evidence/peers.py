"""Measure `experiments/plans/peers-h200.yaml` without the command line's packages.

`python -m workbench.evidence.peers --store DIR`: makes the random model where it is not there,
leaves out peers that are not installed, and stores the run. Where DIR holds the run already it
goes on with it. Exit code 0: all measured; 1: a trial failed; 4: its time was up.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import DriftError
from workbench.evidence.ledger import EXIT_PARTIAL
from workbench.runs import Job, begin, outlook
from workbench.store import Run, Store
from workbench.trial_line import trial_line

if TYPE_CHECKING:
    from experiments.plan import Plan

PLAN = Path(__file__).parents[2] / "experiments" / "plans" / "peers-h200.yaml"
SHAPE = "qwen3-0.6b"
MODELS = Path(tempfile.gettempdir()) / "inference-workbench-models"  # of random weights


def whole_plan() -> Plan:
    """The plan on a model of random weights, made in a process that lets the device go."""
    from experiments.plan import load_plan

    folder = MODELS / SHAPE
    make = [sys.executable, "-m", "experiments.peers.random_model", SHAPE, str(folder)]
    subprocess.run(make, check=True)
    return load_plan(PLAN).with_engine(model=str(folder))


def tiny_plan() -> Plan:
    """The same question of our engine alone: `nano` on a processor, for a second."""
    from experiments.plan import load_plan

    document = load_plan(PLAN).document()
    ours = {"target": "in_process", "engine": {"accelerator": "cpu", "max_model_len": 512}}
    workload = {"name": "random", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 4}
    protocol = {"name": "quick", "measured_s": 0.2, "idle_s": 0, "limit_s": 10}
    changes = {
        "engine": {"model": "nano"}, "arms": {"ours": ours}, "repeats": 1, "where": [],
        "axes": [{"product": {"arm": ["ours"], "batch_size": [1, 2]}}],
        "workloads": [workload], "protocol": protocol, "reference": None,
    }  # fmt: skip
    return load_plan({**document, **changes})


def opened(plan: Plan, store: Store, budget_s: float) -> Job:
    """The run of that plan that the store holds unfinished, else a new one."""
    from workbench.resumption import resume

    for summary in store.runs():
        if summary.name == plan.name and summary.state == "interrupted":
            try:
                return resume(store, summary.run_id, budget_s=budget_s)
            except DriftError as error:
                sys.stdout.write(f"{error}\n")
    return begin(outlook(plan, store), store, budget_s=budget_s)


def measure(job: Job) -> Run:
    """Measure what is missing, a line a trial."""
    try:
        for record in job.records():
            sys.stdout.write(f"{trial_line(record)}\n")
            sys.stdout.flush()
    finally:
        run = job.close()
    return run


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    from experiments.arm_choice import present

    parser = argparse.ArgumentParser(prog="python -m workbench.evidence.peers")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--tiny", action="store_true", help="our engine alone, on a processor")
    options = parser.parse_args(arguments)
    plan, absent = present(tiny_plan() if options.tiny else whole_plan())
    for arm, why in absent.items():
        sys.stdout.write(f"arm {arm} is left out: {why}\n")
    job = opened(plan, Store(options.store), options.limit_s)
    run = measure(job)
    if job.remaining:
        return EXIT_PARTIAL
    counts = run.summary.counts
    return int(any(counts[state] for state in counts if state in ("failed", "skipped")))


if __name__ == "__main__":
    sys.exit(main())
