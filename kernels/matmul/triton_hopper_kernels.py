"""The kernels of `kernels.matmul.triton_hopper`."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.hopper import barrier
from kernels.matmul.triton_hopper_tiles import (
    STEP,
    add_products,
    factor_places,
    finish,
    launch_dependents,
    narrow_product,
    narrow_products,
    round_row,
    scale_value,
    wait_for_results,
)

UNSPECIALISED = ["rows", "groups", "slice_steps", "steps_all", "scale_stride"]


@gluon.jit(do_not_specialize=UNSPECIALISED)
def few_rows_fp8_kernel(
    x, x_scales, weight, scales, out, parts, ended,
    rows, groups, outputs, inputs, scale_stride, held, slice_steps, steps_all,
    SIDE: gl.constexpr, GROUP: gl.constexpr, PLANES: gl.constexpr, STEPS: gl.constexpr,
    SLICES: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """x [rows, groups, inputs] . weight [groups, outputs, inputs], tiles of SIDE x SIDE: a slice
    of the inputs, `slice_steps` steps of 128, for ROWS rows and 64 outputs.

    x is one row of bfloat16 where STEPS are given, the most that a slice has, and may be rounded
    to two PLANES; else it is as `quantised` gives it.
    """
    OUT: gl.constexpr = 64
    FACTORS: gl.constexpr = STEP // GROUP
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, 8, rank=2)
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, ROWS, 32])
    COPY: gl.constexpr = gl.BlockedLayout([1, 16], [4, 8], [gl.num_warps(), 1], [1, 0])
    LINE: gl.constexpr = gl.SliceLayout(1, COPY)
    blocks = (outputs + OUT - 1) // OUT
    group = gl.program_id(0) // blocks
    first_column = gl.program_id(0) % blocks * OUT
    first_row = gl.program_id(1) * ROWS
    part = gl.program_id(2)
    start = part * slice_steps
    steps = gl.minimum(slice_steps, steps_all - start)

    HELD: gl.constexpr = STEPS if STEPS else STAGES
    ring = gl.allocate_shared_memory(gl.float8e4nv, [STAGES, OUT, STEP], SWIZZLED)
    tile = gl.allocate_shared_memory(gl.float8e4nv, [HELD * PLANES, ROWS, STEP], SWIZZLED)
    factors = gl.allocate_shared_memory(gl.float32, [HELD, FACTORS, ROWS], PLAIN)
    column = first_column + gl.arange(0, OUT, LINE)
    column = gl.where(column < outputs, column, 0)  # beyond the last: not stored
    at = gl.arange(0, STEP, gl.SliceLayout(0, COPY))
    weights = weight.to(gl.pointer_type(gl.float8e4nv), bitcast=True) + start * STEP
    weights += (group * outputs + column).to(gl.int64)[:, None] * inputs + at[None, :]
    weights = gl.max_contiguous(gl.multiple_of(weights, [1, 16]), [1, 16])
    launch_dependents()
    for t in gl.static_range(STAGES - 1):
        if t < steps:
            async_copy.async_copy_global_to_shared(ring.index(t), weights + t * STEP)
        if STEPS:
            async_copy.commit_group()
    column = first_column + gl.arange(0, OUT, gl.SliceLayout(1, ACC))
    column = gl.where(column < outputs, column, 0)
    tile_row = group * ((outputs + SIDE - 1) // SIDE) + column // SIDE
    if SIDE == 32:  # the scales of a step are one word
        words = scales.to(gl.pointer_type(gl.int32), bitcast=True)
        words += tile_row * (scale_stride // 4) + start
    else:
        words = scales + tile_row * scale_stride + start
    word = gl.load(words).to(gl.int32)
    wait_for_results()

    if STEPS:
        round_row(x, tile, factors, group, start, steps, inputs, PLANES, GROUP)
    else:
        row = first_row + gl.arange(0, ROWS, LINE)
        row = (gl.where(row < rows, row, 0) * groups + group).to(gl.int64)
        values = x.to(gl.pointer_type(gl.float8e4nv), bitcast=True) + start * STEP
        values += row[:, None] * inputs + at[None, :]
        values = gl.max_contiguous(gl.multiple_of(values, [1, 16]), [1, 16])
        places = factor_places(x_scales, start, groups, group, held, first_row, FACTORS, ROWS)
        stride = FACTORS * groups * held
        for t in gl.static_range(STAGES - 1):
            if t < steps:
                async_copy.async_copy_global_to_shared(tile.index(t), values + t * STEP)
                async_copy.async_copy_global_to_shared(factors.index(t), places + t * stride)
            async_copy.commit_group()

    total = gl.zeros([OUT, ROWS], gl.float32, ACC)
    none = gl.zeros([OUT, ROWS], gl.float32, ACC)
    for t in range(steps):
        async_copy.wait_group(STAGES - 2)
        fence_async_shared()
        barrier()
        slot = t % STAGES
        w = ring.index(slot)
        at_x = t if STEPS else slot
        v = tile.index(at_x * PLANES)
        f = factors.index(at_x)
        made = narrow_products(w, v, none) if SIDE == 32 else narrow_product(w, v, none, 0, STEP)
        ahead = t + STAGES - 1
        if ahead < steps:
            to = ahead % STAGES
            async_copy.async_copy_global_to_shared(ring.index(to), weights + ahead * STEP)
            if not STEPS:
                async_copy.async_copy_global_to_shared(tile.index(to), values + ahead * STEP)
                async_copy.async_copy_global_to_shared(factors.index(to), places + ahead * stride)
        async_copy.commit_group()
        s0, s1 = scale_value(word, 0), scale_value(word, 1)
        s2, s3 = scale_value(word, 2), scale_value(word, 3)
        word = gl.load(words + gl.minimum(t + 1, steps - 1)).to(gl.int32)
        x0 = f.slice(0, 1, dim=0).load(ACC)  # [1, ROWS]
        if SIDE == 128:
            total += warpgroup_mma_wait(0, deps=[made]) * (s0[:, None] * x0)
        else:
            if FACTORS == 4:
                x1 = f.slice(1, 1, dim=0).load(ACC)
                x2 = f.slice(2, 1, dim=0).load(ACC)
                x3 = f.slice(3, 1, dim=0).load(ACC)
                xs = (x0, x1, x2, x3)
            else:
                xs = (x0,)
            total = add_products(total, made, (s0, s1, s2, s3), xs)
            if PLANES == 2:
                made = narrow_products(w, tile.index(at_x * PLANES + 1), none)
                total = add_products(total, made, (s0, s1, s2, s3), xs)
    async_copy.wait_group(0)
    finish(
        gl.permute(total, (1, 0)), out, parts, ended, part, rows, groups, group, outputs,
        first_row, first_column, SLICES,
    )  # fmt: skip


@gluon.jit(do_not_specialize=UNSPECIALISED)
def some_rows_fp8_kernel(
    x, x_scales, weight, scales, out, parts, ended,
    rows, groups, outputs, inputs, scale_stride, held, slice_steps, steps_all,
    SLICES: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """As few_rows_fp8_kernel for e4m3 x and tiles of 128 x 128, with rows as the wide side and 128
    outputs.
    """
    OUT: gl.constexpr = 128
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, 8, rank=2)
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, OUT, 32])
    COPY: gl.constexpr = gl.BlockedLayout([1, 16], [4, 8], [gl.num_warps(), 1], [1, 0])
    LINE: gl.constexpr = gl.SliceLayout(1, COPY)
    blocks = (outputs + OUT - 1) // OUT
    group = gl.program_id(0) // blocks
    first_column = gl.program_id(0) % blocks * OUT
    first_row = gl.program_id(1) * ROWS
    part = gl.program_id(2)
    start = part * slice_steps
    steps = gl.minimum(slice_steps, steps_all - start)

    ring = gl.allocate_shared_memory(gl.float8e4nv, [STAGES, OUT, STEP], SWIZZLED)
    tile = gl.allocate_shared_memory(gl.float8e4nv, [STAGES, ROWS, STEP], SWIZZLED)
    factors = gl.allocate_shared_memory(gl.float32, [STAGES, 1, ROWS], PLAIN)
    column = first_column + gl.arange(0, OUT, LINE)
    column = gl.where(column < outputs, column, 0)  # beyond the last: not stored
    at = gl.arange(0, STEP, gl.SliceLayout(0, COPY))
    weights = weight.to(gl.pointer_type(gl.float8e4nv), bitcast=True) + start * STEP
    weights += (group * outputs + column).to(gl.int64)[:, None] * inputs + at[None, :]
    weights = gl.max_contiguous(gl.multiple_of(weights, [1, 16]), [1, 16])
    row = first_row + gl.arange(0, ROWS, LINE)
    row = (gl.where(row < rows, row, 0) * groups + group).to(gl.int64)
    values = x.to(gl.pointer_type(gl.float8e4nv), bitcast=True) + start * STEP
    values += row[:, None] * inputs + at[None, :]
    values = gl.max_contiguous(gl.multiple_of(values, [1, 16]), [1, 16])
    places = factor_places(x_scales, start, groups, group, held, first_row, 1, ROWS)
    stride = groups * held
    launch_dependents()
    for t in gl.static_range(STAGES - 1):
        if t < steps:
            async_copy.async_copy_global_to_shared(ring.index(t), weights + t * STEP)
    tile_row = group * blocks + first_column // OUT
    scales += tile_row * scale_stride + start
    scale = gl.load(scales).to(gl.int32)
    wait_for_results()
    for t in gl.static_range(STAGES - 1):
        if t < steps:
            async_copy.async_copy_global_to_shared(tile.index(t), values + t * STEP)
            async_copy.async_copy_global_to_shared(factors.index(t), places + t * stride)
        async_copy.commit_group()

    total = gl.zeros([ROWS, OUT], gl.float32, ACC)
    none = gl.zeros([ROWS, OUT], gl.float32, ACC)
    for t in range(steps):
        async_copy.wait_group(STAGES - 2)
        fence_async_shared()
        barrier()
        slot = t % STAGES
        side = ring.index(slot).permute((1, 0))
        made = warpgroup_mma(tile.index(slot), side, none, use_acc=False, is_async=True)
        ahead = t + STAGES - 1
        if ahead < steps:
            to = ahead % STAGES
            async_copy.async_copy_global_to_shared(ring.index(to), weights + ahead * STEP)
            async_copy.async_copy_global_to_shared(tile.index(to), values + ahead * STEP)
            async_copy.async_copy_global_to_shared(factors.index(to), places + ahead * stride)
        async_copy.commit_group()
        factor = factors.index(slot).permute((1, 0)).load(ACC) * scale_value(scale, 0)  # [ROWS, 1]
        scale = gl.load(scales + gl.minimum(t + 1, steps - 1)).to(gl.int32)
        total += warpgroup_mma_wait(0, deps=[made]) * factor
    async_copy.wait_group(0)
    finish(
        total, out, parts, ended, part, rows, groups, group, outputs, first_row, first_column,
        SLICES,
    )  # fmt: skip
