"""A stack of dense layers of one residual stream over fresh rows: the definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.fused_linear.reference import Norm, add_linear, norm_linear, norm_swiglu
from kernels.paged_attention.reference import attend_fresh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from kernels.paged_attention.reference import Context, Heads
    from kernels.rotary.reference import Rotation


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """Attention and a gated feed-forward, each added to the residual; weights [out, in]."""

    norm: Norm
    qkv: Tensor  # [(queries + 2 * keys) * dim, hidden]
    heads: Heads
    out: Tensor  # [hidden, queries * dim]
    inner_norm: Norm
    gate_up: Tensor  # [2 * inner, hidden]
    down: Tensor  # [hidden, inner]


@dataclass(frozen=True, eq=False)
class Layers:
    """Those that a row runs through, first to last. Told from others by identity."""

    each: tuple[Layer, ...]


def run_layers(
    x: Tensor, layers: Layers, turn: Rotation, caches: Sequence[Tensor], context: Context
) -> Tensor:
    """The residual x [T, hidden] after all layers; x itself may be overwritten.

    Each layer has its cache, which gets the keys and values of the rows, as `attend_fresh` says.
    """
    for layer, cache in zip(layers.each, caches, strict=True):
        qkv = norm_linear(x, layer.norm, layer.qkv)
        seen = attend_fresh(qkv, layer.heads, turn, cache, context)
        x = add_linear(x, seen, layer.out)
        x = add_linear(x, norm_swiglu(x, layer.inner_norm, layer.gate_up), layer.down)
    return x
