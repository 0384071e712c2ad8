"""Which kernels would serve a checkpoint on this machine, and why not others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError
from workbench.findings import Finding

if TYPE_CHECKING:
    from kernels.plan import Decision, Plan

SUBJECT = "kernel plan"


def kernels_of(model: str) -> list[Finding]:
    """One finding an implementation and reason; nothing is measured, and no weight is read."""
    try:
        plan, name = _plan(model)
    except (ImportError, WorkbenchError) as error:
        return [Finding(level="warning", subject=SUBJECT, message=f"none for {model}: {error}")]
    return list(_findings(plan.decisions, f"{model} on {name}"))


def _plan(model: str) -> tuple[Plan, str]:
    from engine.accelerator.find import find_accelerator
    from engine.checkpoint_directory import resolve_model_dir
    from engine.config import configure
    from engine.models.deepseek_v41.config import DeepseekV41Config
    from engine.models.deepseek_v41.facts import facts_of
    from engine.models.registry import kernel_plan
    from engine.resolution import resolve

    config = configure({"model": model})
    accelerator = find_accelerator(config.accelerator)
    shape = DeepseekV41Config.load(resolve_model_dir(model))
    resolved = resolve(config, facts_of(shape), accelerator.kind)
    return kernel_plan(shape, resolved, accelerator.target()), accelerator.name()


def _findings(decisions: Iterable[Decision], where: str) -> Iterator[Finding]:
    """Operations that share an implementation and a reason, in one line."""
    groups: dict[tuple[str, str | None], list[str]] = {}
    for one in decisions:
        groups.setdefault((one.implementation, one.reason), []).append(one.op)
    for (implementation, reason), ops in groups.items():
        why = f" ({reason})" if reason else ""
        yield Finding(
            level="ok",
            subject=SUBJECT,
            message=f"{where}: {implementation}{why}: {', '.join(ops)}",
        )
