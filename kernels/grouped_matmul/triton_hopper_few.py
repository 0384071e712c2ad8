"""mxfp4 experts with few rows each on Hopper: e4m3 matrix instructions, sums scaled in float32.

A matrix instruction takes weights from registers at one rate, however few rows they meet: of e4m3
it takes twice as many as of bfloat16, and to unpack one takes less than half the work. Weights are
e4m3 values over 2^6 without their scales, activations e4m3 codes without theirs: each group of 32
inputs is one instruction, whose sums are multiplied by both scales and added in float32.

Written in Gluon, which the interpreter does not run: `kernels.grouped_matmul.triton_packed` is
the same computation for every other device, and `python -m kernels.check` holds both on a device.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait

from kernels.cache_ops.triton_hopper import barrier
from kernels.grouped_matmul.triton_hopper_stores import group_powers

COLUMNS = gl.constexpr(128)  # of weights, of a program: 64 of each of two matrices, or of one
HALF = gl.constexpr(64)
UNDO = gl.constexpr(64.0)


@gluon.constexpr_function
def sum_layout(rows, warps):
    """Of sums [COLUMNS, rows]."""
    return gl.NVMMADistributedLayout([3, 0], [warps, 1], [16, rows, 32])


@gluon.constexpr_function
def byte_layout(warps):
    """[COLUMNS, 64] bytes as matrix instructions take them, 16 bytes of a row each."""
    registers = [[0, 1], [0, 2], [8, 0], [0, 16], [0, 32]]
    columns = [[16, 0], [32, 0], [64, 0]]
    held = 2 if warps == 4 else 3
    lanes = [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]]
    return gl.DistributedLinearLayout(
        registers + columns[held:], lanes, columns[:held], [], [128, 64]
    )


@gluon.constexpr_function
def share_layout(rows, warps):
    """[1, rows] as a row of sums."""
    registers = [[0, 1]] + [[0, 8 << i] for i in range((rows // 8).bit_length() - 1)]
    lanes = [[0, 2], [0, 4], [0, 0], [0, 0], [0, 0]]
    return gl.DistributedLinearLayout(
        registers, lanes, [[0, 0]] * (2 if warps == 4 else 3), [], [1, rows]
    )


@gluon.constexpr_function
def powers_end(most):
    """The powers of two to `most`, itself one, are those of less than this."""
    return most.bit_length()


@gluon.jit
def halves(x):
    """x [A, B] as two of [A, B / 2]."""
    return gl.split(gl.permute(gl.reshape(x, (x.shape[0], 2, x.shape[1] // 2)), (0, 2, 1)))


@gluon.jit
def operand(byte, ROWS: gl.constexpr):
    """16 bytes of each row as 32 e4m3 values over UNDO: low nibbles, then high ones."""
    low, high = gl.inline_asm_elementwise(
        """{
        .reg .b32 a, b;
        shl.b32 a, $2, 4;
        shl.b32 b, $2, 2;
        and.b32 b, b, 0x1C1C1C1C;
        lop3.b32 $0, a, 0x80808080, b, 0xEA;
        shr.u32 b, $2, 2;
        and.b32 b, b, 0x1C1C1C1C;
        lop3.b32 $1, $2, 0x80808080, b, 0xEA;
        }""",
        "=&r,=&r,r",
        [byte],
        dtype=(gl.int8, gl.int8),
        is_pure=True,
        pack=4,
    )
    both = gl.reshape(gl.permute(gl.join(low, high), (0, 2, 1)), (byte.shape[0], 32))
    layout: gl.constexpr = gl.DotOperandLayout(0, sum_layout(ROWS, gl.num_warps()), 4)
    return gl.convert_layout(both.to(gl.float8e4nv, bitcast=True), layout, assert_trivial=True)


@gluon.jit
def started(word, x, c: gl.constexpr, ROWS: gl.constexpr):
    """The product of the c-th group of a tile of four, not waited for."""
    zero = gl.zeros([COLUMNS, ROWS], gl.float32, sum_layout(ROWS, gl.num_warps()))
    y = x.slice(32 * c, 32, dim=1).permute((1, 0))
    return warpgroup_mma(operand(word, ROWS), y, zero, use_acc=False, is_async=True)


@gluon.jit
def added(total, part, scale, share, stage, g: gl.constexpr, ROWS: gl.constexpr):
    """total + part times the scales of group g: ue8m0 bytes of words, and float32."""
    SUMS: gl.constexpr = sum_layout(ROWS, gl.num_warps())
    held = share.index(stage).slice(g, 1, dim=0).slice(0, ROWS, dim=1)
    held = gl.reshape(held.load(share_layout(ROWS, gl.num_warps())), (ROWS,))
    held = gl.convert_layout(held, gl.SliceLayout(0, SUMS), assert_trivial=True)
    bits = scale >> 1 if g % 4 == 3 else scale << (23 - g % 4 * 8)
    factor = (bits & 0x7F800000).to(gl.float32, bitcast=True)  # of 255 infinite
    return total + part * factor[:, None] * held[None, :]


@gluon.jit
def tile_of(unit, blocks, table, MOST: gl.constexpr):
    """Expert, first place, end and block of columns of a unit of work."""
    tile = unit // blocks
    start = gl.load(table[1] + tile)
    end = gl.minimum(gl.load(table[2] + tile), start + MOST)
    return gl.load(table[0] + tile).to(gl.int64), start, end, unit - tile * blocks


@gluon.jit
def sources(unit, given, IS_UP: gl.constexpr, GROUPS: gl.constexpr, MOST: gl.constexpr):
    """Where the first stage of a unit lies."""
    blocks, table, packed, scales, codes, shares, order, per_row, inputs, outputs = given
    WARPS: gl.constexpr = gl.num_warps()
    BYTES: gl.constexpr = gl.BlockedLayout([1, 16], [8, 4], [WARPS, 1], [1, 0])
    SCALES: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    CODES: gl.constexpr = gl.BlockedLayout([1, 16], [4, 8], [WARPS, 1], [1, 0])
    SHARES: gl.constexpr = gl.BlockedLayout([1, 1], [GROUPS, 32 // GROUPS], [1, WARPS], [0, 1])
    expert, start, end, block = tile_of(unit, blocks, table, MOST)
    if IS_UP:
        first, gap, before = block * HALF, outputs, expert * (outputs * 2).to(gl.int64)
    else:
        first, gap, before = block * COLUMNS, outputs * 0 + HALF, expert * outputs.to(gl.int64)
    # Eight columns of one matrix, then eight of the other: a thread has both of a column.
    line = gl.arange(0, COLUMNS, gl.SliceLayout(1, BYTES))
    line = first + line // 8 % 2 * gap + line // 16 * 8 + line % 8
    byte = gl.arange(0, 64, gl.SliceLayout(0, BYTES))
    here = packed + before * (inputs // 2) + (line[:, None] * (inputs // 2) + byte[None, :])
    line = gl.arange(0, COLUMNS, SCALES)
    line = first + line // 8 % 2 * gap + line // 16 * 8 + line % 8
    scale_here = scales + before * (inputs // 128) + line * (inputs // 128)
    place = start + gl.arange(0, MOST, gl.SliceLayout(1, CODES))
    share_place = start + gl.arange(0, MOST, gl.SliceLayout(0, SHARES))
    inside, share_inside = place < end, share_place < end
    if IS_UP:
        place = gl.load(order + place, mask=inside, other=0) // per_row
        share_place = gl.load(order + share_place, mask=share_inside, other=0) // per_row
    at = gl.arange(0, 128, gl.SliceLayout(0, CODES))
    x_here = codes + place.to(gl.int64)[:, None] * inputs + at[None, :]
    at = gl.arange(0, GROUPS, gl.SliceLayout(1, SHARES))
    share_here = shares + share_place.to(gl.int64)[None, :] * (inputs // 32) + at[:, None]
    here = gl.max_contiguous(gl.multiple_of(here, [1, 16]), [1, 16])
    x_here = gl.max_contiguous(gl.multiple_of(x_here, [1, 16]), [1, 16])
    return here, scale_here, x_here, share_here, inside[:, None], share_inside[None, :]


@gluon.jit
def fetch(here, scale_here, x_here, share_here, inside, share_inside, rings, stage):
    """Start to copy a stage."""
    words, scales, x, shares = rings
    for i in gl.static_range(len(words)):
        async_copy.async_copy_global_to_shared(words[i].index(stage), here + 64 * i)
    for i in gl.static_range(len(words)):
        async_copy.async_copy_global_to_shared(scales[i].index(stage), scale_here + i)
    for i in gl.static_range(len(words)):
        async_copy.async_copy_global_to_shared(x[i].index(stage), x_here + 128 * i, mask=inside)
    async_copy.async_copy_global_to_shared(shares.index(stage), share_here, mask=share_inside)


@gluon.jit
def multiply(
    state, given, rings, units, done, ROWS: gl.constexpr, IS_UP: gl.constexpr,
    STAGES: gl.constexpr, GROUPS: gl.constexpr, MOST: gl.constexpr,
):  # fmt: skip
    """Sums [64, ROWS] of two matrices, and what is copied next: it may be of a later unit."""
    ahead, at_step, here, scale_here, x_here, share_here, inside, share_inside = state
    words, scales, x, shares = rings
    SUMS: gl.constexpr = sum_layout(ROWS, gl.num_warps())
    steps = given[8] // (32 * GROUPS)
    total = gl.zeros([COLUMNS, ROWS], gl.float32, SUMS)
    for step in range(steps):
        stage = (done + step) % STAGES
        async_copy.wait_group(STAGES - 2)
        barrier()
        if ahead < units:
            to = (done + step + STAGES - 1) % STAGES
            fetch(here, scale_here, x_here, share_here, inside, share_inside, rings, to)
            here += 16 * GROUPS
            scale_here += GROUPS // 4
            x_here += 32 * GROUPS
            share_here += GROUPS
            at_step += 1
            if at_step == steps:
                at_step = 0
                ahead += gl.num_programs(0)
                if ahead < units:
                    here, scale_here, x_here, share_here, inside, share_inside = sources(
                        ahead, given, IS_UP, GROUPS, MOST
                    )
        async_copy.commit_group()
        for h in gl.static_range(GROUPS // 4):
            a, b = halves(words[h].index(stage).load(byte_layout(gl.num_warps())))
            word = halves(a) + halves(b)
            scale = scales[h].index(stage).load(gl.SliceLayout(1, SUMS))
            y = x[h].index(stage).slice(0, ROWS, dim=0)
            p = started(word[0], y, 0, ROWS)
            q = started(word[1], y, 1, ROWS)
            if ROWS <= 16:  # there are registers for four sums
                u = started(word[2], y, 2, ROWS)
                v = started(word[3], y, 3, ROWS)
                p, q = warpgroup_mma_wait(2, (p, q))
                total = added(total, p, scale, shares, stage, 4 * h, ROWS)
                total = added(total, q, scale, shares, stage, 4 * h + 1, ROWS)
            else:
                p = warpgroup_mma_wait(1, (p,))
                total = added(total, p, scale, shares, stage, 4 * h, ROWS)
                q = warpgroup_mma_wait(0, (q,))
                total = added(total, q, scale, shares, stage, 4 * h + 1, ROWS)
                u = started(word[2], y, 2, ROWS)
                v = started(word[3], y, 3, ROWS)
                u = warpgroup_mma_wait(1, (u,))
            if ROWS <= 16:
                u, v = warpgroup_mma_wait(0, (u, v))
            total = added(total, u, scale, shares, stage, 4 * h + 2, ROWS)
            if ROWS > 16:
                v = warpgroup_mma_wait(0, (v,))
            total = added(total, v, scale, shares, stage, 4 * h + 3, ROWS)
    total = gl.where(gl.abs(total) == float("inf"), float("nan"), total * UNDO)
    one, two = gl.split(gl.permute(gl.reshape(total, (COLUMNS // 16, 2, 8, ROWS)), (0, 2, 3, 1)))
    one, two = gl.reshape(one, (HALF, ROWS)), gl.reshape(two, (HALF, ROWS))
    return one, two, ahead, at_step, here, scale_here, x_here, share_here, inside, share_inside


@gluon.jit
def store_gated(
    gate, up, weights, order, start, end, first, out, out_shares, outputs, limit,
    ROWS: gl.constexpr,
):  # fmt: skip
    """weight * swiglu in e4m3 codes and scales of 32, as the next product takes its inputs."""
    at = start + gl.arange(0, ROWS, gl.SliceLayout(0, gate.type.layout))
    pair = gl.load(order + at, mask=at < end, other=0)
    weight = gl.load(weights + pair, mask=at < end, other=0.0)
    # Comparisons, so that a NaN stays one.
    gate = gl.where(gate > limit, limit, gate)
    up = gl.where(up > limit, limit, gl.where(up < -limit, -limit, up))
    y = gate / (1.0 + gl.exp(-gate)) * up * weight[None, :]
    groups = gl.reshape(y.to(gl.bfloat16).to(gl.float32), (2, 32, ROWS))
    power, down = group_powers(gl.max(gl.abs(groups), 1))
    code = (groups * gl.expand_dims(down, 1)).to(gl.float8e4nv).to(gl.int8, bitcast=True)
    # Even columns of a group, then odd ones.
    code = gl.permute(gl.reshape(code, (2, 16, 2, ROWS)), (3, 0, 2, 1))
    STORED: gl.constexpr = gl.BlockedLayout([1, 16], [8, 4], [gl.num_warps(), 1], [1, 0])
    code = gl.convert_layout(gl.reshape(code, (ROWS, 64)), STORED)
    place = start + gl.arange(0, ROWS, gl.SliceLayout(1, STORED))
    column = first + gl.arange(0, 64, gl.SliceLayout(0, STORED))
    to = out + place.to(gl.int64)[:, None] * outputs + column[None, :]
    gl.store(to, code, mask=(place < end)[:, None])
    TWO: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [1, gl.num_warps()], [0, 1])
    power = gl.convert_layout(power, TWO)
    place = start + gl.arange(0, ROWS, gl.SliceLayout(0, TWO))
    group = first // 32 + gl.arange(0, 2, gl.SliceLayout(1, TWO))
    to = out_shares + place.to(gl.int64)[None, :] * (outputs // 32) + group[:, None]
    gl.store(to, power, mask=(place < end)[None, :])


@gluon.jit
def store_pairs(one, two, order, start, end, first, out, outputs, ROWS: gl.constexpr):
    """128 columns of each row to where its pair came from."""
    STORED: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    one = gl.convert_layout(gl.permute(one.to(gl.bfloat16), (1, 0)), STORED)
    two = gl.convert_layout(gl.permute(two.to(gl.bfloat16), (1, 0)), STORED)
    place = start + gl.arange(0, ROWS, gl.SliceLayout(1, STORED))
    pair = gl.load(order + place, mask=place < end, other=0).to(gl.int64)
    column = first + gl.arange(0, 64, gl.SliceLayout(0, STORED))
    to = out + pair[:, None] * outputs + column[None, :]
    gl.store(to, one, mask=(place < end)[:, None])
    gl.store(to + HALF, two, mask=(place < end)[:, None])


@gluon.jit(do_not_specialize=["per_row", "blocks"])
def few_experts_kernel(
    codes, shares, packed, scales, weights, order, tiles, tile_expert, tile_start, tile_end,
    out, out_shares, per_row, inputs, outputs, blocks, limit,
    EARLY: gl.constexpr, IS_UP: gl.constexpr, STAGES: gl.constexpr, GROUPS: gl.constexpr,
    MOST: gl.constexpr,
):  # fmt: skip
    """Units of work in turn: a tile, and 64 columns of gate and of up, or 128 of down.

    codes, shares: e4m3 [rows, inputs], even inputs of each 32 first, and their scales. IS_UP: the
    rows of `order`, share * swiglu in codes; else in order of the experts, each pair where it came
    from. scales: four ue8m0 bytes a word. EARLY: see `dependent_launch`.
    """
    if EARLY:
        gl.inline_asm_elementwise(
            "griddepcontrol.wait; griddepcontrol.launch_dependents; mov.u32 $0, 0;",
            "=r", [], dtype=gl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    SWIZZLED: gl.constexpr = gl.SwizzledSharedLayout(16, 2, 4, [1, 0])
    ROW: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    VALUES: gl.constexpr = gl.NVMMASharedLayout(128, 8, rank=2)
    words, factors, x = (), (), ()
    for _ in gl.static_range(GROUPS // 4):
        tile = gl.allocate_shared_memory(gl.uint8, [STAGES, COLUMNS, 64], SWIZZLED)
        words = words + (tile,)  # noqa: RUF005  the compiler knows no star
        tile = gl.allocate_shared_memory(gl.int32, [STAGES, COLUMNS], ROW)
        factors = factors + (tile,)  # noqa: RUF005  the compiler knows no star
        tile = gl.allocate_shared_memory(gl.float8e4nv, [STAGES, MOST, 128], VALUES)
        x = x + (tile,)  # noqa: RUF005  the compiler knows no star
    share_tiles = gl.allocate_shared_memory(gl.float32, [STAGES, GROUPS, MOST], PLAIN)
    rings = (words, factors, x, share_tiles)
    table = (tile_expert, tile_start, tile_end)
    given = (blocks, table, packed, scales, codes, shares, order, per_row, inputs, outputs)
    units = gl.load(tiles) * blocks
    ahead = gl.program_id(0)
    if ahead < units:
        here, scale_here, x_here, share_here, inside, share_inside = sources(
            ahead, given, IS_UP, GROUPS, MOST
        )
        for s in gl.static_range(STAGES - 1):
            fetch(here, scale_here, x_here, share_here, inside, share_inside, rings, s)
            async_copy.commit_group()
            here += 16 * GROUPS
            scale_here += GROUPS // 4
            x_here += 32 * GROUPS
            share_here += GROUPS
        at_step = gl.to_tensor(STAGES - 1)
        done = gl.to_tensor(0)
        for unit in range(gl.program_id(0), units, gl.num_programs(0)):
            _expert, start, end, block = tile_of(unit, blocks, table, MOST)
            first = block * (HALF if IS_UP else COLUMNS)
            count = end - start
            for n in gl.static_range(3, powers_end(MOST)):
                if (count <= (1 << n)) & ((count > (1 << n) // 2) | (n == 3)):
                    state = (
                        ahead, at_step, here, scale_here, x_here, share_here, inside,
                        share_inside,
                    )  # fmt: skip
                    (
                        one, two, ahead, at_step, here, scale_here, x_here, share_here, inside,
                        share_inside,
                    ) = multiply(
                        state, given, rings, units, done, 1 << n, IS_UP, STAGES, GROUPS, MOST
                    )  # fmt: skip
                    if IS_UP:
                        store_gated(
                            one, two, weights, order, start, end, first, out, out_shares,
                            outputs, limit, 1 << n,
                        )  # fmt: skip
                    else:
                        store_pairs(one, two, order, start, end, first, out, outputs, 1 << n)
            done += inputs // (32 * GROUPS)
        async_copy.wait_group(0)
