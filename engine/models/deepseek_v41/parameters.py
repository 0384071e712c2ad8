"""Released tensors by name, turned into the parameters that the layers hold."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.errors import CheckpointError
from kernels.beside import Beside
from kernels.cache_ops.reference import RowNorm
from kernels.grouped_matmul.reference import Experts
from kernels.hyper_connection.reference import Mixing
from kernels.matmul.weights import Weight, dense, joined, rows_of, split_rows, stacked
from kernels.ops import REFERENCE, Ops
from kernels.precision import at_least_float32
from kernels.routing.reference import Router

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.models.deepseek_v41.config import DeepseekV41Config


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights under a name prefix; a missing one is a CheckpointError naming it.

    `ops` are the kernels that the layers read from here will call, `beside` is where they run what
    does not depend on each other.
    """

    tensors: Mapping[str, Weight]
    dtype: torch.dtype
    ops: Ops = REFERENCE
    beside: Beside = field(default_factory=Beside)
    prefix: str = ""

    def under(self, prefix: str) -> Weights:
        """The same tensors seen from a deeper prefix."""
        return replace(self, prefix=self.prefix + prefix)

    def __getitem__(self, name: str) -> Tensor:
        """The plain tensor in the dtype of activations."""
        return dense(self._find(name), self.dtype)

    def wide(self, name: str) -> Tensor:
        """The tensor in at least float32: norms, router, mHC, sinks."""
        return dense(self._find(name), at_least_float32(self.dtype))

    def matrix(self, name: str) -> Weight:
        """As it is held: packed, or plain in the dtype of activations."""
        found = self._find(name)
        return found.to(self.dtype) if isinstance(found, Tensor) else found

    def _find(self, name: str) -> Weight:
        full = self.prefix + name
        if full not in self.tensors:
            raise CheckpointError(f"lacks the tensor {full}")
        return self.tensors[full]


@dataclass(frozen=True, kw_only=True)
class MoeParameters:
    """One mixture of experts and the expert that every token passes."""

    router: Router
    experts: Experts
    shared_gate_up: Weight  # [2 * inner, width]
    shared_down: Weight  # [width, inner]
    ops: Ops
    beside: Beside


def moe_parameters(
    weights: Weights, config: DeepseekV41Config, *, experts: int, per_token: int
) -> MoeParameters:
    """Read `gate`, `experts.*` and `shared_experts` under the prefix."""
    each = [weights.under(f"experts.{e}.") for e in range(experts)]
    shared = weights.under("shared_experts.")
    return MoeParameters(
        router=Router(
            weight=weights["gate.weight"],
            bias=weights.wide("gate.bias"),
            experts_per_token=per_token,
            normalise=config.norm_topk_prob,
            scale=config.routed_scaling_factor,
        ),
        experts=Experts(
            gate_up=stacked([_gate_up(expert) for expert in each], weights.dtype),
            down=stacked([expert.matrix("w2.weight") for expert in each], weights.dtype),
            limit=config.swiglu_limit,
        ),
        shared_gate_up=_gate_up(shared),
        shared_down=shared.matrix("w2.weight"),
        ops=weights.ops,
        beside=weights.beside,
    )


def _gate_up(expert: Weights) -> Weight:
    return joined([expert.matrix(f"{name}.weight") for name in ("w1", "w3")], expert.dtype)


def mixing_parameters(weights: Weights, config: DeepseekV41Config, sublayer: str) -> Mixing:
    """Read `hc_<sublayer>_*`; each released scale is repeated over its outputs."""
    n = config.hc_mult
    counts = torch.tensor([n, n, n * n])
    scale = weights.wide(f"hc_{sublayer}_scale")
    return Mixing(
        fn=weights.wide(f"hc_{sublayer}_fn"),
        base=weights.wide(f"hc_{sublayer}_base"),
        scale=scale.repeat_interleave(counts.to(scale.device)),
        sinkhorn_iterations=config.hc_sinkhorn_iters,
        norm_eps=config.rms_norm_eps,
        eps=config.hc_eps,
    )


@dataclass(frozen=True, kw_only=True)
class AttentionParameters:
    """Projections of one attention sublayer, whatever it attends to."""

    down: Weight  # [q_lora + head_dim, width]: wq_a and wkv
    q_norm: Tensor
    kv_norm: Tensor
    wq_b: Weight  # [heads * head_dim, q_lora]
    wo_a: Weight  # [groups, o_lora, heads * head_dim / groups]
    wo_b: Weight  # [width, groups * o_lora]
    sink: Tensor  # [heads]
    eps: float
    head_dim: int
    ops: Ops

    @property
    def key_norm(self) -> RowNorm:
        """The norm of a key on its way into a cache."""
        return RowNorm(weight=self.kv_norm, eps=self.eps)

    @property
    def wkv(self) -> Weight:
        """The part of `down` that makes keys."""
        most = self.down.shape[-2]
        return rows_of(self.down, most - self.head_dim, most)


def attention_parameters(weights: Weights, config: DeepseekV41Config) -> AttentionParameters:
    """Read the projections under the prefix `...attn.`."""
    return AttentionParameters(
        down=joined([weights.matrix(f"{n}.weight") for n in ("wq_a", "wkv")], weights.dtype),
        q_norm=weights.wide("q_norm.weight"),
        kv_norm=weights.wide("kv_norm.weight"),
        wq_b=weights.matrix("wq_b.weight"),
        wo_a=split_rows(weights.matrix("wo_a.weight"), config.o_groups, weights.dtype),
        wo_b=weights.matrix("wo_b.weight"),
        sink=weights.wide("attn_sink"),
        eps=config.rms_norm_eps,
        head_dim=config.head_dim,
        ops=weights.ops,
    )
