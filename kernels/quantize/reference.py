"""Small floats, their scales, and block-scaled weights, in plain torch: the definition.

Formulas: the number formats of the DeepSeek-V4.1 release. Everything is computed in float32,
whatever the input (a float64 input is rounded to float32 first). A scale is a byte: `ue8m0`
holds the exponent of 2^(byte - 127), and 255 for a group that had a NaN or an infinity in it,
whose values then all come back as NaN.
"""

from __future__ import annotations

from functools import cache

import torch

from kernels.errors import WorkbenchError

E4M3_MAX = 448.0
E2M1_MAX = 6.0
SMALLEST_NORMAL = 2.0**-126
MXFP4_GROUP = 32
LEAST_AMAX = 1e-4  # of a group of activations: keeps its scale away from zero

_NAN_SCALE = 255
_E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E2M1_SIGN = 8
# Midpoints between neighbours. A tie goes to the even code: 0.25, 1.25, 2.5 and 5 go down.
_E2M1_TIES_DOWN = (0.25, 1.25, 2.5, 5.0)
_E2M1_TIES_UP = (0.75, 1.75, 3.5)


class FormatError(WorkbenchError):
    """A number format that is unknown, or a width that it cannot store."""


def ue8m0_scale(amax: torch.Tensor, largest: float) -> torch.Tensor:
    """Return the byte of the least power of two not below `amax * float32(1 / largest)`.

    `amax` is float32 and at least 2^-126 * largest; the result is uint8 of the same shape.
    Worked on the bits: exponent, plus one if there is a mantissa.
    """
    ratio = amax * (1.0 / largest)  # torch rounds the number to the float32 that it multiplies by
    bits = ratio.contiguous().view(torch.int32)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(torch.int32)
    return exponent.clamp(max=_NAN_SCALE).to(torch.uint8)


def ue8m0_value(scale: torch.Tensor) -> torch.Tensor:
    """Return the float32 value of ue8m0 bytes (uint8 or float8_e8m0fnu); 255 is NaN."""
    exponent = scale.view(torch.uint8).to(torch.int32)
    value = torch.where(exponent == 0, 1 << 22, exponent << 23).view(torch.float32)
    return value.masked_fill(exponent == _NAN_SCALE, torch.nan)


def e4m3_round(x: torch.Tensor) -> torch.Tensor:
    """Round float32 to float8_e4m3fn, ties to even, saturating at 448; NaN stays NaN."""
    return x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def e2m1_encode(x: torch.Tensor) -> torch.Tensor:
    """Return the 4-bit codes (uint8, 0 to 15) of float32 `x`: ties to even, saturating at 6.

    A NaN has no code: its scale carries it (see `ue8m0_scale`), and any code may come back.
    """
    code = torch.bucketize(x.abs().contiguous(), _e2m1_bounds(x.device), right=True).clamp(max=7)
    return (code + _E2M1_SIGN * torch.signbit(x)).to(torch.uint8)


def e2m1_value(code: torch.Tensor) -> torch.Tensor:
    """Return the float32 values of 4-bit codes."""
    return _e2m1_values(code.device)[code.to(torch.int64)]


@cache
def _e2m1_bounds(device: torch.device) -> torch.Tensor:
    """Least magnitudes of the codes 1 to 7. Kept: making them there would wait for the device."""
    infinity = torch.tensor(torch.inf)
    ties_down = torch.nextafter(torch.tensor(_E2M1_TIES_DOWN), infinity)
    return torch.cat((ties_down, torch.tensor(_E2M1_TIES_UP))).sort().values.to(device)


@cache
def _e2m1_values(device: torch.device) -> torch.Tensor:
    """Values of the 16 codes."""
    positive = torch.tensor(_E2M1_VALUES)
    return torch.cat((positive, -positive)).to(device)


def pack_nibbles(code: torch.Tensor) -> torch.Tensor:
    """Pack [..., n] codes into [..., n / 2] bytes, the even element in the low nibble."""
    return code[..., 0::2] | (code[..., 1::2] << 4)


def unpack_nibbles(packed: torch.Tensor) -> torch.Tensor:
    """Unpack [..., n / 2] bytes into [..., n] codes (uint8)."""
    packed = packed.view(torch.uint8)
    return torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)


