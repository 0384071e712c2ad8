"""Which implementation of each operation serves a model on a device: decided once, printable.

resolve(target, shape, choice) -> Plan. `auto` takes the best implementation that suits and the
definition where none does; `reference` takes the definition; `triton` does as `auto`, but refuses
a device or a model on which no Triton kernel can run. Nothing is measured or tuned here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch

from kernels.errors import WorkbenchError
from kernels.ops import Ops
from kernels.target import KernelChoice, Target

WIDEST_ROW = 16384  # values of one row that a program holds in registers
MOST_STREAMS = 5
MOST_EXPERTS = 4095
WIDEST_CACHED = 512
NARROWEST_HEAD = 16  # of a matrix instruction
WIDEST_FLOAT32_HEAD = 128
WIDEST_PAGED = 128


class KernelError(WorkbenchError):
    """Kernels that were asked for cannot run here."""


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """What of a model decides whether an implementation suits it."""

    dtype: str  # of activations: "float32", "bfloat16", "float64"
    width: int  # of the residual
    head_dim: int
    streams: int  # of the residual; 1 without hyper-connections
    experts: int = 0  # that a row chooses from; 0 without a mixture
    index_dim: int = 0  # of an index key; 0 without an indexer


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What an implementation is written for; None = anything."""

    arch: int | None = None
    dtype: str | None = None
    head_dim: int | None = None

    def lacking(self, arch: int | None, dtype: str, head_dim: int | None) -> str | None:
        """What of it is not there, in words."""
        if self.arch not in (None, arch):
            return f"it is written for sm_{self.arch}"
        if self.dtype not in (None, dtype):
            return f"it is written for {self.dtype}"
        if self.head_dim not in (None, head_dim):
            return f"it is written for heads of {self.head_dim}"
        return None


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One way to run an operation. `unsuited` says why not, or None."""

    op: str
    name: str
    address: str  # module:function, imported when it is chosen
    unsuited: Callable[[Target, ModelShape], str | None]
    needs: Needs = Needs()
    is_invariant: bool = True  # a row comes out the same, bit by bit, whatever runs beside it


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What serves one operation, and why nothing faster does."""

    op: str
    implementation: str
    reason: str | None = None


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


def _no_triton(target: Target, shape: ModelShape) -> str | None:
    if target.device_type != "cuda":
        return f"Triton kernels do not run on {target.device_type}"
    if not target.has_triton:
        return "triton is not installed"
    if shape.dtype not in ("float32", "bfloat16"):
        return f"{shape.dtype} is computed by the definition alone"
    return None


def _wide_rows(target: Target, shape: ModelShape) -> str | None:
    if max(shape.width, shape.head_dim) > WIDEST_ROW:
        return f"rows are wider than {WIDEST_ROW}"
    return _no_triton(target, shape)


def _streams(target: Target, shape: ModelShape) -> str | None:
    if not 2 <= shape.streams <= MOST_STREAMS:
        return f"{shape.streams} residual streams, 2 to {MOST_STREAMS} are supported"
    return _wide_rows(target, shape)


def _experts(target: Target, shape: ModelShape) -> str | None:
    if not 1 <= shape.experts <= MOST_EXPERTS:
        return f"{shape.experts} experts, 1 to {MOST_EXPERTS} are supported"
    return _no_triton(target, shape)


def _cached(target: Target, shape: ModelShape) -> str | None:
    for width in (shape.head_dim, shape.index_dim):
        if width & (width - 1) or width > WIDEST_CACHED:
            return f"cached rows of {width} values, powers of two to {WIDEST_CACHED} are supported"
    return _no_triton(target, shape)


def _paged(target: Target, shape: ModelShape) -> str | None:
    width = shape.head_dim
    if width & (width - 1) or not NARROWEST_HEAD <= width <= WIDEST_PAGED:
        return f"heads of {width}, powers of two from {NARROWEST_HEAD} to {WIDEST_PAGED} are served"
    return _no_triton(target, shape)


def _attention(target: Target, shape: ModelShape) -> str | None:
    if not shape.head_dim >= NARROWEST_HEAD:
        return f"heads of {shape.head_dim}, {NARROWEST_HEAD} is the least"
    if shape.dtype == "float32" and shape.head_dim > WIDEST_FLOAT32_HEAD:
        return f"float32 heads wider than {WIDEST_FLOAT32_HEAD}"
    return _cached(target, shape)


HOPPER_HEADS = Needs(arch=90, dtype="bfloat16", head_dim=512)


def _hopper_attention(target: Target, shape: ModelShape) -> str | None:
    return _attention(target, shape) or HOPPER_HEADS.lacking(
        target.arch, shape.dtype, shape.head_dim
    )


