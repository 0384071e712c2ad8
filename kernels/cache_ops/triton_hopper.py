"""Rows of a cache decoded into tiles of shared memory, on Hopper.

Bits are moved to where bfloat16 has them and multiplied by powers of two, two values an
instruction: exact, as bfloat16 has room for the digits of every packing.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # renamed after 3.6


@gluon.jit
def e4m3_bfloat16(byte, factor):
    """Values of e4m3 bytes times a power of two, exactly, in bfloat16."""
    return gl.inline_asm_elementwise(
        """{
        .reg .b32 a, b, c, d, k;
        mov.b32 k, 0x7B807B80;
        prmt.b32 a, $2, 0, 0x1404;
        prmt.b32 b, $2, 0, 0x3424;
        shr.u32 c, a, 4;
        shr.u32 d, b, 4;
        and.b32 c, c, 0x07f007f0;
        and.b32 d, d, 0x07f007f0;
        lop3.b32 c, a, 0x80008000, c, 0xEA;
        lop3.b32 d, b, 0x80008000, d, 0xEA;
        mul.bf16x2 c, c, k;
        mul.bf16x2 d, d, k;
        mul.bf16x2 $0, c, $3;
        mul.bf16x2 $1, d, $4;
        }""",
        "=r,=r,r,r,r",
        [byte, factor],
        dtype=gl.bfloat16,
        is_pure=True,
        pack=4,
    )


@gluon.jit
def e2m1_bfloat16(byte, factor):
    """Values of the low and of the high nibbles of bytes times a factor, in bfloat16."""
    return gl.inline_asm_elementwise(
        """{
        .reg .b32 a, b, c, d, e, f, k;
        mov.b32 k, 0x7E807E80;
        prmt.b32 a, $4, 0, 0x4140;
        prmt.b32 b, $4, 0, 0x4342;
        and.b32 c, a, 0x00070007;
        and.b32 d, b, 0x00070007;
        shl.b32 c, c, 6;
        shl.b32 d, d, 6;
        shl.b32 e, a, 12;
        shl.b32 f, b, 12;
        lop3.b32 c, e, 0x80008000, c, 0xEA;
        lop3.b32 d, f, 0x80008000, d, 0xEA;
        mul.bf16x2 c, c, k;
        mul.bf16x2 d, d, k;
        mul.bf16x2 $0, c, $5;
        mul.bf16x2 $1, d, $6;
        and.b32 c, a, 0x00700070;
        and.b32 d, b, 0x00700070;
        shl.b32 c, c, 2;
        shl.b32 d, d, 2;
        shl.b32 e, a, 8;
        shl.b32 f, b, 8;
        lop3.b32 c, e, 0x80008000, c, 0xEA;
        lop3.b32 d, f, 0x80008000, d, 0xEA;
        mul.bf16x2 c, c, k;
        mul.bf16x2 d, d, k;
        mul.bf16x2 $2, c, $5;
        mul.bf16x2 $3, d, $6;
        }""",
        "=r,=r,=r,=r,r,r,r",
        [byte, factor],
        dtype=(gl.bfloat16, gl.bfloat16),
        is_pure=True,
        pack=4,
    )


@gluon.jit
def power_of_two(scale):
    """bfloat16 of ue8m0 bytes; 255 is NaN."""
    u = scale.to(gl.int16)
    bits = gl.where(u == 0, 0x40, gl.where(u == 255, 0x7FC0, u << 7))
    return bits.to(gl.int16).to(gl.bfloat16, bitcast=True)


@gluon.jit
def e4m3_scale(scale):
    """bfloat16 of e4m3 bytes; 0x7F is NaN."""
    u = scale.to(gl.int32)
    bits = ((u & 0x80) << 24) | ((u & 0x7F) << 20)
    value = bits.to(gl.float32, bitcast=True) * 1.329227995784916e36
    return gl.where((u & 0x7F) == 0x7F, float("nan"), value).to(gl.bfloat16)


@gluon.constexpr_function
def group_layout(columns: int, group: int, vector: int, warps: int) -> gl.BlockedLayout:
    """[rows, groups, bytes of a group], `vector` bytes in a row for a thread."""
    inner = group // vector
    outer = min(columns // group, 32 // inner)
    lanes = [32 // (inner * outer), outer, inner]
    return gl.BlockedLayout([1, 1, vector], lanes, [warps, 1, 1], [2, 1, 0])


@gluon.jit
def decode_part(
    cache, rows, scale_rows, tile, START: gl.constexpr, COLUMNS: gl.constexpr, GROUP: gl.constexpr,
    VEC: gl.constexpr, KEYS: gl.constexpr, IS_FP4: gl.constexpr,
):  # fmt: skip
    """Columns START to START + COLUMNS of the tile, from bytes and their scales.

    rows, scale_rows: int64 [KEYS] in shared memory, byte offsets, negative where not visible.
    """
    PER_BYTE: gl.constexpr = 2 if IS_FP4 else 1
    BYTES: gl.constexpr = GROUP // PER_BYTE
    GROUPS: gl.constexpr = COLUMNS // GROUP
    LAYOUT: gl.constexpr = group_layout(COLUMNS // PER_BYTE, BYTES, VEC, gl.num_warps())
    BY_GROUP: gl.constexpr = gl.SliceLayout(2, LAYOUT)
    BY_ROW: gl.constexpr = gl.SliceLayout(1, BY_GROUP)
    row = rows.load(BY_ROW)
    scale_row = scale_rows.load(BY_ROW)
    group = gl.arange(0, GROUPS, gl.SliceLayout(0, BY_GROUP))
    byte = gl.arange(0, BYTES, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))
    seen = (row >= 0)[:, None]
    scale_at = cache + scale_row[:, None] + (START // GROUP + group)[None, :]
    scale = gl.load(scale_at, mask=seen, other=0)
    at = (START // PER_BYTE + group * BYTES)[None, :, None] + gl.expand_dims(byte[None, :], 1)
    here = cache + row[:, None, None] + at
    here = gl.multiple_of(here, [1, 1, VEC])
    value = gl.load(gl.max_contiguous(here, [1, 1, VEC]), mask=seen[:, :, None], other=0)
    target = tile.slice(START, COLUMNS, dim=1)
    if IS_FP4:
        factor = gl.expand_dims(e4m3_scale(scale), 2)
        factor, value = gl.broadcast(factor, value)
        low, high = e2m1_bfloat16(value, factor)
        target.store(gl.reshape(gl.join(low, high), (KEYS, COLUMNS)))
    else:
        factor = gl.expand_dims(power_of_two(scale), 2)
        factor, value = gl.broadcast(factor, value)
        target.store(gl.reshape(e4m3_bfloat16(value, factor), (KEYS, COLUMNS)))


@gluon.jit
def copy_part(
    cache, rows, tile, BYTE: gl.constexpr, START: gl.constexpr, COLUMNS: gl.constexpr,
    KEYS: gl.constexpr,
):  # fmt: skip
    """Columns of the tile that lie in bfloat16 from a byte of the row on."""
    LANES: gl.constexpr = COLUMNS // 8 if COLUMNS < 256 else 32
    LAYOUT: gl.constexpr = gl.BlockedLayout(
        [1, 8], [32 // LANES, LANES], [gl.num_warps(), 1], [1, 0]
    )
    row = rows.load(gl.SliceLayout(1, LAYOUT))
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))
    base = cache.to(gl.pointer_type(gl.bfloat16), bitcast=True)
    here = base + (row[:, None] + BYTE) // 2 + column[None, :]
    here = gl.max_contiguous(gl.multiple_of(here, [1, 16]), [1, 8])
    value = gl.load(here, mask=(row >= 0)[:, None], other=0.0)
    tile.slice(START, COLUMNS, dim=1).store(value)


@gluon.jit
def decode_tile(
    cache, rows, scale_rows, tile, FORMAT: gl.constexpr, VEC: gl.constexpr, KEYS: gl.constexpr
):
    """A tile [KEYS, 512] of rows in a packing of `kernels.quantize.triton_cuda.NUMBERS`."""
    if FORMAT == 0:
        copy_part(cache, rows, tile, 0, 0, 256, KEYS)
        copy_part(cache, rows, tile, 512, 256, 256, KEYS)
    elif FORMAT == 1:
        decode_part(cache, rows, scale_rows, tile, 0, 256, 32, VEC, KEYS, False)
        decode_part(cache, rows, scale_rows, tile, 256, 256, 32, VEC, KEYS, False)
    elif FORMAT == 2:
        decode_part(cache, rows, scale_rows, tile, 0, 256, 16, 4, KEYS, True)
        decode_part(cache, rows, scale_rows, tile, 256, 256, 16, 4, KEYS, True)
    else:
        decode_part(cache, rows, scale_rows, tile, 0, 256, 64, VEC, KEYS, False)
        decode_part(cache, rows, scale_rows, tile, 256, 128, 64, VEC, KEYS, False)
        decode_part(cache, rows, scale_rows, tile, 384, 64, 64, VEC, KEYS, False)
        copy_part(cache, rows, tile, 448, 448, 64, KEYS)


@gluon.jit
def byte_offsets(place, seen, page_stride, FORMAT: gl.constexpr, PAGE: gl.constexpr):
    """Where the data and the scales of rows begin; negative where a row is not seen."""
    if FORMAT == 4:
        if PAGE == 0:
            row = place.to(gl.int64) * 584
            scale = row + 576
        else:
            within = place % PAGE
            page = (place // PAGE).to(gl.int64) * page_stride
            row, scale = page + within * 576, page + PAGE * 576 + within * 8
    else:
        HELD: gl.constexpr = 1024 if FORMAT == 0 else (512 if FORMAT == 1 else 256)
        SIZE: gl.constexpr = 1024 if FORMAT == 0 else (528 if FORMAT == 1 else 288)
        row = place.to(gl.int64) * SIZE
        scale = row + HELD
    return gl.where(seen, row, -1), gl.where(seen, scale, 0)