def quantise_fp8_blocks(
    weight: torch.Tensor, block: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise [o, i] in tiles of `block` = (rows, columns): e4m3 values and ue8m0 scales.

    Returns float8_e4m3fn [o, i] and float8_e8m0fnu [ceil(o / rows), ceil(i / columns)]; a tile
    at the edge may be smaller. The scale of a tile is `ue8m0_scale` of its largest magnitude,
    and 2^-126 at least.
    """
    weight = weight.to(torch.float32)
    amax = _tile_amax(weight, block).clamp_min(E4M3_MAX * SMALLEST_NORMAL)
    scale = ue8m0_scale(amax, E4M3_MAX)
    values = e4m3_round(weight / _spread(ue8m0_value(scale), block, weight.shape))
    return values, scale.view(torch.float8_e8m0fnu)


def dequantise_fp8_blocks(
    weight: torch.Tensor, scale: torch.Tensor, block: tuple[int, int]
) -> torch.Tensor:
    """Return the float32 [..., o, i] of `quantise_fp8_blocks` output (scales may be uint8 too)."""
    tiles = (-(-size // step) for size, step in zip(weight.shape[-2:], block, strict=True))
    expected = (*weight.shape[:-2], *tiles)
    if tuple(scale.shape) != expected:
        raise FormatError(
            f"a weight of {list(weight.shape)} in tiles of {list(block)} needs scales of "
            f"{list(expected)}, not {list(scale.shape)}."
        )
    return weight.to(torch.float32) * _spread(ue8m0_value(scale), block, weight.shape)


def quantise_mxfp4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise [o, i] to e2m1 with one ue8m0 scale per 32 inputs of a row.

    Returns int8 [o, i / 2] (`pack_nibbles`) and float8_e8m0fnu [o, i / 32]. FormatError where
    32 does not divide i.
    """
    groups = grouped(weight.to(torch.float32), MXFP4_GROUP)
    amax = groups.abs().amax(-1).clamp_min(E2M1_MAX * SMALLEST_NORMAL)
    scale = ue8m0_scale(amax, E2M1_MAX)
    code = e2m1_encode(groups / ue8m0_value(scale).unsqueeze(-1)).flatten(-2)
    return pack_nibbles(code).view(torch.int8), scale.view(torch.float8_e8m0fnu)


def dequantise_mxfp4(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The float32 [..., o, i] of int8 or uint8 [..., o, i / 2] and ue8m0 [..., o, i / 32]."""
    groups = grouped(e2m1_value(unpack_nibbles(packed)), MXFP4_GROUP)
    if groups.shape[:-1] != scale.shape:
        raise FormatError(
            f"packed weights of {list(packed.shape)} need scales of "
            f"{list(groups.shape[:-1])}, not {list(scale.shape)}."
        )
    return (groups * ue8m0_value(scale).unsqueeze(-1)).flatten(-2)


def grouped(x: torch.Tensor, group: int) -> torch.Tensor:
    """View [..., width] as [..., width / group, group]. FormatError where it does not divide."""
    if x.shape[-1] % group:
        raise FormatError(
            f"a width of {x.shape[-1]} cannot be stored in groups of {group}.",
            remedy=f"Use a width that {group} divides, or an unquantised format.",
        )
    return x.unflatten(-1, (-1, group))


def quantise_groups(x: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Round activations [..., width] to e4m3 in groups of `group` along the last dimension.

    Returns float8_e4m3fn [..., width] and uint8 ue8m0 scales [..., ceil(width / group)]; the
    last group may be smaller. The scale is `ue8m0_scale` of the largest magnitude, of 1e-4 at
    least; a group with a NaN or an infinity has the scale 255 and is NaN throughout.
    """
    width = x.shape[-1]
    padded = torch.nn.functional.pad(x.to(torch.float32), (0, -width % group))
    groups = padded.unflatten(-1, (-1, group))
    scale = ue8m0_scale(groups.abs().amax(-1).clamp_min(LEAST_AMAX), E4M3_MAX)
    values = e4m3_round(groups / ue8m0_value(scale).unsqueeze(-1))
    return values.flatten(-2)[..., :width], scale


def dequantise_groups(values: torch.Tensor, scale: torch.Tensor, group: int) -> torch.Tensor:
    """The float32 [..., width] of `quantise_groups` output."""
    spread = ue8m0_value(scale).repeat_interleave(group, -1)[..., : values.shape[-1]]
    return values.to(torch.float32) * spread


def round_groups(x: torch.Tensor, group: int) -> torch.Tensor:
    """What `quantise_groups` leaves of x, in the dtype of x."""
    return dequantise_groups(*quantise_groups(x, group), group).to(x.dtype)


def _tile_amax(weight: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    rows, columns = block
    height, width = weight.shape
    padded = torch.nn.functional.pad(weight.abs(), (0, -width % columns, 0, -height % rows))
    return padded.unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).amax((1, 3))


def _spread(scale: torch.Tensor, block: tuple[int, int], shape: torch.Size) -> torch.Tensor:
    rows, columns = block
    tall = scale.repeat_interleave(rows, -2)[..., : shape[-2], :]
    return tall.repeat_interleave(columns, -1)[..., : shape[-1]]
