"""The cache row formats, bit for bit: how a row of `width` values lies in bytes.

A row is its data, then the scales of its groups, as its `RowLayout` says. The names are
those that a model declares for its caches. Formulas: the number formats of the DeepSeek-V4.1
release; small floats and scales come from `kernels.quantize.reference`.

What every format promises:
- the work is done in float32; a float64 row is rounded to float32 first;
- a group that holds a NaN or an infinity comes back as NaN throughout;
- magnitudes above about 3.1e38 may come back as infinity, as any rounding up there would;
- fp4 with e4m3 scales saturates at 6 * 448 = 2688;
- quantising twice changes nothing, except fp4 with e4m3 scales below a group maximum of
  6 * 2^-6, where the scale itself is subnormal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from kernels.quantize.reference import (
    E2M1_MAX,
    E4M3_MAX,
    SMALLEST_NORMAL,
    FormatError,
    e2m1_encode,
    e2m1_value,
    e4m3_round,
    grouped,
    pack_nibbles,
    ue8m0_scale,
    ue8m0_value,
    unpack_nibbles,
)

FP8_GROUP32 = "fp8_e4m3_group32_ue8m0"
FP4_GROUP16 = "fp4_e2m1_group16_e4m3"
FP4_GROUP32 = "fp4_e2m1_group32_ue8m0"
FP8_GROUP64_TAIL = "fp8_e4m3_group64_ue8m0_tail64"
FP8_GROUP128 = "fp8_e4m3_group128_float32"

PACKED_FORMATS = (FP8_GROUP32, FP4_GROUP16, FP4_GROUP32)
"""Those of DeepSeek-V4.1; FP8_GROUP64_TAIL and, for index keys, FP8_GROUP128 are DeepSeek-V4's."""

ScaleKind = Literal["ue8m0", "e4m3", "float32"]


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """How the values of a row lie in bytes."""

    group: int  # values that share a scale
    bits: int  # of one value
    floor: float  # least group maximum: keeps the scale away from zero
    scale: ScaleKind = "ue8m0"  # float32 holds powers of two when it is written, any when read
    tail: int = 0  # last values that stay bfloat16, as the rotated ones of DeepSeek-V4 do
    pad: int = 0  # bytes after the scales

    @property
    def scale_bytes(self) -> int:
        """Bytes of one scale."""
        return 4 if self.scale == "float32" else 1


ROW_LAYOUTS = {
    FP8_GROUP32: RowLayout(group=32, bits=8, floor=1e-4),
    FP4_GROUP16: RowLayout(group=16, bits=4, floor=E2M1_MAX * 2.0**-9, scale="e4m3"),
    FP4_GROUP32: RowLayout(group=32, bits=4, floor=E2M1_MAX * SMALLEST_NORMAL),
    FP8_GROUP64_TAIL: RowLayout(group=64, bits=8, floor=1e-4, tail=64, pad=1),
    FP8_GROUP128: RowLayout(group=128, bits=8, floor=1e-4, scale="float32"),
}


def row_bytes(fmt: str, width: int) -> int:
    """Return the bytes of one row of `width` values, scales included (528 for fp8 at 512).

    FormatError where `fmt` is not one of ROW_LAYOUTS or its group does not divide `width`.
    """
    layout = _layout(fmt)
    _check_width(fmt, width)
    scales = (width - layout.tail) // layout.group * layout.scale_bytes
    return data_bytes(fmt, width) + scales + layout.pad


def data_bytes(fmt: str, width: int) -> int:
    """Return the bytes of one row before its scales."""
    layout = _layout(fmt)
    return (width - layout.tail) * layout.bits // 8 + 2 * layout.tail


def pack(x: torch.Tensor, fmt: str) -> torch.Tensor:
    """Pack [..., width] into uint8 [..., row_bytes(fmt, width)] on the same device."""
    layout = _layout(fmt)
    _check_width(fmt, x.shape[-1])
    values, scale = _scaled(x[..., : x.shape[-1] - layout.tail], layout)
    if layout.scale == "float32":
        scale = ue8m0_value(scale).view(torch.uint8)
    if layout.bits == 8:
        stored = e4m3_round(values).view(torch.uint8).flatten(-2)
    else:
        stored = pack_nibbles(e2m1_encode(values).flatten(-2))
    if not layout.tail:
        return torch.cat((stored, scale), dim=-1)
    tail = x[..., -layout.tail :].to(torch.bfloat16).contiguous().view(torch.uint8)
    pad = scale.new_zeros((*scale.shape[:-1], layout.pad))
    return torch.cat((stored, tail, scale, pad), dim=-1)


