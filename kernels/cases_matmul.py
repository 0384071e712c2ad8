"""Cases of products with packed weights. See `kernels.cases`."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.case import Arguments, Case, normal
from kernels.matmul.weights import Fp8Weight, Mxfp4Weight

AFTER_INNER_ROUNDING = 5e-2
"""Where what lies between two products is rounded to e4m3: a few values move by a whole step, up to
an eighth of them. Of rows with a hundred such values, 4 % were seen."""

WIDE_LIMIT = 1e-5
"""Of float32 sums of bfloat16 products: the matrix units of sm_90 cut off what they add below the
last bits of a sum. Of 5,120 terms that left 5.6e-6 on an H200."""


def random_fp8(
    shape: tuple[int, ...], tile: tuple[int, int], input_group: int | None, device: torch.device
) -> Fp8Weight:
    """Bytes of e4m3 without NaN, and scales that leave a product about as large as its input."""
    values = _bytes(shape, device)
    values[(values & 0x7F) == 0x7F] = 0
    tiles = (-(-size // step) for size, step in zip(shape[-2:], tile, strict=True))
    return Fp8Weight(
        values=values.view(torch.float8_e4m3fn),
        scales=_scales((*shape[:-2], *tiles), shape[-1], 100.0, device),
        tile=tile,
        input_group=input_group,
    )


def random_mxfp4(
    shape: tuple[int, ...], input_group: int | None, device: torch.device
) -> Mxfp4Weight:
    """Bytes of two codes, and scales that leave a product about as large as its input."""
    *before, inputs = shape
    return Mxfp4Weight(
        packed=_bytes((*before, inputs // 2), device),
        scales=_scales((*before, inputs // 32), inputs, 3.0, device),
        input_group=input_group,
    )


def _bytes(shape: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, device=device)


def _scales(shape: tuple[int, ...], inputs: int, rms: float, device: torch.device) -> Tensor:
    middle = 127 - round(torch.tensor(rms * inputs**0.5).log2().item())
    return torch.randint(middle - 1, middle + 2, shape, dtype=torch.uint8, device=device)


def plain_case(op: str, outputs: int, inputs: int) -> Case:
    """One plain matrix; the results of `wide_linear` are as wide as logits."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        weight = normal((outputs, inputs), dtype, device) / inputs**0.5
        return normal((rows, inputs), dtype, device), weight

    def row_bytes(size: int) -> int:
        return inputs * size + outputs * (4 if op == "wide_linear" else size)

    return Case(
        op=op,
        name=f"{outputs} x {inputs}",
        make=make,
        bytes_per_row=row_bytes,
        bytes_shared=lambda rows, size: outputs * inputs * size,
        flops=lambda rows: 2 * rows * outputs * inputs,
        timed_rows=(1, 32, 128, 2048),
        bfloat16_limit=WIDE_LIMIT if op == "wide_linear" else None,
    )


def linear_case(outputs: int, inputs: int, tile: tuple[int, int], input_group: int | None) -> Case:
    """One matrix of fp8 tiles."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        weight = random_fp8((outputs, inputs), tile, input_group, device)
        return normal((rows, inputs), dtype, device), weight

    return Case(
        op="linear",
        name=_told(f"{outputs} x {inputs}", tile, input_group),
        make=make,
        bytes_per_row=lambda size: (outputs + inputs) * size,
        fixed_bytes=outputs * inputs + outputs * inputs // (tile[0] * tile[1]),
        flops=lambda rows: 2 * rows * outputs * inputs,
        number="bf16" if input_group is None else "fp8",
    )


def grouped_linear_case(
    groups: int, outputs: int, inputs: int, tile: tuple[int, int], input_group: int | None
) -> Case:
    """A matrix of fp8 tiles for each group of inputs."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        weight = random_fp8((groups, outputs, inputs), tile, input_group, device)
        return normal((rows, groups, inputs), dtype, device), weight

    return Case(
        op="grouped_linear",
        name=_told(f"{groups} of {outputs} x {inputs}", tile, input_group),
        make=make,
        bytes_per_row=lambda size: groups * (outputs + inputs) * size,
        fixed_bytes=groups * outputs * inputs * (1 + tile[0] * tile[1]) // (tile[0] * tile[1]),
        flops=lambda rows: 2 * rows * groups * outputs * inputs,
        number="bf16" if input_group is None else "fp8",
    )


def _told(shape: str, tile: tuple[int, int], input_group: int | None) -> str:
    inputs = "inputs as they are" if input_group is None else f"inputs in groups of {input_group}"
    return f"fp8 {shape}, tiles of {tile[0]} x {tile[1]}, {inputs}"
