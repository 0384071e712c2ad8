"""Rows of a cache decoded into tiles of shared memory, on Hopper.

Bits are moved to where bfloat16 has them and multiplied by powers of two, two values an
instruction: exact, as bfloat16 has room for the digits of every packing.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # renamed after 3.6


@gluon.jit
def e4m3_pairs(word, factor):
    """The four e4m3 bytes of a word times a pair of factors: two pairs of bfloat16."""
    return gl.inline_asm_elementwise(
        """{
        .reg .b32 a, b, c, d;
        prmt.b32 a, $2, 0, 0x1404;
        prmt.b32 b, $2, 0, 0x3424;
        shr.u32 c, a, 4;
        shr.u32 d, b, 4;
        and.b32 c, c, 0x07f007f0;
        and.b32 d, d, 0x07f007f0;
        lop3.b32 c, a, 0x80008000, c, 0xEA;
        lop3.b32 d, b, 0x80008000, d, 0xEA;
        mul.bf16x2 c, c, $4;
        mul.bf16x2 d, d, $4;
        mul.bf16x2 $0, c, $3;
        mul.bf16x2 $1, d, $3;
        }""",
        "=r,=r,r,r,r",
        [word, factor, 0x7B807B80],  # 2^120 twice
        dtype=(gl.int32, gl.int32),
        is_pure=True,
        pack=1,
    )


@gluon.jit
def e2m1_pairs(word, factor):
    """The eight e2m1 values of a word times a pair of factors: four pairs of bfloat16."""
    return gl.inline_asm_elementwise(
        """{
        .reg .b32 a, b, c, d, e, f;
        prmt.b32 a, $4, 0, 0x4140;
        and.b32 c, a, 0x00070007;
        shl.b32 c, c, 6;
        shl.b32 e, a, 12;
        lop3.b32 c, e, 0x80008000, c, 0xEA;
        mul.bf16x2 c, c, $6;
        mul.bf16x2 c, c, $5;
        and.b32 d, a, 0x00700070;
        shl.b32 d, d, 2;
        shl.b32 f, a, 8;
        lop3.b32 d, f, 0x80008000, d, 0xEA;
        mul.bf16x2 d, d, $6;
        mul.bf16x2 d, d, $5;
        prmt.b32 $0, c, d, 0x5410;
        prmt.b32 $1, c, d, 0x7632;
        prmt.b32 b, $4, 0, 0x4342;
        and.b32 c, b, 0x00070007;
        shl.b32 c, c, 6;
        shl.b32 e, b, 12;
        lop3.b32 c, e, 0x80008000, c, 0xEA;
        mul.bf16x2 c, c, $6;
        mul.bf16x2 c, c, $5;
        and.b32 d, b, 0x00700070;
        shl.b32 d, d, 2;
        shl.b32 f, b, 8;
        lop3.b32 d, f, 0x80008000, d, 0xEA;
        mul.bf16x2 d, d, $6;
        mul.bf16x2 d, d, $5;
        prmt.b32 $2, c, d, 0x5410;
        prmt.b32 $3, c, d, 0x7632;
        }""",
        "=&r,=&r,=&r,=&r,r,r,r",
        [word, factor, 0x7E807E80],  # 2^126 twice
        dtype=(gl.int32, gl.int32, gl.int32, gl.int32),
        is_pure=True,
        pack=1,
    )


@gluon.jit
def power_of_two(scale):
    """A pair of bfloat16 of ue8m0 bytes; 255 is NaN."""
    u = scale.to(gl.int32)
    bits = gl.where(u == 0, 0x40, gl.where(u == 255, 0x7FC0, u << 7))
    return bits | (bits << 16)


@gluon.jit
def e4m3_scale(scale):
    """A pair of bfloat16 of e4m3 bytes; 0x7F is NaN."""
    u = scale.to(gl.int32)
    value = (((u & 0x80) << 24) | ((u & 0x7F) << 20)).to(gl.float32, bitcast=True)
    bits = (value * 1.329227995784916e36).to(gl.int32, bitcast=True)
    high = gl.where((u & 0x7F) == 0x7F, 0x7FC00000, bits) & -65536
    return high | ((high >> 16) & 0xFFFF)


@gluon.constexpr_function
def group_layout(columns: int, group: int, vector: int, warps: int) -> gl.BlockedLayout:
    """[rows, groups, bytes of a group], `vector` bytes in a row for a thread."""
    inner = group // vector
    outer = min(columns // group, 32 // inner)
    lanes = [32 // (inner * outer), outer, inner]
    return gl.BlockedLayout([1, 1, vector], lanes, [warps, 1, 1], [2, 1, 0])


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


@gluon.jit
def fetch_words(
    cache, rows, START: gl.constexpr, GROUPS: gl.constexpr, WORDS: gl.constexpr, VEC: gl.constexpr
):
    """int32 [keys, GROUPS, WORDS] of each row from byte START on, zeros where it is not seen."""
    LAYOUT: gl.constexpr = group_layout(GROUPS * WORDS, WORDS, VEC, gl.num_warps())
    BY_GROUP: gl.constexpr = gl.SliceLayout(2, LAYOUT)
    row = rows.load(gl.SliceLayout(1, BY_GROUP))
    group = gl.arange(0, GROUPS, gl.SliceLayout(0, BY_GROUP))
    word = gl.arange(0, WORDS, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))
    at = (group * WORDS)[None, :, None] + gl.expand_dims(word[None, :], 1)
    base = cache.to(gl.pointer_type(gl.int32), bitcast=True)
    here = base + ((row + START) // 4)[:, None, None] + at
    here = gl.max_contiguous(gl.multiple_of(here, [1, 1, 4 * VEC]), [1, 1, VEC])
    return gl.load(here, mask=(row >= 0)[:, None, None], other=0)


@gluon.jit
def fetch_tile(cache, rows, FORMAT: gl.constexpr, PAGE: gl.constexpr, VEC: gl.constexpr):
    """Rows as they lie, in registers. rows: int64 [keys] in shared memory, see `byte_offsets`."""
    if FORMAT == 1:
        raw = (fetch_words(cache, rows, 0, 8, 8, VEC), fetch_words(cache, rows, 256, 8, 8, VEC))
    elif FORMAT == 2:
        raw = (fetch_words(cache, rows, 0, 16, 2, 2), fetch_words(cache, rows, 128, 16, 2, 2))
    else:
        ALIGNED: gl.constexpr = 2 if PAGE == 0 else VEC
        raw = (
            fetch_words(cache, rows, 0, 4, 16, ALIGNED),
            fetch_words(cache, rows, 256, 2, 16, ALIGNED),
            fetch_words(cache, rows, 384, 1, 16, ALIGNED),
            fetch_words(cache, rows, 448, 1, 32, ALIGNED),
        )
    return raw


@gluon.jit
def decode_words(raw, scales, tile, START: gl.constexpr, IS_FP4: gl.constexpr):
    """Words [keys, groups, words] with scales [keys, groups of a row] to columns of the tile.

    tile: pairs of bfloat16 as int32 [keys, 256].
    """
    GROUPS: gl.constexpr = raw.shape[1]
    PAIRS: gl.constexpr = raw.shape[2] * (4 if IS_FP4 else 2)
    scale = scales.slice(START // PAIRS, GROUPS, dim=1).load(gl.SliceLayout(2, raw.type.layout))
    factor = e4m3_scale(scale) if IS_FP4 else power_of_two(scale)
    factor, raw = gl.broadcast(gl.expand_dims(factor, 2), raw)
    if IS_FP4:
        a, b, c, d = e2m1_pairs(raw, factor)
        pairs = gl.join(gl.join(a, c), gl.join(b, d))
    else:
        a, b = e4m3_pairs(raw, factor)
        pairs = gl.join(a, b)
    target = tile.slice(START, GROUPS * PAIRS, dim=1)
    target.store(gl.reshape(pairs, (raw.shape[0], GROUPS * PAIRS)))


@gluon.jit
def decode_tile(raw, scales, tile, FORMAT: gl.constexpr):
    """Rows of `fetch_tile` to a tile [keys, 512]; scales: bytes [keys, 32] in shared memory."""
    PAIRED: gl.constexpr = gl.NVMMASharedLayout(128, 32, rank=2)
    pairs = tile._reinterpret(gl.int32, [tile.shape[0], 256], PAIRED)
    if FORMAT == 1:
        decode_words(raw[0], scales, pairs, 0, False)
        decode_words(raw[1], scales, pairs, 128, False)
    elif FORMAT == 2:
        decode_words(raw[0], scales, pairs, 0, True)
        decode_words(raw[1], scales, pairs, 128, True)
    else:
        decode_words(raw[0], scales, pairs, 0, False)
        decode_words(raw[1], scales, pairs, 128, False)
        decode_words(raw[2], scales, pairs, 192, False)
        pairs.slice(224, 32, dim=1).store(gl.reshape(raw[3], (tile.shape[0], 32)))


@gluon.jit
def copy_tile(cache, rows, tile):
    """Start to copy plain rows to a tile [keys, 512]; what is not seen becomes zeros."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [gl.num_warps(), 1], [1, 0])
    row = rows.load(gl.SliceLayout(1, LAYOUT))
    column = gl.arange(0, 512, gl.SliceLayout(0, LAYOUT))
    base = cache.to(gl.pointer_type(gl.bfloat16), bitcast=True)
    here = base + row[:, None] // 2 + column[None, :]
    here = gl.max_contiguous(gl.multiple_of(here, [1, 16]), [1, 8])
    async_copy.async_copy_global_to_shared(tile, here, mask=(row >= 0)[:, None])
