"""Tiles of index keys, and the columns of queries that they are multiplied with.

Packed keys are multiplied in parts, four by the place of a nibble in 16 bits or two by that of a
byte, so that nothing is moved to bring the values of a key together.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.cache_ops.triton_cuda import cached_values, sectioned_places, wide_scales
from kernels.quantize.triton_operands import fp8_planes

NARROWEST_QUARTER = 16  # of a matrix instruction

# Pairs of 16 bits to pairs of bfloat16, one nibble of each, times a factor: a magnitude put at
# the bottom of the exponent is the value over 2^126.
NIBBLES = tl.constexpr("""{
    .reg .b32 s, t;
    and.b32 s, $4, 0x00070007; shl.b32 s, s, 6;
    shl.b32 t, $4, 12; lop3.b32 s, t, 0x80008000, s, 0xEA;
    mul.rn.bf16x2 $0, s, $5;
    shl.b32 s, $4, 2; and.b32 s, s, 0x01C001C0;
    shl.b32 t, $4, 8; lop3.b32 s, t, 0x80008000, s, 0xEA;
    mul.rn.bf16x2 $1, s, $5;
    shr.b32 s, $4, 2; and.b32 s, s, 0x01C001C0;
    shl.b32 t, $4, 4; lop3.b32 s, t, 0x80008000, s, 0xEA;
    mul.rn.bf16x2 $2, s, $5;
    shr.b32 s, $4, 6; and.b32 s, s, 0x01C001C0;
    lop3.b32 s, $4, 0x80008000, s, 0xEA;
    mul.rn.bf16x2 $3, s, $5;
}""")
REBASED = tl.constexpr(2.0**64)  # what keys decoded by `NIBBLES` are divided by


@triton.jit
def key_quarters(keys, place, inside, WIDTH: tl.constexpr):
    """Values 4i + n of fp4 rows [rows] with a scale for 32, for n from 0 to 3, over `REBASED`:
    bfloat16 [rows, WIDTH // 4] each, zeros where a row is not inside.

    Scales beyond 2^65 count as infinite; that of a NaN does too, and its values are zeros.
    """
    ROWS: tl.constexpr = place.shape[0]
    GROUPS: tl.constexpr = WIDTH // 32
    here = (keys + place * (WIDTH // 2 + GROUPS))[:, None]
    words = here.to(tl.pointer_type(tl.int16), bitcast=True) + tl.arange(0, WIDTH // 4)[None, :]
    word = tl.load(words, mask=inside[:, None], other=0)
    at = WIDTH // 2 + tl.arange(0, GROUPS)[None, :]
    scale = tl.load(here + at, mask=inside[:, None], other=0)
    bits = (tl.minimum(scale.to(tl.int32) + 62, 255) << 7).to(tl.int16)
    factor = bits.to(tl.bfloat16, bitcast=True)[:, :, None]
    quarters = tl.inline_asm_elementwise(
        NIBBLES,
        "=r,=r,=r,=r,r,r",
        [tl.reshape(word, (ROWS, GROUPS, 8)), tl.broadcast_to(factor, (ROWS, GROUPS, 8))],
        dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
        is_pure=True,
        pack=2,
    )
    QUARTER: tl.constexpr = WIDTH // 4
    return (
        tl.reshape(quarters[0], (ROWS, QUARTER)),
        tl.reshape(quarters[1], (ROWS, QUARTER)),
        tl.reshape(quarters[2], (ROWS, QUARTER)),
        tl.reshape(quarters[3], (ROWS, QUARTER)),
    )


@triton.jit
def key_halves(keys, data, inside, WIDTH: tl.constexpr, IN_ASSEMBLY: tl.constexpr):
    """Even and odd values of e4m3 rows that begin at bytes `data` [rows], without their scales:
    bfloat16 [rows, WIDTH // 2] each, zeros where a row is not inside.
    """
    words = (keys + data).to(tl.pointer_type(tl.uint16), bitcast=True)[:, None]
    word = tl.load(words + tl.arange(0, WIDTH // 2)[None, :], mask=inside[:, None], other=0)
    factor = tl.full(word.shape, 1.329227995784916e36, tl.float32).to(tl.bfloat16)  # 2^120
    return fp8_planes(word, factor, IN_ASSEMBLY)


@triton.jit
def key_places(table, logical, inside, per_block, SHIFT: tl.constexpr):
    """Where logical rows lie by their page table.

    Pages have 2^SHIFT rows, or `per_block` where SHIFT is below 0.
    """
    if SHIFT >= 0:
        block, within = logical >> SHIFT, logical & ((1 << SHIFT) - 1)
    else:
        block, within = logical // per_block, logical % per_block
    return tl.load(table + block, mask=inside, other=0).to(tl.int64) * per_block + within


@triton.jit
def key_tile(
    keys, place, inside, page_stride, FORMAT: tl.constexpr, PAGE: tl.constexpr,
    WIDTH: tl.constexpr, DTYPE: tl.constexpr, PARTS: tl.constexpr, IN_ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Rows that lie at `place`, whole or in PARTS; zeros where one is not inside."""
    if PARTS == 4:
        tile = key_quarters(keys, place, inside, WIDTH)
    elif PARTS == 2:
        data, _ = sectioned_places(place, page_stride, FORMAT, PAGE, WIDTH)
        tile = key_halves(keys, data, inside, WIDTH, IN_ASSEMBLY)
    else:
        values = cached_values(keys, place, inside, page_stride, FORMAT, PAGE, WIDTH, DTYPE)
        tile = (values,)
    return tile


@triton.jit
def key_scales(keys, place, inside, page_stride, PAGE: tl.constexpr, WIDTH: tl.constexpr):
    """The one scale of each row whose values came in halves: [rows]."""
    _, scales = sectioned_places(place, page_stride, 5, PAGE, WIDTH)
    return tl.sum(wide_scales(keys, scales, inside, 1), 1)


@triton.jit
def query_columns(
    queries, weights, row, end, heads, WIDTH: tl.constexpr, HEADS: tl.constexpr,
    TOGETHER: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The heads of `TOGETHER` queries, those before `end`, as columns, whole or in parts as
    keys are, and their weights.
    """
    lane = tl.arange(0, TOGETHER * HEADS)
    head = lane % HEADS
    member = row + lane // HEADS
    inside = (head < heads) & (member < end)
    here = member.to(tl.int64) * heads + head
    at = tl.arange(0, WIDTH)[None, :]
    query = tl.load(queries + here[:, None] * WIDTH + at, mask=inside[:, None], other=0.0)
    share = tl.load(weights + here, mask=inside, other=0.0).to(tl.float32)
    if PARTS == 4:
        even, odd = tl.split(tl.reshape(query, (TOGETHER * HEADS, WIDTH // 4, 2, 2)))
        first, third = tl.split(even)
        second, fourth = tl.split(odd)
        columns = (tl.trans(first), tl.trans(second), tl.trans(third), tl.trans(fourth))
        share *= REBASED
    elif PARTS == 2:
        even, odd = tl.split(tl.reshape(query, (TOGETHER * HEADS, WIDTH // 2, 2)))
        columns = (tl.trans(even), tl.trans(odd))
    else:
        columns = (tl.trans(query),)
    return columns, share


@triton.jit
def rectified_products(tile, columns, share, PARTS: tl.constexpr):
    """weight * relu(key . query) of a tile of keys and each column: [keys, columns]."""
    product = tl.dot(tile[0], columns[0], input_precision="ieee")
    if PARTS > 1:
        product = tl.dot(tile[1], columns[1], product)
    if PARTS > 2:
        product = tl.dot(tile[2], columns[2], product)
        product = tl.dot(tile[3], columns[3], product)
    product = tl.maximum(product, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return product * share[None, :]
