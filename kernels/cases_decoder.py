"""Cases of whole stacks of dense layers. See `cases`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.case import Arguments, Case, Run, normal
from kernels.cases_causal import paged_case
from kernels.decoder.reference import Layer, Layers
from kernels.fused_linear.reference import Norm
from kernels.paged_attention.reference import Heads

if TYPE_CHECKING:
    from torch import Tensor

COUNT = 2  # of layers
BFLOAT16_LIMIT = 9e-3  # of the residual, to which rounded halves of COUNT layers are added


def layers_case(
    hidden: int,
    inner: int,
    heads: tuple[int, int, int],
    context: int,
    *,
    has_norm: bool,
    chunk: int,
) -> Case:
    """COUNT layers; contexts and chunks as in `paged_case`."""
    attention = paged_case(heads, context, has_norm=has_norm, chunk=chunk, block_tokens=16)
    queries, keys, dim = heads
    values = hidden * (2 * queries + 2 * keys) * dim + 3 * inner * hidden

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        _, named, turn, cache, seen = attention.make(rows, dtype, device)
        assert isinstance(named, Heads)
        layers = Layers(tuple(_layer(hidden, inner, named, dtype, device) for _ in range(COUNT)))
        x = normal((rows, hidden), dtype, device)
        return x, layers, turn, tuple(_like(cache) for _ in range(COUNT)), seen

    def observe(run: Run, arguments: Arguments) -> object:
        x, layers, turn, caches, seen = arguments
        assert isinstance(x, torch.Tensor)
        assert isinstance(caches, tuple)
        held = [cache.clone() for cache in caches]
        return run(x.clone(), layers, turn, held, seen), tuple(cache.nan_to_num() for cache in held)

    kind = "normed " if has_norm else ""
    return Case(
        op="run_layers",
        name=f"{COUNT} of {hidden} and {inner}, {queries}/{keys} {kind}heads of {dim}, "
        f"{chunk} of {context} tokens",
        make=make,
        bytes_per_row=lambda size: 2 * hidden * size,
        bytes_shared=lambda rows, size: COUNT * values * size,
        flops=lambda rows: 2 * rows * COUNT * values,
        timed_rows=(1, 2, 4),
        observe=observe,
        bfloat16_limit=BFLOAT16_LIMIT,
        is_invariant=False,
    )


def _layer(
    hidden: int, inner: int, heads: Heads, dtype: torch.dtype, device: torch.device
) -> Layer:
    def weight(outputs: int, inputs: int) -> Tensor:
        return normal((outputs, inputs), dtype, device) / inputs**0.5

    def norm() -> Norm:
        return Norm(weight=torch.rand(hidden, device=device) + 0.5, eps=1e-6)

    attending = heads.queries * heads.dim
    return Layer(
        norm=norm(),
        qkv=weight(attending + 2 * heads.keys * heads.dim, hidden),
        heads=heads,
        out=weight(hidden, attending),
        inner_norm=norm(),
        gate_up=weight(2 * inner, hidden),
        down=weight(hidden, inner),
    )


def _like(cache: object) -> Tensor:
    """Other values in the same rows."""
    assert isinstance(cache, torch.Tensor)
    return torch.where(cache.isnan(), cache, torch.randn_like(cache))
