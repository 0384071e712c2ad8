"""Which kernels would serve a checkpoint on this machine, and why not others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError
from workbench.findings import Finding

if TYPE_CHECKING:
    from kernels.plan import Decision

SUBJECT = "kernel plan"
REFERENCE = "reference, the definition in torch"


def kernels_of(model: str) -> list[Finding]:
    """One finding an implementation and reason; one in all where every operation is reference.

    An error where there is no such model, or the engine refuses it. Nothing is measured, and no
    weight is read.
    """
    try:
        decisions, where = _plan(model)
    except ImportError as error:  # which is an error of its own among the packages
        return [Finding(level="warning", subject=SUBJECT, message=f"none for {model}: {error}")]
    except WorkbenchError as error:
        why = str(error).removeprefix(f"{model}: ")
        return [Finding(level="error", subject=SUBJECT, message=f"none for {model}: {why}")]
    return list(findings(decisions, where))


def _plan(model: str) -> tuple[tuple[Decision, ...], str]:
    """What serves each operation, and of which model, in which precision, on what."""
    from engine.accelerator.find import find_accelerator
    from engine.config import configure
    from engine.models.registry import open_checkpoint
    from engine.resolution import resolve
    from experiments.targets.checkpoint import model_directory

    config = configure({"model": model})
    accelerator = find_accelerator(config.accelerator)
    checkpoint = open_checkpoint(model_directory(model))
    resolved = resolve(config, checkpoint.facts, accelerator.kind)
    plan = checkpoint.kernel_plan(resolved, accelerator.target())
    where = f"{model}, {resolved.dtype} on {accelerator.name()}"
    return tuple(dated(_reasoned(one)) for one in plan.decisions), where


def _reasoned(decision: Decision) -> Decision:
    """Nobody asked here: it is what `auto` came to."""
    if decision.reason != "asked for":
        return decision
    return dataclasses.replace(decision, reason="here is no CUDA device with triton")


def dated(decision: Decision) -> Decision:
    """With evidence that says so where a kernel was checked, but has changed since."""
    from kernels.checked import changed_since
    from kernels.registry import IMPLEMENTATIONS

    served = (decision.op, decision.implementation)
    changed = any(changed_since(one) for one in IMPLEMENTATIONS if (one.op, one.name) == served)
    if decision.evidence is None or not changed:
        return decision
    return dataclasses.replace(decision, evidence=f"{decision.evidence}, changed since")


def findings(decisions: Sequence[Decision], where: str) -> Iterator[Finding]:
    """Operations that share an implementation, its evidence and a reason, in one line."""
    groups: dict[tuple[str, str | None], list[str]] = {}
    for one in decisions:
        served = REFERENCE if one.implementation == "reference" else one.implementation
        told = f"{served}, {one.evidence}" if one.evidence else served
        groups.setdefault((told, one.reason), []).append(one.op)
    if all(one.implementation == "reference" for one in decisions):
        _, reason = max(groups, key=lambda key: len(groups[key]))
        yield _finding(where, REFERENCE, reason, f"all {len(decisions)} operations")
        return
    for (served, reason), ops in groups.items():
        yield _finding(where, served, reason, ", ".join(ops))


def _finding(where: str, served: str, reason: str | None, ops: str) -> Finding:
    why = f" ({reason})" if reason else ""
    return Finding(level="ok", subject=SUBJECT, message=f"{where}: {served}{why}: {ops}")
