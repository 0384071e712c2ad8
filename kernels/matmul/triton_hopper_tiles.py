"""Tiles of fp8 products on Hopper: rounded, multiplied, scaled and added up.

Matrix instructions read e4m3 from shared memory and add 32 inputs, to about 14 bits; those sums
are added in float32, each times the scale of its weights and of its inputs, so that neither is
ever unpacked. Such a sum is the same in every shape of the instruction. Written in Gluon, which
the interpreter does not run: `kernels.matmul.triton_packed` is the same computation for every
other device, and `python -m kernels.check` holds both on a device.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait

from kernels.hopper import barrier

STEP = gl.constexpr(128)  # inputs of a tile: as wide as shared memory is swizzled


@gluon.jit
def launch_dependents():
    """What follows may be launched, and waits for the end."""
    gl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; mov.u32 $0, 0;",
        "=r",
        [],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def wait_for_results():
    """What came before has ended, and its results are seen."""
    gl.inline_asm_elementwise(
        "griddepcontrol.wait; mov.u32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def scale_value(word, WHICH: gl.constexpr):
    """A ue8m0 byte of a word as float32; 0 is 0, which in float32 it nearly is."""
    byte = (word >> (8 * WHICH)) & 255
    return gl.where(byte == 255, 0x7FC00000, byte << 23).to(gl.float32, bitcast=True)


@gluon.jit
def power_of_two(exponent):
    """As in kernels.quantize.triton_operands."""
    value = (exponent << 23).to(gl.float32, bitcast=True)
    return gl.where(exponent == 255, float("nan"), value)


@gluon.jit
def round_row(
    x, tile, factors, group, start, steps, inputs, PLANES: gl.constexpr, GROUP: gl.constexpr
):
    """A row of bfloat16 x [groups, inputs], from step `start` on, as e4m3 in the first rows of
    tiles [STEPS * PLANES, ROWS, STEP], and its scales in factors [STEPS, STEP / GROUP, ROWS].

    PLANES 2: the second has what rounding left of a value; together they are bfloat16, to 2^-18
    of the largest of a group. Everything at once, since a store to shared memory is a barrier for
    what is loaded.
    """
    STEPS: gl.constexpr = factors.shape[0]
    GROUPS: gl.constexpr = STEP // GROUP
    INNER: gl.constexpr = GROUP // 8
    LAYOUT: gl.constexpr = gl.BlockedLayout(
        [1, 1, 8], [32 // (INNER * GROUPS), GROUPS, INNER], [gl.num_warps(), 1, 1], [2, 1, 0]
    )
    BY_INPUT: gl.constexpr = gl.SliceLayout(0, LAYOUT)
    step = gl.arange(0, STEPS, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT)))
    number = gl.arange(0, GROUPS, gl.SliceLayout(1, BY_INPUT))
    at = number[:, None] * GROUP + gl.arange(0, GROUP, gl.SliceLayout(0, BY_INPUT))[None, :]
    here = x + group.to(gl.int64) * inputs + start * STEP
    here += (step * STEP)[:, None, None] + at[None, :, :]
    here = gl.max_contiguous(gl.multiple_of(here, [1, 1, 16]), [1, 1, 8])
    value = gl.load(here, mask=(step < steps)[:, None, None], other=0.0).to(gl.float32)
    most = gl.max(gl.abs(value), 2)  # [STEPS, GROUPS]
    is_finite = most < float("inf")
    bits = (gl.where(most < 1e-4, 1e-4, most) * 0.002232142857142857).to(gl.int32, bitcast=True)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(gl.int32)  # see group_exponents
    exponent = gl.where(is_finite, exponent, 255)
    scaled = value * power_of_two(gl.where(exponent == 255, 255, 254 - exponent))[:, :, None]
    high = scaled.to(gl.float8e4nv)
    store_plane(tile, high, 0, PLANES)
    if PLANES == 2:
        store_plane(tile, (scaled - high.to(gl.float32)).to(gl.float8e4nv), 1, PLANES)
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    lines = factors._reinterpret(gl.float32, [STEPS * GROUPS, factors.shape[2]], PLAIN)
    lines.slice(0, 1, dim=1).store(gl.reshape(power_of_two(exponent), (STEPS * GROUPS, 1)))


@gluon.jit
def store_plane(tile, values, PLANE: gl.constexpr, PLANES: gl.constexpr):
    """Values [STEPS, groups, group] to one plane of tiles [STEPS * PLANES, ROWS, STEP], whose
    first rows are not swizzled.
    """
    STEPS: gl.constexpr = values.shape[0]
    SIZE: gl.constexpr = tile.shape[1] * STEP
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    lines = tile._reinterpret(gl.float8e4nv, [STEPS, PLANES * SIZE], PLAIN)
    lines.slice(PLANE * SIZE, STEP, dim=1).store(gl.reshape(values, (STEPS, STEP)))


@gluon.jit
def factor_places(
    factors, start, groups, group, held, first_row, FACTORS: gl.constexpr, ROWS: gl.constexpr
):
    """Where the scales [FACTORS, ROWS] of step `start` lie in [inputs / group, groups, held]."""
    LAYOUT: gl.constexpr = gl.BlockedLayout(
        [1, 4], [FACTORS, 32 // FACTORS], [1, gl.num_warps()], [1, 0]
    )
    factor = start * FACTORS + gl.arange(0, FACTORS, gl.SliceLayout(1, LAYOUT))
    at = first_row + gl.arange(0, ROWS, gl.SliceLayout(0, LAYOUT))
    here = factors + ((factor * groups + group)[:, None] * held + at[None, :])
    return gl.max_contiguous(gl.multiple_of(here, [1, 16]), [1, 4])


@gluon.jit
def narrow_product(w, x, none, START: gl.constexpr, WIDE: gl.constexpr):
    """Start the product of some inputs of a tile [OUT, STEP] as the wide side with rows."""
    side = x.slice(START, WIDE, dim=1).permute((1, 0))
    return warpgroup_mma(w.slice(START, WIDE, dim=1), side, none, use_acc=False, is_async=True)


@gluon.jit
def narrow_products(w, x, none):
    """Start those of four times 32 inputs."""
    p0 = narrow_product(w, x, none, 0, 32)
    p1 = narrow_product(w, x, none, 32, 32)
    p2 = narrow_product(w, x, none, 64, 32)
    p3 = narrow_product(w, x, none, 96, 32)
    return p0, p1, p2, p3


@gluon.jit
def add_products(total, parts, scales, factors):
    """total + products times their scales [OUT] and those of the rows [1, ROWS]: four of each, or
    one of the rows for all.
    """
    p0, p1, p2, p3 = warpgroup_mma_wait(0, deps=parts)
    s0, s1, s2, s3 = scales
    if len(factors) == 1:
        inner = p0 * s0[:, None] + p1 * s1[:, None]
        inner += p2 * s2[:, None]
        inner += p3 * s3[:, None]
        total += inner * factors[0]
    else:
        x0, x1, x2, x3 = factors
        total += p0 * (s0[:, None] * x0)
        total += p1 * (s1[:, None] * x1)
        total += p2 * (s2[:, None] * x2)
        total += p3 * (s3[:, None] * x3)
    return total


@gluon.jit
def finish(
    total, out, parts, ended, part, rows, groups, group, outputs, first_row, first_column,
    SLICES: gl.constexpr,
):  # fmt: skip
    """Store sums [ROWS, OUT] to out [rows, groups, outputs]. Of slices of the inputs, the last
    program of a tile to end adds parts [SLICES, rows, groups, outputs] in their order; `ended`
    counts programs, a number for each tile, and is 0 before and after.
    """
    STORED: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [gl.num_warps(), 1], [1, 0])
    done = gl.convert_layout(total, STORED)
    row = first_row + gl.arange(0, total.shape[0], gl.SliceLayout(1, STORED))
    column = first_column + gl.arange(0, total.shape[1], gl.SliceLayout(0, STORED))
    place = (row * groups + group).to(gl.int64)[:, None] * outputs + column[None, :]
    inside = (row < rows)[:, None] & (column < outputs)[None, :]
    if SLICES == 1:
        gl.store(out + place, done.to(gl.bfloat16), mask=inside)
    else:
        size = (rows * groups).to(gl.int64) * outputs
        gl.store(parts + (part * size + place), done, mask=inside)
        barrier()  # all that the program stored is before what it adds
        counter = ended + gl.program_id(1) * gl.num_programs(0) + gl.program_id(0)
        before = gl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
        if before == SLICES - 1:
            gl.store(counter, 0)
            done = gl.zeros_like(done)
            for i in gl.static_range(SLICES):
                # Other programs wrote them: not from the cache of this processor.
                done += gl.load(
                    parts + (i * size + place), mask=inside, other=0.0, cache_modifier=".cg"
                )
            gl.store(out + place, done.to(gl.bfloat16), mask=inside)
