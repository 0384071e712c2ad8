"""The cache row formats, bit for bit: how a row of `width` values lies in bytes.

A row is its data, then its scales: `[width values | one scale byte per group]`. The names are
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

PACKED_FORMATS = (FP8_GROUP32, FP4_GROUP16, FP4_GROUP32)
"""Those of DeepSeek-V4.1; FP8_GROUP64_TAIL is DeepSeek-V4's."""


@dataclass(frozen=True, kw_only=True)
class _Codec:
    group: int
    bits: int  # of one value
    floor: float  # least group maximum: keeps the scale away from zero
    tail: int = 0  # last values that stay bfloat16, as the rotated ones of DeepSeek-V4 do
    pad: int = 0  # bytes after the scales


_CODECS = {
    FP8_GROUP32: _Codec(group=32, bits=8, floor=1e-4),
    FP4_GROUP16: _Codec(group=16, bits=4, floor=E2M1_MAX * 2.0**-9),
    FP4_GROUP32: _Codec(group=32, bits=4, floor=E2M1_MAX * SMALLEST_NORMAL),
    FP8_GROUP64_TAIL: _Codec(group=64, bits=8, floor=1e-4, tail=64, pad=1),
}


def row_bytes(fmt: str, width: int) -> int:
    """Return the bytes of one row of `width` values, scales included (528 for fp8 at 512).

    FormatError where `fmt` is not one of PACKED_FORMATS or its group does not divide `width`.
    """
    codec = _codec(fmt)
    _check_width(fmt, width)
    return data_bytes(fmt, width) + (width - codec.tail) // codec.group + codec.pad


def data_bytes(fmt: str, width: int) -> int:
    """Return the bytes of one row before its scales."""
    codec = _codec(fmt)
    return (width - codec.tail) * codec.bits // 8 + 2 * codec.tail


def pack(x: torch.Tensor, fmt: str) -> torch.Tensor:
    """Pack [..., width] into uint8 [..., row_bytes(fmt, width)] on the same device."""
    codec = _codec(fmt)
    _check_width(fmt, x.shape[-1])
    if codec.tail:
        tail = x[..., -codec.tail :].to(torch.bfloat16).contiguous().view(torch.uint8)
        values, scale = _scaled(x[..., : -codec.tail], fmt)
        pad = scale.new_zeros((*scale.shape[:-1], codec.pad))
        stored = e4m3_round(values).view(torch.uint8).flatten(-2)
        return torch.cat((stored, tail, scale, pad), dim=-1)
    values, scale = _scaled(x, fmt)
    if fmt == FP8_GROUP32:
        stored = e4m3_round(values).view(torch.uint8).flatten(-2)
    else:
        stored = pack_nibbles(e2m1_encode(values).flatten(-2))
    return torch.cat((stored, scale), dim=-1)


def unpack(rows: torch.Tensor, fmt: str, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Unpack uint8 [..., row_bytes(fmt, width)] into [..., width] of `dtype`.

    Values are exact in float32 and rounded once to `dtype`. FormatError where the rows are not
    uint8 of the right length.
    """
    if rows.dtype != torch.uint8 or rows.shape[-1] != row_bytes(fmt, width):
        raise FormatError(
            f"rows of {rows.shape[-1]} x {rows.dtype} are not rows of {fmt} at width {width}.",
            remedy=f"Such a row has {row_bytes(fmt, width)} bytes (torch.uint8).",
        )
    codec, held = _codec(fmt), data_bytes(fmt, width)
    scale = rows[..., held : rows.shape[-1] - codec.pad]
    stored, tail = rows[..., : held - 2 * codec.tail], rows[..., held - 2 * codec.tail : held]
    if codec.bits == 8:
        values = stored.contiguous().view(torch.float8_e4m3fn).to(torch.float32)
    else:
        values = e2m1_value(unpack_nibbles(stored))
    scaled = grouped(values, codec.group) * _scale_value(scale, fmt).unsqueeze(-1)
    values = scaled.flatten(-2).to(dtype)
    if not codec.tail:
        return values
    return torch.cat((values, tail.contiguous().view(torch.bfloat16).to(dtype)), -1)


def quantise_dequantise(x: torch.Tensor, fmt: str) -> torch.Tensor:
    """Return [..., width] as a cache of `fmt` would give it back, in the dtype of `x`.

    Equal to `unpack(pack(x, fmt), fmt, width, x.dtype)` without making the bytes.
    """
    if _codec(fmt).tail:
        return unpack(pack(x, fmt), fmt, x.shape[-1], x.dtype)
    _check_width(fmt, x.shape[-1])
    values, scale = _scaled(x, fmt)
    if fmt == FP8_GROUP32:
        rounded = e4m3_round(values).to(torch.float32)
    else:
        rounded = e2m1_value(e2m1_encode(values))
    return (rounded * _scale_value(scale, fmt).unsqueeze(-1)).flatten(-2).to(x.dtype)


def _codec(fmt: str) -> _Codec:
    try:
        return _CODECS[fmt]
    except KeyError as error:
        raise FormatError(
            f"{fmt!r} is not a packed row format.", remedy=f"Use one of {', '.join(_CODECS)}."
        ) from error


def _check_width(fmt: str, width: int) -> None:
    codec = _codec(fmt)
    if width <= codec.tail or (width - codec.tail) % codec.group:
        raise FormatError(
            f"a width of {width} cannot be stored as {fmt}.",
            remedy=f"Use a width that {codec.group} divides, or an unquantised format.",
        )


def _scaled(x: torch.Tensor, fmt: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Divide by the group scales: float32 [..., groups, group] and scale bytes [..., groups]."""
    codec = _codec(fmt)
    groups = grouped(x.to(torch.float32), codec.group)
    amax = groups.abs().amax(-1).clamp_min(codec.floor)
    if fmt == FP4_GROUP16:
        finite = torch.where(amax.isfinite(), amax / E2M1_MAX, torch.nan)
        scale = e4m3_round(finite).view(torch.uint8)
    else:
        scale = ue8m0_scale(amax, E4M3_MAX if codec.bits == 8 else E2M1_MAX)
    return groups / _scale_value(scale, fmt).unsqueeze(-1), scale


def _scale_value(scale: torch.Tensor, fmt: str) -> torch.Tensor:
    if fmt == FP4_GROUP16:
        return scale.contiguous().view(torch.float8_e4m3fn).to(torch.float32)
    return ue8m0_value(scale)
