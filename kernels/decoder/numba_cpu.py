"""Layers of bfloat16 on a CPU: few rows in one compiled loop, more by the library's products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from kernels.decoder.numba_rows import NUMBERS, run_rows
from kernels.fused_linear.blocks import OUTPUTS, block_address
from kernels.fused_linear.numba_blocks import MOST_ROWS
from kernels.fused_linear.torch_cpu import add_linear, norm_linear, norm_swiglu
from kernels.numba_team import is_shared
from kernels.paged_attention.torch_cpu import attend_fresh, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from kernels.decoder.reference import Layer, Layers
    from kernels.fused_linear.reference import Norm
    from kernels.paged_attention.reference import Context
    from kernels.rotary.reference import Rotation


def run_layers(
    x: Tensor, layers: Layers, turn: Rotation, caches: Sequence[Tensor], context: Context
) -> Tensor:
    """See kernels.decoder.reference; weights laid out by kernels.fused_linear.torch_cpu."""
    is_single = len(x) == len(context.lengths)
    held = _held(layers) if 1 <= len(x) <= MOST_ROWS and is_single else None
    if held is None or not is_shared():
        return _run_apart(x, layers, turn, caches, context)
    x = x.contiguous()
    first = layers.each[0]
    addresses = np.column_stack((held.addresses, [cache.data_ptr() for cache in caches]))
    run_rows(x, addresses, held.numbers, first.heads, held.inner, rows_of(context, turn))
    return x


def _run_apart(
    x: Tensor, layers: Layers, turn: Rotation, caches: Sequence[Tensor], context: Context
) -> Tensor:
    for layer, cache in zip(layers.each, caches, strict=True):
        qkv = norm_linear(x, layer.norm, layer.qkv)
        seen = attend_fresh(qkv, layer.heads, turn, cache, context)
        x = add_linear(x, seen, layer.out)
        x = add_linear(x, norm_swiglu(x, layer.inner_norm, layer.gate_up), layer.down)
    return x


@dataclass(frozen=True)
class _Held:
    """Where layers lie, and what they are normed and scaled by."""

    addresses: NDArray[np.int64]  # [layers, all but the cache]
    numbers: NDArray[np.float64]
    inner: int


_HELD: WeakKeyDictionary[Layers, _Held | None] = WeakKeyDictionary()


def _held(layers: Layers) -> _Held | None:
    """None where a loop cannot read them, or they differ in their sizes."""
    if layers not in _HELD:
        _HELD[layers] = _found(layers)
    return _HELD[layers]


def _found(layers: Layers) -> _Held | None:
    sizes = {_sizes(layer) for layer in layers.each}
    inner = layers.each[0].down.shape[1]
    found = [_addresses(layer) for layer in layers.each]
    addresses = [each for each in found if each is not None]
    if len(sizes) != 1 or inner % OUTPUTS or len(addresses) < len(found):
        return None
    numbers = [
        (
            layer.norm.eps,
            layer.heads.scale,
            *(0.0 if norm is None else norm.eps for norm in _head_norms(layer)),
            layer.inner_norm.eps,
        )
        for layer in layers.each
    ]
    return _Held(np.array(addresses), np.array(numbers).reshape(-1, NUMBERS), inner)


def _sizes(layer: Layer) -> tuple[object, ...]:
    weights = layer.qkv, layer.out, layer.gate_up, layer.down
    heads = layer.heads
    return heads.queries, heads.keys, heads.dim, *(weight.shape for weight in weights)


def _head_norms(layer: Layer) -> tuple[Norm | None, Norm | None]:
    return layer.heads.query_norm, layer.heads.key_norm


def _addresses(layer: Layer) -> tuple[int, ...] | None:
    weights = layer.qkv, layer.out, layer.gate_up, layer.down
    qkv, out, gate_up, down = (block_address(weight) for weight in weights)
    if qkv is None or out is None or gate_up is None or down is None:
        return None
    gains = (0 if norm is None else norm.weight.data_ptr() for norm in _head_norms(layer))
    norm, inner_norm = layer.norm.weight.data_ptr(), layer.inner_norm.weight.data_ptr()
    return norm, qkv, *gains, out, inner_norm, gate_up, down