IMPLEMENTATIONS = (
    Implementation(
        op="attend_turned",
        name="gluon",
        address="kernels.attention.triton_hopper:attend_turned",
        unsuited=_hopper_attention,
        needs=HOPPER_HEADS,
        is_invariant=False,
    ),
    *(
        Implementation(
            op=op, name="triton", address=f"kernels.{family}.triton_cuda:{op}", unsuited=unsuited
        )
        for op, family, unsuited in (
            ("linear", "matmul", _no_triton),
            ("grouped_linear", "matmul", _no_triton),
            ("wide_linear", "matmul", _no_triton),
            ("rms_norm", "norm", _wide_rows),
            ("rotation", "rotary", _no_triton),
            ("rotate", "rotary", _wide_rows),
            ("swiglu", "activation", _no_triton),
            ("route", "routing", _experts),
            ("run_experts", "grouped_matmul", _experts),
            ("norm_linear", "fused_linear", _wide_rows),
            ("norm_swiglu", "fused_linear", _wide_rows),
            ("norm_logits", "fused_linear", _wide_rows),
            ("add_linear", "fused_linear", _no_triton),
            ("attend_fresh", "paged_attention", _paged),
            ("insert_rows", "cache_ops", _cached),
            ("write_latents", "compressor", _cached),
            ("attend_turned", "attention", _attention),
            ("score_rows", "indexer", _cached),
            ("best_rows", "topk", _no_triton),
            ("candidate_blocks", "indexer", _no_triton),
            ("score_blocks", "indexer", _cached),
            ("best_of_blocks", "topk", _no_triton),
            ("choose_highest", "sampling", _no_triton),
            ("choose_tokens", "sampling", _no_triton),
            ("quantise_dequantise", "quantize", _cached),
            ("look_up", "engram", _no_triton),
            ("gated_add", "engram", _wide_rows),
            ("mixes", "hyper_connection", _streams),
            ("collapse_norm", "hyper_connection", _streams),
            ("expand", "hyper_connection", _streams),
            ("between_sublayers", "hyper_connection", _streams),
        )
    ),
)
"""In order of preference; an operation without one is served by its definition."""


def _no_layout(target: Target, shape: ModelShape) -> str | None:
    if target.device_type != "cpu" or shape.dtype != "bfloat16":
        return f"{shape.dtype} on {target.device_type} is computed by the definition"
    if not target.has_laid_out_products:
        return "oneDNN has no products of bfloat16 for this processor"
    return None


CPU_IMPLEMENTATIONS = tuple(
    Implementation(
        op=op, name="torch", address=f"kernels.{family}.torch_cpu:{op}", unsuited=_no_layout
    )
    for op, family in (
        ("laid_out", "fused_linear"),
        ("norm_linear", "fused_linear"),
        ("norm_swiglu", "fused_linear"),
        ("norm_logits", "fused_linear"),
        ("add_linear", "fused_linear"),
        ("attend_fresh", "paged_attention"),
    )
)
"""The library's own, where its plain operations are slow; all of them or none suit a model."""


def arch_of(device: torch.device) -> int | None:
    """What `Target.arch` is for a device."""
    if device.type != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability(device)  # noqa: TID251
    return 10 * major + minor


def resolve(target: Target, shape: ModelShape, choice: KernelChoice) -> Plan:
    """The plan of a model on a device. KernelError where `triton` cannot be had at all."""
    refused = _no_triton(target, shape)
    if choice is KernelChoice.TRITON and refused is not None:
        raise KernelError(f"{refused}.", where="kernels: triton", remedy="Use kernels: auto.")
    decisions = [_decide(f.name, target, shape, choice) for f in fields(Ops)]
    chosen = {d.op: _loaded(d) for d in decisions if d.implementation != "reference"}
    return Plan(ops=Ops(**chosen), decisions=tuple(decisions))


def _decide(op: str, target: Target, shape: ModelShape, choice: KernelChoice) -> Decision:
    if choice is KernelChoice.REFERENCE:
        return Decision(op=op, implementation="reference", reason="asked for")
    reason = None
    for found in (*IMPLEMENTATIONS, *CPU_IMPLEMENTATIONS):
        if found.op == op:
            why_not = found.unsuited(target, shape)
            if why_not is None:
                return Decision(op=op, implementation=found.name)
            reason = reason or why_not
    reason = reason or "no other implementation yet"
    return Decision(op=op, implementation="reference", reason=reason)


def load(implementation: Implementation) -> Callable[..., object]:
    """The function itself."""
    module, _, function = implementation.address.partition(":")
    return getattr(importlib.import_module(module), function)


def _loaded(decision: Decision) -> Callable[..., object]:
    wanted = (decision.op, decision.implementation)
    every = (*IMPLEMENTATIONS, *CPU_IMPLEMENTATIONS)
    return load(next(i for i in every if (i.op, i.name) == wanted))
