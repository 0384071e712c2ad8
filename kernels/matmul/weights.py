"""A matrix as a product takes it: plain, or packed as a release stores it.

The last two dimensions are [out, in]; dimensions before them count matrices side by side
(experts, groups). Scales are ue8m0 bytes. Where `input_group` is a number, a product first
rounds its other operand as the release does: to e4m3 in groups of that many values along `in`,
each group with a ue8m0 scale (`kernels.quantize.reference.quantise_groups`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from kernels.quantize.reference import (
    MXFP4_GROUP,
    dequantise_fp8_blocks,
    dequantise_mxfp4,
)


@dataclass(frozen=True, kw_only=True)
class Fp8Weight:
    """e4m3 values with one scale a tile."""

    values: Tensor  # float8_e4m3fn [..., out, in], no NaN
    scales: Tensor  # uint8 [..., ceil(out / tile rows), ceil(in / tile columns)]
    tile: tuple[int, int]  # rows and columns that share a scale
    input_group: int | None

    @property
    def shape(self) -> torch.Size:
        """Of the matrix that it stands for."""
        return self.values.shape

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.values.device

    def dequantised(self) -> Tensor:
        """The matrix that it stands for, in at least float32."""
        return dequantise_fp8_blocks(self.values, self.scales, self.tile)

    def to(self, device: torch.device | str) -> Fp8Weight:
        """The same on a device."""
        return replace(self, values=self.values.to(device), scales=self.scales.to(device))

    def rows(self, start: int, stop: int) -> Fp8Weight:
        """Some rows, views; tiles must begin at `start`."""
        high = self.tile[0]
        assert start % high == 0, "a tile would be cut"
        return replace(
            self,
            values=self.values[..., start:stop, :],
            scales=self.scales[..., start // high : -(-stop // high), :],
        )


@dataclass(frozen=True, kw_only=True)
class Mxfp4Weight:
    """Two e2m1 values a byte, the even input in the low nibble; a scale per 32 inputs of a row."""

    packed: Tensor  # uint8 [..., out, in / 2]
    scales: Tensor  # uint8 [..., out, in / 32]
    input_group: int | None

    @property
    def shape(self) -> torch.Size:
        """Of the matrix that it stands for."""
        return torch.Size((*self.packed.shape[:-1], 2 * self.packed.shape[-1]))

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.packed.device

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns that share a scale."""
        return 1, MXFP4_GROUP

    def dequantised(self) -> Tensor:
        """The matrix that it stands for, float32."""
        return dequantise_mxfp4(self.packed, self.scales)

    def to(self, device: torch.device | str) -> Mxfp4Weight:
        """The same on a device."""
        return replace(self, packed=self.packed.to(device), scales=self.scales.to(device))

    def rows(self, start: int, stop: int) -> Mxfp4Weight:
        """Some rows, views."""
        return replace(
            self,
            packed=self.packed[..., start:stop, :],
            scales=self.scales[..., start:stop, :],
        )


Packed = Fp8Weight | Mxfp4Weight
Weight = Tensor | Packed


def dense(weight: Weight, dtype: torch.dtype) -> Tensor:
    """The matrix in a dtype."""
    return (weight if isinstance(weight, Tensor) else weight.dequantised()).to(dtype)


def rows_of(weight: Weight, start: int, stop: int) -> Weight:
    """Rows start to stop of [..., out, in], views; no tile of scales may be cut at `start`."""
    if isinstance(weight, Tensor):
        return weight[..., start:stop, :]
    return weight.rows(start, stop)


def matrix(weights: Weight, index: int) -> Weight:
    """One of several matrices side by side, a view."""
    if isinstance(weights, Tensor):
        return weights[index]
    return _merged([weights], lambda parts: parts[0][index])


def joined(weights: Sequence[Weight], dtype: torch.dtype) -> Weight:
    """The rows of several matrices under one another: packed where all of them are packed alike
    and no tile of scales is shared by two, else plain in `dtype`.
    """
    first = weights[0]
    if not isinstance(first, Tensor) and _alike(weights):
        high = first.tile[0]
        if all(w.shape[-2] % high == 0 for w in weights[:-1]):
            return _merged(cast("Sequence[Packed]", weights), _below)
    return torch.cat([dense(w, dtype) for w in weights], -2)


def stacked(weights: Sequence[Weight], dtype: torch.dtype) -> Weight:
    """Matrices of one shape side by side, in a new first dimension; packed where all are alike."""
    if not isinstance(weights[0], Tensor) and _alike(weights):
        return _merged(cast("Sequence[Packed]", weights), torch.stack)
    return torch.stack([dense(w, dtype) for w in weights])


def split_rows(weight: Weight, groups: int, dtype: torch.dtype) -> Weight:
    """[groups * out, in] as [groups, out, in]; plain in `dtype` where a tile would be cut."""
    if isinstance(weight, Tensor) or (weight.shape[-2] // groups) % weight.tile[0]:
        return dense(weight, dtype).unflatten(0, (groups, -1))
    return _merged([weight], lambda parts: parts[0].unflatten(0, (groups, -1)))


def _alike(weights: Sequence[Weight]) -> bool:
    """All packed, with one packing, tile and rounding of inputs."""
    kinds = {None if isinstance(w, Tensor) else (type(w), w.tile, w.input_group) for w in weights}
    return len(kinds) == 1 and None not in kinds


def _below(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(parts), -2)


def _merged(weights: Sequence[Packed], merge: Callable[[Sequence[Tensor]], Tensor]) -> Packed:
    first, scales = weights[0], merge([w.scales for w in weights])
    if isinstance(first, Mxfp4Weight):
        packed = merge([w.packed for w in weights if isinstance(w, Mxfp4Weight)])
        return replace(first, packed=packed, scales=scales)
    # As bytes: not every device copies float8.
    held = merge([w.values.view(torch.uint8) for w in weights if isinstance(w, Fp8Weight)])
    return replace(first, values=held.view(torch.float8_e4m3fn), scales=scales)