def unpack(rows: torch.Tensor, fmt: str, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Unpack uint8 [..., row_bytes(fmt, width)] into [..., width] of `dtype`.

    Values are exact in float32 (but for a float32 scale that is no power of two) and rounded once
    to `dtype`. FormatError where the rows are not uint8 of the right length.
    """
    if rows.dtype != torch.uint8 or rows.shape[-1] != row_bytes(fmt, width):
        raise FormatError(
            f"rows of {rows.shape[-1]} x {rows.dtype} are not rows of {fmt} at width {width}.",
            remedy=f"Such a row has {row_bytes(fmt, width)} bytes (torch.uint8).",
        )
    layout, held = _layout(fmt), data_bytes(fmt, width)
    scale = rows[..., held : rows.shape[-1] - layout.pad]
    stored, tail = rows[..., : held - 2 * layout.tail], rows[..., held - 2 * layout.tail : held]
    if layout.bits == 8:
        values = stored.contiguous().view(torch.float8_e4m3fn).to(torch.float32)
    else:
        values = e2m1_value(unpack_nibbles(stored))
    scaled = grouped(values, layout.group) * _stored_scale(scale, layout).unsqueeze(-1)
    values = scaled.flatten(-2).to(dtype)
    if not layout.tail:
        return values
    return torch.cat((values, tail.contiguous().view(torch.bfloat16).to(dtype)), -1)


def quantise_dequantise(x: torch.Tensor, fmt: str) -> torch.Tensor:
    """Return [..., width] as a cache of `fmt` would give it back, in the dtype of `x`.

    Equal to `unpack(pack(x, fmt), fmt, width, x.dtype)` without making the bytes.
    """
    layout = _layout(fmt)
    if layout.tail:
        return unpack(pack(x, fmt), fmt, x.shape[-1], x.dtype)
    _check_width(fmt, x.shape[-1])
    values, scale = _scaled(x, layout)
    if layout.bits == 8:
        rounded = e4m3_round(values).to(torch.float32)
    else:
        rounded = e2m1_value(e2m1_encode(values))
    return (rounded * _scale_value(scale, layout).unsqueeze(-1)).flatten(-2).to(x.dtype)


def _layout(fmt: str) -> RowLayout:
    try:
        return ROW_LAYOUTS[fmt]
    except KeyError as error:
        raise FormatError(
            f"{fmt!r} is not a packed row format.", remedy=f"Use one of {', '.join(ROW_LAYOUTS)}."
        ) from error


def _check_width(fmt: str, width: int) -> None:
    layout = _layout(fmt)
    if width <= layout.tail or (width - layout.tail) % layout.group:
        raise FormatError(
            f"a width of {width} cannot be stored as {fmt}.",
            remedy=f"Use a width that {layout.group} divides, or an unquantised format.",
        )


def _scaled(x: torch.Tensor, layout: RowLayout) -> tuple[torch.Tensor, torch.Tensor]:
    """Divide by the group scales: float32 [..., groups, group] and scale bytes [..., groups]."""
    groups = grouped(x.to(torch.float32), layout.group)
    amax = groups.abs().amax(-1).clamp_min(layout.floor)
    if layout.scale == "e4m3":
        finite = torch.where(amax.isfinite(), amax / E2M1_MAX, torch.nan)
        scale = e4m3_round(finite).view(torch.uint8)
    else:
        scale = ue8m0_scale(amax, E4M3_MAX if layout.bits == 8 else E2M1_MAX)
    return groups / _scale_value(scale, layout).unsqueeze(-1), scale


def _scale_value(scale: torch.Tensor, layout: RowLayout) -> torch.Tensor:
    """Of the bytes that `_scaled` gives."""
    if layout.scale == "e4m3":
        return scale.contiguous().view(torch.float8_e4m3fn).to(torch.float32)
    return ue8m0_value(scale)


def _stored_scale(scale: torch.Tensor, layout: RowLayout) -> torch.Tensor:
    """Of the bytes that lie in a row."""
    if layout.scale == "float32":
        return scale.clone(memory_format=torch.contiguous_format).view(torch.float32)
    return _scale_value(scale, layout)
