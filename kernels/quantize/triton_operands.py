"""Packed weights as operands of a bfloat16 product, unpacked between shared memory and it.

Weights are read as 16 bit words: four mxfp4 values, or two of e4m3. A product adds over its
inputs in any order that both operands share, so that no value changes its thread: the values of
a word go into planes, plane p of P holding the inputs p, P + p, 2 P + p, ..., and activations come
in planes too (`kernels.quantize.triton_groups`). The bits of a value, moved to where bfloat16 has
them, are that value times a power of two; what a scale cannot take back without leaving the
range of bfloat16, the sum over planes is multiplied by: `UNDO_FP4`, `UNDO_FP8`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.quantize.triton_cuda import e4m3_code, e4m3_value

FP4_PLANES, FP8_PLANES = 4, 2
UP = tl.constexpr(63)  # of scales, as `spread_scales` gives them
UNDO_FP4 = tl.constexpr(9223372036854775808.0)  # 2^(126 - 63)
UNDO_FP8 = tl.constexpr(144115188075855872.0)  # 2^(120 - 63)


def _assembly(
    word: str, factor: str, places: tuple[tuple[int, int], ...], down: int, mask: str
) -> tl.constexpr:
    """Two words at once: for each (plane, left shift), the sign and the other bits, scaled."""
    steps = (
        f"shl.b32 t, {word}, {shift};\nshr.b32 a, t, {down};\nand.b32 a, a, {mask};\n"
        f"lop3.b32 a, t, 0x80008000, a, 0xEA;\nmul.rn.bf16x2 ${plane}, a, {factor};\n"
        for plane, shift in places
    )
    return tl.constexpr("{\n.reg .b32 t, a;\n" + "".join(steps) + "}")


_FP4 = _assembly("$4", "$5", ((3, 0), (2, 4), (1, 8), (0, 12)), 6, "0x01C001C0")
# A product puts the sign and the magnitude of a nibble that stands alone where they belong, on a
# pipe that logic leaves idle.
FP4_BY_PRODUCTS = tl.constexpr("""{
    .reg .b32 s, t;
    and.b32 s, $4, 0x000F000F; mul.lo.u32 s, s, 0x1040; and.b32 s, s, 0x81C081C0;
    mul.rn.bf16x2 $0, s, $5;
    and.b32 s, $4, 0x00F000F0; mul.lo.u32 s, s, 0x104; and.b32 s, s, 0x81C081C0;
    mul.rn.bf16x2 $1, s, $5;
    shr.b32 t, $4, 8;
    and.b32 s, t, 0x000F000F; mul.lo.u32 s, s, 0x1040; and.b32 s, s, 0x81C081C0;
    mul.rn.bf16x2 $2, s, $5;
    and.b32 s, t, 0x00F000F0; mul.lo.u32 s, s, 0x104; and.b32 s, s, 0x81C081C0;
    mul.rn.bf16x2 $3, s, $5;
}""")
BY_PRODUCTS = tl.constexpr(2)
_FP8 = _assembly("$2", "$3", ((1, 0), (0, 8)), 4, "0x07F007F0")


@triton.jit
def spread_scales(scale, ROWS: tl.constexpr, GROUPS: tl.constexpr, EACH: tl.constexpr):
    """ue8m0 bytes [ROWS, GROUPS] as bfloat16 [ROWS, GROUPS * EACH] times 2^UP.

    A scale of more than 2^64, which bfloat16 cannot hold so, is NaN, as 255 is.
    """
    bits = (scale.to(tl.int16) + UP) << 7
    bits = tl.where(scale.to(tl.int16) > 254 - UP, 0x7FC0, bits).to(tl.int16)
    value = bits.to(tl.bfloat16, bitcast=True)
    return tl.reshape(
        tl.broadcast_to(value[:, :, None], (ROWS, GROUPS, EACH)), (ROWS, GROUPS * EACH)
    )


@triton.jit
def one_plane(word, factor, LEFT: tl.constexpr, DOWN: tl.constexpr, MASK: tl.constexpr):
    """As the assembly does it for one value."""
    t = word.to(tl.int32) << LEFT
    bits = ((t & 0x8000) | ((t >> DOWN) & MASK)) << 16
    return (bits.to(tl.float32, bitcast=True) * factor.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def fp4_planes(word, factor, IN_ASSEMBLY: tl.constexpr):
    """The four planes of mxfp4 words (uint16), times their scales, over UNDO_FP4.

    IN_ASSEMBLY: 0 without, 1 by shifts, 2 by products; the same values.
    """
    if IN_ASSEMBLY == BY_PRODUCTS:
        return tl.inline_asm_elementwise(
            FP4_BY_PRODUCTS,
            "=&r,=&r,=&r,=&r,r,r",
            [word, factor],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=2,
        )
    if IN_ASSEMBLY:
        return tl.inline_asm_elementwise(
            _FP4,
            "=r,=r,=r,=r,r,r",
            [word, factor],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=2,
        )
    return (
        one_plane(word, factor, 12, 6, 0x01C0),
        one_plane(word, factor, 8, 6, 0x01C0),
        one_plane(word, factor, 4, 6, 0x01C0),
        one_plane(word, factor, 0, 6, 0x01C0),
    )


@triton.jit
def fp8_planes(word, factor, IN_ASSEMBLY: tl.constexpr):
    """The two planes of e4m3 words (uint16, no NaN), times their scales, over UNDO_FP8."""
    if IN_ASSEMBLY:
        return tl.inline_asm_elementwise(
            _FP8,
            "=r,=r,r,r",
            [word, factor],
            dtype=(tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=2,
        )
    return one_plane(word, factor, 8, 4, 0x07F0), one_plane(word, factor, 0, 4, 0x07F0)


@triton.jit
def group_exponents(groups, AXIS: tl.constexpr):
    """The ue8m0 bytes (int32) of float32 groups along an axis; see `quantise_groups`."""
    size = tl.abs(groups)
    is_finite = tl.min((size < float("inf")).to(tl.int32), AXIS) > 0
    most = tl.max(tl.where(size < float("inf"), size, 0.0), AXIS)
    most = tl.where(most < 1e-4, 1e-4, most)
    bits = (most * 0.002232142857142857).to(tl.int32, bitcast=True)  # 1 / 448
    return tl.where(is_finite, (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(tl.int32), 255)


@triton.jit
def power_of_two(exponent):
    """The float32 2^(exponent - 127) of int32 1 to 254; NaN for 255."""
    value = (exponent << 23).to(tl.float32, bitcast=True)
    return tl.where(exponent == 255, float("nan"), value)


@triton.jit
def rounded_columns(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr):
    """float32 x [ROWS, COLUMNS] rounded to e4m3 in groups of GROUP rows."""
    groups = tl.reshape(x, (ROWS // GROUP, GROUP, COLUMNS))
    exponent = group_exponents(groups, 1)
    down = power_of_two(tl.where(exponent == 255, 255, 254 - exponent))
    rounded = e4m3_value(e4m3_code(groups * down[:, None, :])) * power_of_two(exponent)[:, None, :]
    return tl.reshape(rounded, (ROWS, COLUMNS))
