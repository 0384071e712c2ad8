"""Who served a stored trial: our engine or another's, as the trial and its plan tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.arms import ARM_AXIS
from workbench.exports.samples import Trial

TOOL = "inference-workbench"
UNTOLD = "not known"
STARTED = frozenset({"in_process", "transformers", "vllm", "server"})
"""Targets whose engine runs on the devices of the host that measured."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The engine behind a trial."""

    arm: str | None  # of its plan; None in a plan without arms
    target: str  # `in_process`, `vllm`, `http`, ...: of the arm where there are arms
    tool: str
    version: str


def engine_of(trial: Trial) -> Engine:
    """Name and version of the engine that a trial measured."""
    arm, target = trial.point["axes"].get(ARM_AXIS), trial.run.summary.engine
    arms = trial.run.plan.get("arms")
    spec = arms.get(str(arm)) if isinstance(arms, Mapping) and arm is not None else None
    if isinstance(spec, Mapping):
        target = str(spec.get("target"))
    tool, version = _named(trial, target)
    return Engine(arm=None if arm is None else str(arm), target=target, tool=tool, version=version)


def _named(trial: Trial, target: str) -> tuple[str, str]:
    """Of our engine the code's version; of another the `launcher` and `version` it has stored."""
    if target in ("in_process", "simulated"):
        return TOOL, trial.run.code_version
    engine = trial.point["engine"]
    name = engine.get("launcher") or (UNTOLD if target in ("http", "arms") else target)
    version = engine.get("version")
    return str(name), UNTOLD if version is None else str(version)
