"""Rows of a cache decoded into tiles of shared memory, on Hopper.

Bits are moved to where bfloat16 has them, or looked up, and multiplied by powers of two or scales,
two values an instruction: exact, as bfloat16 has room for the digits of every packing. The
conversions that Hopper has for e4m3 take four times as long.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

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
        "=&r,=&r,r,r,r",
        [word, factor, 0x7B807B80],  # 2^120 twice
        dtype=(gl.int32, gl.int32),
        is_pure=True,
        pack=1,
    )


@gluon.jit
def e4m3_apart(word, factor):
    """The same as the pairs of first and third, second and fourth: two moves less."""
    return gl.inline_asm_elementwise(
        """{
        .reg .b32 a, b, c;
        shl.b32 a, $2, 4;
        shr.u32 b, $2, 4;
        shl.b32 c, $2, 8;
        and.b32 a, a, 0x07f007f0;
        and.b32 b, b, 0x07f007f0;
        lop3.b32 a, c, 0x80008000, a, 0xEA;
        lop3.b32 b, $2, 0x80008000, b, 0xEA;
        mul.bf16x2 a, a, $4;
        mul.bf16x2 b, b, $4;
        mul.bf16x2 $0, a, $3;
        mul.bf16x2 $1, b, $3;
        }""",
        "=&r,=&r,r,r,r",
        [word, factor, 0x7B807B80],  # 2^120 twice
        dtype=(gl.int32, gl.int32),
        is_pure=True,
        pack=1,
    )


@gluon.jit
def e2m1_pairs(word, factor, FIRST: gl.constexpr, SECOND: gl.constexpr):
    """The eight e2m1 values of a word times a pair of factors: four pairs of bfloat16.

    Without its sign, a value is one of eight: both its bytes are looked up, four values at once.
    FIRST and SECOND say which bytes of these, and of those, make the pairs of four values.
    """
    return gl.inline_asm_elementwise(
        """{
        .reg .b32 m, g, s, x, y, p, q;
        and.b32 m, $4, 0x77777777;
        shl.b32 g, $4, 4;
        prmt.b32 x, 0x3f3f3f00, 0x40404040, m;
        prmt.b32 y, 0xc0800000, 0xc0804000, m;
        prmt.b32 s, g, $4, 0x5140;
        lop3.b32 x, s, 0x80808080, x, 0xEA;
        prmt.b32 p, y, x, $6;
        prmt.b32 q, y, x, $7;
        mul.bf16x2 $0, p, $5;
        mul.bf16x2 $1, q, $5;
        shr.u32 m, m, 16;
        prmt.b32 x, 0x3f3f3f00, 0x40404040, m;
        prmt.b32 y, 0xc0800000, 0xc0804000, m;
        prmt.b32 s, g, $4, 0x7362;
        lop3.b32 x, s, 0x80808080, x, 0xEA;
        prmt.b32 p, y, x, $6;
        prmt.b32 q, y, x, $7;
        mul.bf16x2 $2, p, $5;
        mul.bf16x2 $3, q, $5;
        }""",
        "=&r,=&r,=&r,=&r,r,r,r,r",
        [word, factor, FIRST, SECOND],
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


@gluon.jit
def apart(values):
    """Of each four columns the second and third change places; twice is nothing."""
    ROWS: gl.constexpr = values.shape[0]
    COLUMNS: gl.constexpr = values.shape[1]
    fours = gl.reshape(values, (ROWS, COLUMNS // 4, 2, 2))
    return gl.reshape(gl.permute(fours, (0, 1, 3, 2)), (ROWS, COLUMNS))


@gluon.jit
def words_apart(words):
    """`apart` of pairs of bfloat16 as int32."""
    ROWS: gl.constexpr = words.shape[0]
    WORDS: gl.constexpr = words.shape[1]
    first, second = gl.split(gl.reshape(words, (ROWS, WORDS // 2, 2)))
    low = (first & 0xFFFF) | (second << 16)
    high = ((first >> 16) & 0xFFFF) | (second & -65536)
    return gl.convert_layout(gl.reshape(gl.join(low, high), (ROWS, WORDS)), words.type.layout)


@gluon.constexpr_function
def words_layout(keys: int, words: int, vector: int, bits: int, warps: int) -> gl.BlockedLayout:
    """[keys, words], `vector` words for a thread, which become 16 / `bits` as many.

    Eight threads whose values make 128 bytes of one or two rows, or four of two, find each bank
    of the swizzled tile once.
    """
    across = max(1, 32 // (vector * 16 // bits))  # threads for 128 bytes of values
    down = min(32 // across, max(keys // warps, 1))
    return gl.BlockedLayout([1, vector], [down, 32 // down], [warps, 1], [1, 0])


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
    cache, rows, START: gl.constexpr, WORDS: gl.constexpr, VEC: gl.constexpr, BITS: gl.constexpr
):
    """int32 [keys, WORDS] of each row from byte START on, zeros where it is not seen."""
    KEYS: gl.constexpr = rows.shape[0]
    LAYOUT: gl.constexpr = words_layout(KEYS, WORDS, VEC, BITS, gl.num_warps())
    row = rows.load(gl.SliceLayout(1, LAYOUT))
    word = gl.arange(0, WORDS, gl.SliceLayout(0, LAYOUT))
    base = cache.to(gl.pointer_type(gl.int32), bitcast=True)
    here = base + ((row + START) >> 2)[:, None] + word[None, :]
    here = gl.max_contiguous(gl.multiple_of(here, [1, 4 * VEC]), [1, VEC])
    return gl.load(here, mask=(row >= 0)[:, None], other=0)


@gluon.jit
def fetch_half(
    cache, rows, FORMAT: gl.constexpr, PAGE: gl.constexpr, VEC: gl.constexpr, HALF: gl.constexpr
):
    """256 values of each row as they lie, in registers. rows: int64 [keys] in shared memory."""
    if FORMAT == 1:
        raw = (fetch_words(cache, rows, 256 * HALF, 64, VEC, 8),)
    elif FORMAT == 2:
        raw = (fetch_words(cache, rows, 128 * HALF, 32, VEC, 4),)
    else:
        ALIGNED: gl.constexpr = 2 if PAGE == 0 else VEC
        if HALF == 0:
            raw = (fetch_words(cache, rows, 0, 64, ALIGNED, 8),)
        else:
            raw = (
                fetch_words(cache, rows, 256, 32, ALIGNED, 8),
                fetch_words(cache, rows, 384, 16, ALIGNED, 8),
                fetch_words(cache, rows, 448, 32, ALIGNED, 16),
            )
    return raw


@gluon.jit
def decode_words(
    raw, scales, tile, START: gl.constexpr, FIRST: gl.constexpr, GROUP: gl.constexpr,
    IS_FP4: gl.constexpr, IS_APART: gl.constexpr,
):  # fmt: skip
    """Words [keys, words] to columns START on of a tile, pairs of bfloat16 as int32 [keys, 128].

    scales: bytes of shared memory [keys, groups of a row], of which FIRST is that of the first
    group; GROUP: words of a group.
    """
    KEYS: gl.constexpr = raw.shape[0]
    GROUPS: gl.constexpr = raw.shape[1] // GROUP
    PAIRS: gl.constexpr = raw.shape[1] * (4 if IS_FP4 else 2)
    grouped = gl.reshape(raw, (KEYS, GROUPS, GROUP))
    scale = scales.slice(FIRST, GROUPS, dim=1).load(gl.SliceLayout(2, grouped.type.layout))
    factor = e4m3_scale(scale) if IS_FP4 else power_of_two(scale)
    factor, grouped = gl.broadcast(gl.expand_dims(factor, 2), grouped)
    if IS_FP4:
        if IS_APART:
            a, b, c, d = e2m1_pairs(grouped, factor, 0x6240, 0x7351)
        else:
            a, b, c, d = e2m1_pairs(grouped, factor, 0x5140, 0x7362)
        pairs = gl.join(gl.join(a, c), gl.join(b, d))
    else:
        a, b = e4m3_apart(grouped, factor) if IS_APART else e4m3_pairs(grouped, factor)
        pairs = gl.join(a, b)
    target = tile if tile.shape[1] == PAIRS else tile.slice(START, PAIRS, dim=1)
    target.store(gl.reshape(pairs, (KEYS, PAIRS)))


@gluon.jit
def decode_half(
    raw, scales, tile, FORMAT: gl.constexpr, HALF: gl.constexpr, IS_APART: gl.constexpr
):
    """Rows of `fetch_half` to a tile of bfloat16 [keys, 256], IS_APART: see `apart`."""
    PAIRED: gl.constexpr = gl.NVMMASharedLayout(128, 32, rank=2)
    pairs = tile._reinterpret(gl.int32, [tile.shape[0], 128], PAIRED)
    if FORMAT == 1:
        decode_words(raw[0], scales, pairs, 0, 8 * HALF, 8, False, IS_APART)
    elif FORMAT == 2:
        decode_words(raw[0], scales, pairs, 0, 16 * HALF, 2, True, IS_APART)
    elif HALF == 0:
        decode_words(raw[0], scales, pairs, 0, 0, 16, False, IS_APART)
    else:
        decode_words(raw[0], scales, pairs, 0, 4, 16, False, IS_APART)
        decode_words(raw[1], scales, pairs, 64, 6, 16, False, IS_APART)
        pairs.slice(96, 32, dim=1).store(words_apart(raw[2]) if IS_APART else raw[2])


@gluon.jit
def copy_half(cache, rows, tile, VEC: gl.constexpr, HALF: gl.constexpr, IS_APART: gl.constexpr):
    """256 values of plain rows to a tile of bfloat16 [keys, 256], in two parts."""
    PAIRED: gl.constexpr = gl.NVMMASharedLayout(128, 32, rank=2)
    pairs = tile._reinterpret(gl.int32, [tile.shape[0], 128], PAIRED)
    for part in gl.static_range(2):
        raw = fetch_words(cache, rows, 512 * HALF + 256 * part, 64, VEC, 16)
        pairs.slice(64 * part, 64, dim=1).store(words_apart(raw) if IS_APART else raw)
