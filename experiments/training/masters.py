"""Master weights: how they start, and how they become the weights that a pass computes with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.models.deepseek_v41.contract import Storage
from kernels.quantize.reference import (
    dequantise_fp8_blocks,
    dequantise_mxfp4,
    quantise_fp8_blocks,
    quantise_mxfp4,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from experiments.training.stacks import Group, Layout

_EMBEDDING_STD = 0.25
_HEAD_STD = 0.02
_MIXER_STD = 0.01
_MATRIX_DIAGONAL = 2.0  # of the mixing logits: streams start nearly apart
_TABLE_TILE = (1, 32)
_BLOCK = (32, 32)


def initial(groups: Layout, seed: int) -> dict[str, Tensor]:
    """Return fresh master weights, float32 on the CPU; the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return {key: _initial(key, group, generator) for key, group in groups.items()}


def _initial(key: str, group: Group, generator: torch.Generator) -> Tensor:
    shape = (len(group.names), *group.shape)

    def normal(std: float) -> Tensor:
        return torch.randn(shape, generator=generator) * std

    if "norm.weight" in key or key.endswith(("q_weight", "k_weight", "_scale")):
        return torch.ones(shape)
    if key.endswith("_base"):
        return _mixing_bases(normal(0.5))
    if key.endswith("_fn"):
        return normal(_MIXER_STD)
    if key.endswith(("attn_sink", "gate.bias", "confidence_head.proj.weight")):
        return torch.zeros(shape)
    if key == "head.weight" or "markov_head.head" in key:
        return normal(_HEAD_STD)
    if "embed.weight" in key:
        return normal(_EMBEDDING_STD)
    return normal(group.shape[-1] ** -0.5)


def _mixing_bases(bases: Tensor) -> Tensor:
    """Random for collapse and expansion, so that streams differ; near the identity for mixing."""
    streams = int((bases.shape[-1] + 1) ** 0.5) - 1  # (2 + n) n = (n + 1)^2 - 1
    matrix = _MATRIX_DIAGONAL * (2 * torch.eye(streams) - 1)
    bases[..., 2 * streams :] = matrix.flatten()
    return bases


def rounded(stack: Tensor, storage: Storage) -> Tensor:
    """Return [count, *shape] as the released form gives it back, float32."""
    if storage is Storage.F32:
        return stack
    if storage is Storage.BF16:
        return stack.bfloat16().float()
    tall = stack.flatten(0, 1)
    if storage is Storage.MXFP4:
        return dequantise_mxfp4(*quantise_mxfp4(tall)).view_as(stack)
    tile = _TABLE_TILE if storage is Storage.FP8_TABLE else _BLOCK
    if stack.shape[1] % tile[0]:
        return torch.stack([_fp8(matrix, tile) for matrix in stack.unbind(0)])
    return _fp8(tall, tile).view_as(stack)


def _fp8(matrix: Tensor, tile: tuple[int, int]) -> Tensor:
    return dequantise_fp8_blocks(*quantise_fp8_blocks(matrix, tile), tile)


def computes_wide(key: str, group: Group) -> bool:
    """True for what passes compute with in float32: norms, mixing, routing, sinks."""
    return (
        group.storage is Storage.F32
        or "norm.weight" in key
        or "gate.weight" in key
        or key.endswith(("q_weight", "k_weight"))
    ) and "wgate" not in key


class Leaves:
    """The weights that passes read, in the dtype they compute with.

    Rounding happens here, outside autograd: a gradient with respect to a rounded weight is
    applied to its master unchanged (straight-through).
    """

    def __init__(self, groups: Layout, dtype: torch.dtype, device: torch.device) -> None:
        self._groups = groups
        self.tensors = {
            key: torch.zeros(
                (len(group.names), *group.shape),
                dtype=torch.float32 if computes_wide(key, group) else dtype,
                device=device,
            )
            for key, group in groups.items()
        }

    def refresh(
        self, masters: Mapping[str, Tensor], keys: Iterable[str], *, as_shipped: bool
    ) -> None:
        """Copy the masters of some groups in, rounded to the released form if asked."""
        with torch.no_grad():
            for key in keys:
                master = masters[key]
                self.tensors[key].copy_(
                    rounded(master, self._groups[key].storage) if as_shipped else master
                )

    def train(self, keys: frozenset[str]) -> None:
        """Ask for gradients of these groups only, and drop those there are."""
        for key, leaf in self.tensors.items():
            leaf.requires_grad_(key in keys)
            leaf.grad = None
