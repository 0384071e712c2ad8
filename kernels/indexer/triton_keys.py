"""Index keys as a product takes them: tiles read where they lie and decoded, and the queries.

Packed keys are multiplied in four parts, by the place of a nibble in 16 bits, so that nothing is
moved to bring the values of a key together.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.quantize.triton_cuda import stored_values

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
def key_tile(
    keys, table, logical, inside, per_block, SHIFT: tl.constexpr, FORMAT: tl.constexpr,
    WIDTH: tl.constexpr, DTYPE: tl.constexpr, IN_QUARTERS: tl.constexpr,
):  # fmt: skip
    """Logical rows by their page table, whole or in quarters; zeros where one is not inside.

    Pages have 2^SHIFT rows, or `per_block` where SHIFT is below 0.
    """
    if SHIFT >= 0:
        block, within = logical >> SHIFT, logical & ((1 << SHIFT) - 1)
    else:
        block, within = logical // per_block, logical % per_block
    page = tl.load(table + block, mask=inside, other=0).to(tl.int64)
    place = page * per_block + within
    if IN_QUARTERS:
        tile = key_quarters(keys, place, inside, WIDTH)
    else:
        tile = (stored_values(keys, place, inside, FORMAT, WIDTH, DTYPE),)
    return tile


@triton.jit
def query_columns(
    queries, weights, row, end, heads, WIDTH: tl.constexpr, HEADS: tl.constexpr,
    TOGETHER: tl.constexpr, IN_QUARTERS: tl.constexpr,
):  # fmt: skip
    """The heads of `TOGETHER` queries, those before `end`, as columns, whole or in quarters as
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
    if IN_QUARTERS:
        even, odd = tl.split(tl.reshape(query, (TOGETHER * HEADS, WIDTH // 4, 2, 2)))
        first, third = tl.split(even)
        second, fourth = tl.split(odd)
        columns = (tl.trans(first), tl.trans(second), tl.trans(third), tl.trans(fourth))
        share *= REBASED
    else:
        columns = (tl.trans(query),)
    return columns, share


@triton.jit
def rectified_products(tile, columns, share, IN_QUARTERS: tl.constexpr):
    """weight * relu(key . query) of a tile of keys and each column: [keys, columns]."""
    product = tl.dot(tile[0], columns[0], input_precision="ieee")
    if IN_QUARTERS:
        product = tl.dot(tile[1], columns[1], product)
        product = tl.dot(tile[2], columns[2], product)
        product = tl.dot(tile[3], columns[3], product)
    product = tl.maximum(product, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return product * share[None, :]
