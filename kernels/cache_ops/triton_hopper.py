"""Rows of a cache decoded into tiles of shared memory as float16, on Hopper.

e4m3 is converted by the one instruction that Hopper has for it, e2m1 by moving its bits to where
e4m3 has them; both are exact, and so are scales from 2^-22 to 2^7: values of at most 57,344.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def e4m3_pairs(word, factor):
    """The four e4m3 bytes of a word times a pair of factors: two pairs of float16."""
    return gl.inline_asm_elementwise(
        """{
        .reg .b16 p, q;
        .reg .b32 a, b;
        mov.b32 {p, q}, $2;
        cvt.rn.f16x2.e4m3x2 a, p;
        cvt.rn.f16x2.e4m3x2 b, q;
        mul.f16x2 $0, a, $3;
        mul.f16x2 $1, b, $3;
        }""",
        "=&r,=&r,r,r",
        [word, factor],
        dtype=(gl.int32, gl.int32),
        is_pure=True,
        pack=1,
    )


@gluon.jit
def e2m1_pairs(word, factor):
    """The eight e2m1 values of a word times a pair of factors: four pairs of float16.

    An e2m1 value is 2^6 times the e4m3 one with its bits; the factor has that.
    """
    return gl.inline_asm_elementwise(
        """{
        .reg .b16 p, q;
        .reg .b32 a, b, l, h, t;
        shl.b32 t, $4, 2;
        and.b32 t, t, 0x1c1c1c1c;
        shl.b32 l, $4, 4;
        lop3.b32 l, l, 0x80808080, t, 0xEA;
        shr.u32 h, $4, 2;
        and.b32 h, h, 0x1c1c1c1c;
        lop3.b32 h, $4, 0x80808080, h, 0xEA;
        prmt.b32 a, l, h, 0x5140;
        prmt.b32 b, l, h, 0x7362;
        mov.b32 {p, q}, a;
        cvt.rn.f16x2.e4m3x2 l, p;
        cvt.rn.f16x2.e4m3x2 h, q;
        mul.f16x2 $0, l, $5;
        mul.f16x2 $1, h, $5;
        mov.b32 {p, q}, b;
        cvt.rn.f16x2.e4m3x2 l, p;
        cvt.rn.f16x2.e4m3x2 h, q;
        mul.f16x2 $2, l, $5;
        mul.f16x2 $3, h, $5;
        }""",
        "=&r,=&r,=&r,=&r,r,r",
        [word, factor],
        dtype=(gl.int32, gl.int32, gl.int32, gl.int32),
        is_pure=True,
        pack=1,
    )


@gluon.jit
def plain_pairs(word):
    """A pair of bfloat16 as one of float16."""
    return gl.inline_asm_elementwise(
        """{
        .reg .b32 l, h;
        .reg .f32 x, y;
        shl.b32 l, $1, 16;
        and.b32 h, $1, 0xffff0000;
        mov.b32 x, l;
        mov.b32 y, h;
        cvt.rn.f16x2.f32 $0, y, x;
        }""",
        "=&r,r",
        [word],
        dtype=gl.int32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def power_of_two(scale):
    """A pair of float16 of ue8m0 bytes; 255 is NaN."""
    u = scale.to(gl.int32)
    return gl.inline_asm_elementwise(
        """{
        .reg .f32 x;
        mov.b32 x, $1;
        cvt.rn.f16x2.f32 $0, x, x;
        }""",
        "=&r,r",
        [gl.where(u == 255, 0x7FC00000, u << 23)],
        dtype=gl.int32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def e4m3_scale(scale):
    """A pair of float16 of e4m3 bytes, times 2^6 for `e2m1_pairs`."""
    return gl.inline_asm_elementwise(
        """{
        .reg .b16 p, q;
        .reg .b32 t;
        prmt.b32 t, $1, 0, 0x0000;
        mov.b32 {p, q}, t;
        cvt.rn.f16x2.e4m3x2 t, p;
        mul.f16x2 $0, t, $2;
        }""",
        "=&r,r,r",
        [scale.to(gl.int32), 0x54005400],
        dtype=gl.int32,
        is_pure=True,
        pack=1,
    )


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
    elif FORMAT == 0:
        raw = (fetch_words(cache, rows, 512 * HALF, 128, VEC, 16),)
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
    IS_FP4: gl.constexpr,
):  # fmt: skip
    """Words [keys, words] to columns START on of a tile, pairs of float16 as int32 [keys, 128].

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
        a, b, c, d = e2m1_pairs(grouped, factor)
        pairs = gl.join(gl.join(a, c), gl.join(b, d))
    else:
        a, b = e4m3_pairs(grouped, factor)
        pairs = gl.join(a, b)
    target = tile if tile.shape[1] == PAIRS else tile.slice(START, PAIRS, dim=1)
    target.store(gl.reshape(pairs, (KEYS, PAIRS)))


@gluon.jit
def decode_half(raw, scales, tile, FORMAT: gl.constexpr, HALF: gl.constexpr):
    """Rows of `fetch_half` to a tile of float16 [keys, 256]."""
    PAIRED: gl.constexpr = gl.NVMMASharedLayout(128, 32, rank=2)
    pairs = tile._reinterpret(gl.int32, [tile.shape[0], 128], PAIRED)
    if FORMAT == 1:
        decode_words(raw[0], scales, pairs, 0, 8 * HALF, 8, False)
    elif FORMAT == 2:
        decode_words(raw[0], scales, pairs, 0, 16 * HALF, 2, True)
    elif FORMAT == 0:
        pairs.store(plain_pairs(raw[0]))
    elif HALF == 0:
        decode_words(raw[0], scales, pairs, 0, 0, 16, False)
    else:
        decode_words(raw[0], scales, pairs, 0, 4, 16, False)
        decode_words(raw[1], scales, pairs, 64, 6, 16, False)
        pairs.slice(96, 32, dim=1).store(plain_pairs(raw[2]))
