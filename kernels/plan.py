"""Which implementation of each operation serves a model on a device: decided once, printable.

resolve(target, shape, choice) -> Plan. `auto` takes the best implementation that suits and that a
device has run, and the definition where there is none; `reference` takes the definition; `triton`
does as `auto`, but takes what no device has run too, and refuses a device or a model on which no
Triton kernel can run. Nothing is measured or tuned here. In `Mode.INVARIANT` only what leaves a
row alone is taken, and `Plan.varying` names the operations for which there is nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch

from kernels.errors import WorkbenchError
from kernels.ops import Ops
from kernels.registry import (
    CPU_IMPLEMENTATIONS,
    IMPLEMENTATIONS,
    Implementation,
    ModelShape,
    load,
    no_triton,
)
from kernels.target import KernelChoice, Mode, Target


class KernelError(WorkbenchError):
    """Kernels that were asked for cannot run here."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What serves one operation, why nothing faster does, and where it was seen to work."""

    op: str
    implementation: str
    reason: str | None = None
    evidence: str | None = None  # of kernels for CUDA
    is_invariant: bool = False  # a row is promised to come out the same whatever runs beside it


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The operations of one model on one device."""

    ops: Ops
    decisions: tuple[Decision, ...]

    @property
    def summary(self) -> str:
        """`triton: mixes, expand; reference: rotate`."""
        by_name: dict[str, list[str]] = {}
        for decision in self.decisions:
            by_name.setdefault(decision.implementation, []).append(decision.op)
        return "; ".join(f"{name}: {', '.join(ops)}" for name, ops in by_name.items())

    @property
    def varying(self) -> tuple[str, ...]:
        """Operations by which a row may depend on what runs beside it; of definitions, nothing
        is promised.
        """
        return tuple(d.op for d in self.decisions if not d.is_invariant)


def arch_of(device: torch.device) -> int | None:
    """What `Target.arch` is for a device."""
    if device.type != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability(device)  # noqa: TID251
    return 10 * major + minor


def resolve(
    target: Target, shape: ModelShape, choice: KernelChoice, mode: Mode = Mode.FAST
) -> Plan:
    """The plan of a model on a device. KernelError where `triton` cannot be had at all."""
    refused = no_triton(target, shape)
    if choice is KernelChoice.TRITON and refused is not None:
        raise KernelError(f"{refused}.", where="kernels: triton", remedy="Use kernels: auto.")
    decisions = [_decide(f.name, target, shape, choice, mode) for f in fields(Ops)]
    chosen = {d.op: _loaded(d) for d in decisions if d.implementation != "reference"}
    return Plan(ops=Ops(**chosen), decisions=tuple(decisions))


def _decide(
    op: str, target: Target, shape: ModelShape, choice: KernelChoice, mode: Mode
) -> Decision:
    if choice is KernelChoice.REFERENCE:
        return Decision(op=op, implementation="reference", reason="asked for")
    untried: list[str] = []
    unsuited: list[str] = []
    every = (i for i in (*IMPLEMENTATIONS, *CPU_IMPLEMENTATIONS) if i.op == op)
    for found in (i for i in every if mode is Mode.FAST or i.is_invariant):
        why_not = found.unsuited(target, shape)
        if why_not is not None:
            unsuited.append(why_not)
        elif _needs_evidence(target, choice) and found.evidence is None:
            untried.append(f"{found.name}: no device has run it yet; kernels: triton takes it")
        else:
            return _taken(found, target, untried)
    reason = (*untried, *unsuited, "no other implementation yet")[0]
    return Decision(op=op, implementation="reference", reason=reason)


def _needs_evidence(target: Target, choice: KernelChoice) -> bool:
    return choice is KernelChoice.AUTO and target.device_type == "cuda"


def _taken(found: Implementation, target: Target, untried: list[str]) -> Decision:
    evidence = found.evidence or "no device has run it yet"
    return Decision(
        op=found.op,
        implementation=found.name,
        reason=untried[0] if untried else None,
        evidence=evidence if target.device_type == "cuda" else None,
        is_invariant=found.is_invariant,
    )


def _loaded(decision: Decision) -> Callable[..., object]:
    wanted = (decision.op, decision.implementation)
    every = (*IMPLEMENTATIONS, *CPU_IMPLEMENTATIONS)
    return load(next(i for i in every if (i.op, i.name) == wanted))
