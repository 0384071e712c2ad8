"""mxfp4 experts on Hopper: a warp copies, two groups of four warps unpack weights and multiply.

Weights are the left operand, unpacked in registers; rows of activations, in order of their
experts (`kernels.grouped_matmul.triton_spread`), are the right one in shared memory. A tile has
up to 128 rows of one expert, and is multiplied as 8, 16, 32, 64 or 128, whatever holds them.

Written in Gluon, which the interpreter does not run: `kernels.grouped_matmul.triton_packed` is
the same computation for every other device, and `python -m kernels.check` holds both on a device.
"""

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.beside import ready
from kernels.dependent_launch import early
from kernels.grouped_matmul import triton_fp8, triton_invariant
from kernels.grouped_matmul.reference import Experts, Shared
from kernels.grouped_matmul.triton_cuda import combined
from kernels.grouped_matmul.triton_hopper_stores import (
    store_gated,
    store_pairs,
    sum_layout,
    taken_pairs,
    taken_shares,
)
from kernels.grouped_matmul.triton_spread import spread
from kernels.grouped_matmul.triton_tiles import Tiles
from kernels.hopper import barrier, processors
from kernels.matmul.weights import Mxfp4Weight
from kernels.quantize.triton_operands import UP

TILE = 128  # pairs
STEP = gl.constexpr(128)  # inputs at a time
COLUMNS = 256  # of weights, of a program: 128 of each of two matrices, or of one
STAGES = 4
REGISTERS = 240  # of a thread that multiplies
COPY_REGISTERS = 24
FEW_ROWS, MANY_ROWS = 8, 32  # that are copied at once
ROWS_LAYOUT = gl.NVMMASharedLayout(128, 16, rank=2)
WORDS_LAYOUT = gl.NVMMASharedLayout(64, 16, rank=2)


def _assembly(shift: int) -> gl.constexpr:
    """Nibbles 0 and 1, or with a shift of 8 bits 2 and 3, of two words: bfloat16 times a factor.

    As `kernels.quantize.triton_operands.FP4_BY_PRODUCTS`.
    """
    return gl.constexpr(f"""{{
        .reg .b32 s, t, u;
        shr.b32 u, $2, {shift};
        and.b32 s, u, 0x000F000F; mul.lo.u32 s, s, 0x1040; and.b32 s, s, 0x81C081C0;
        mul.rn.bf16x2 $0, s, $3;
        and.b32 t, u, 0x00F000F0; mul.lo.u32 t, t, 0x104; and.b32 t, t, 0x81C081C0;
        mul.rn.bf16x2 $1, t, $3;
    }}""")


LOW, HIGH = _assembly(0), _assembly(8)


@gluon.constexpr_function
def word_layout():
    """Words of 16 bits [64, 32]: a thread has one group of 32 inputs of each of two rows, as the
    left operand of a matrix instruction has them.
    """
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 1], [0, 2], [0, 4], [8, 0]],
        lane_bases=[[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[64, 32],
    )


@gluon.constexpr_function
def group_layout():
    """The same as [64, 4 groups, 8]."""
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 1], [0, 0, 2], [0, 0, 4], [8, 0, 0]],
        lane_bases=[[0, 1, 0], [0, 2, 0], [1, 0, 0], [2, 0, 0], [4, 0, 0]],
        warp_bases=[[16, 0, 0], [32, 0, 0]],
        block_bases=[],
        shape=[64, 4, 8],
    )


@gluon.constexpr_function
def left_layout(rows):
    """Of their left operand."""
    return gl.DotOperandLayout(0, sum_layout(rows), 2)


@gluon.jit
def operand(word, factor, IS_HIGH: gl.constexpr, LAYOUT: gl.constexpr):
    """Two of the four nibbles of words [64, 4, 8] as a left operand [64, 64]."""
    a, b = gl.inline_asm_elementwise(
        HIGH if IS_HIGH else LOW,
        "=&r,=&r,r,r",
        [word, factor],
        dtype=(gl.bfloat16, gl.bfloat16),
        is_pure=True,
        pack=2,
    )
    both = gl.reshape(gl.join(a, b), (64, 4, 2, 2, 2, 2))  # bits 6 and 5, 4, 3, 2 of an input, 0
    both = gl.reshape(gl.permute(both, (0, 5, 2, 3, 1, 4)), (64, 64))
    return gl.convert_layout(both, LAYOUT, assert_trivial=True)


@gluon.jit
def factors(scale):
    """ue8m0 [64, 4] as bfloat16 [64, 4, 8] times 2^UP; NaN of more than bfloat16 holds so."""
    LAYOUT: gl.constexpr = group_layout()
    u = scale.to(gl.int16)
    bits = gl.where(u > 254 - UP, 0x7FC0, (u + UP) << 7).to(gl.int16)
    value = gl.expand_dims(bits.to(gl.bfloat16, bitcast=True), 2)
    like = gl.full([64, 4, 8], 0.0, gl.bfloat16, LAYOUT)
    return gl.broadcast(gl.convert_layout(value, LAYOUT, assert_trivial=True), like)[0]


@gluon.jit
def taken_words(words, number, half):
    """64 rows of a tile of words, [64, 4, 8]."""
    word = words.index(number).slice(64 * half, 64, dim=0).load(word_layout())
    return gl.convert_layout(gl.reshape(word, (64, 4, 8)), group_layout(), assert_trivial=True)


@gluon.jit
def taken_rows(rows, stage, ROWS: gl.constexpr):
    """The two halves of the inputs of a stage, [64, ROWS] each."""
    x = rows.index(2 * stage).slice(0, ROWS, dim=0).permute((1, 0))
    y = rows.index(2 * stage + 1).slice(0, ROWS, dim=0).permute((1, 0))
    return x, y


@gluon.jit
def scale_places(scales, first_row, second_row, WIDTH: gl.constexpr):
    """Where the scales of the first step of 64 rows of each of two matrices lie."""
    SCALES: gl.constexpr = gl.SliceLayout(2, group_layout())
    row = gl.arange(0, 64, gl.SliceLayout(1, SCALES))
    at = row[:, None] * (WIDTH // 32) + gl.arange(0, 4, gl.SliceLayout(0, SCALES))[None, :]
    return scales + first_row * (WIDTH // 32) + at, scales + second_row * (WIDTH // 32) + at


@gluon.jit
def multiply(
    rings, scales, first_row, second_row, done, half: gl.constexpr,
    ROWS: gl.constexpr, WIDTH: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The products of 64 rows of each of two matrices: float32 [64, ROWS] twice.

    To write what a product reads while it runs makes the assembler wait for each instruction: the
    other group of warps multiplies while this one unpacks.
    """
    rows, words, full, empty = rings
    LEFT: gl.constexpr = left_layout(ROWS)
    LAST: gl.constexpr = WIDTH // STEP - 1
    here, there = scale_places(scales, first_row, second_row, WIDTH)
    first = gl.zeros([64, ROWS], gl.float32, sum_layout(ROWS))
    second = gl.zeros([64, ROWS], gl.float32, sum_layout(ROWS))
    first_scale, second_scale = gl.load(here), gl.load(there)
    ahead = gl.minimum(1, LAST) * 4
    next_first, next_second = gl.load(here + ahead), gl.load(there + ahead)
    for k in range(WIDTH // STEP):
        step = done + k
        stage = step % STAGES
        first_factor, second_factor = factors(first_scale), factors(second_scale)
        if ROWS >= 128:  # a step lasts longer, and registers are fewer
            ahead = gl.minimum(k + 1, LAST) * 4
            first_scale, second_scale = gl.load(here + ahead), gl.load(there + ahead)
        else:
            ahead = gl.minimum(k + 2, LAST) * 4
            first_scale, second_scale = next_first, next_second
            next_first, next_second = gl.load(here + ahead), gl.load(there + ahead)
        mbarrier.wait(full.index(stage), step // STAGES & 1)
        word = taken_words(words, 2 * stage, half)
        other = taken_words(words, 2 * stage + 1, half)
        x, y = taken_rows(rows, stage, ROWS)
        a = operand(word, first_factor, False, LEFT)
        b = operand(other, second_factor, False, LEFT)
        c = operand(word, first_factor, True, LEFT)
        d = operand(other, second_factor, True, LEFT)
        first = warpgroup_mma(a, x, first, is_async=True)
        second = warpgroup_mma(b, x, second, is_async=True)
        first = warpgroup_mma(c, y, first, is_async=True)
        second = warpgroup_mma(d, y, second, is_async=True)
        first, second = warpgroup_mma_wait(0, deps=[first, second])
        barrier()  # all four warps have read the stage
        mbarrier.arrive(empty.index(stage))
    return first, second


@gluon.jit
def multiply_and_store(
    rings, scales, shares, order, out, expert, start, end, column, limit, done,
    half: gl.constexpr, ROWS: gl.constexpr, WIDTH: gl.constexpr, OUTPUTS: gl.constexpr,
    IS_UP: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """One unit of work of a group of warps."""
    mine = column + 64 * half
    if IS_UP:
        row = expert.to(gl.int64) * (2 * OUTPUTS) + mine
        if ROWS < 128:  # in time, where there are registers
            share = taken_shares(shares, start, end, ROWS)
        gate, up = multiply(rings, scales, row, row + OUTPUTS, done, half, ROWS, WIDTH, STAGES)
        if ROWS >= 128:
            share = taken_shares(shares, start, end, ROWS)
        store_gated(gate, up, share, out, start, end, column, limit, half, OUTPUTS, GROUP)
    else:
        row = expert.to(gl.int64) * OUTPUTS + mine
        if ROWS < 128:
            pair = taken_pairs(order, start, end, ROWS)
        first, second = multiply(rings, scales, row, row + 128, done, half, ROWS, WIDTH, STAGES)
        if ROWS >= 128:
            pair = taken_pairs(order, start, end, ROWS)
        store_pairs(first, pair, out, mine, OUTPUTS)
        store_pairs(second, pair, out, mine + 128, OUTPUTS)


@gluon.jit
def power_of(count):
    """The least n from 3 on with 2^n rows not less than so many."""
    few = gl.where(count > 16, 5, gl.where(count > 8, 4, 3))
    return gl.where(count > 64, 7, gl.where(count > 32, 6, few))


@gluon.jit
def unit_of(unit, table, OUTPUTS: gl.constexpr, IS_UP: gl.constexpr):
    """Expert, first column, first place and end of a unit of work."""
    BLOCKS: gl.constexpr = OUTPUTS // (128 if IS_UP else 256)
    tile = unit // BLOCKS
    start = gl.load(table[2] + tile)
    end = gl.minimum(gl.load(table[3] + tile), start + 128)
    return gl.load(table[1] + tile), unit % BLOCKS * (128 if IS_UP else 256), start, end


@gluon.jit
def multiply_tiles(
    rings, scales, shares, order, table, out, limit, half: gl.constexpr, WIDTH: gl.constexpr,
    OUTPUTS: gl.constexpr, IS_UP: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The warps that multiply."""
    BLOCKS: gl.constexpr = OUTPUTS // (128 if IS_UP else 256)
    done = gl.to_tensor(0)
    first = gl.program_id(0)
    units = gl.load(table[0]) * BLOCKS
    last = gl.maximum(units - 1, 0)
    following = unit_of(gl.minimum(first, last), table, OUTPUTS, IS_UP)
    for unit in range(first, units, gl.num_programs(0)):
        expert, column, start, end = following
        ahead = gl.minimum(unit + gl.num_programs(0), last)
        following = unit_of(ahead, table, OUTPUTS, IS_UP)
        power = power_of(end - start)
        for n in gl.static_range(3, 8):
            if power == n:
                multiply_and_store(
                    rings, scales, shares, order, out, expert, start, end, column, limit, done,
                    half, 1 << n, WIDTH, OUTPUTS, IS_UP, GROUP, STAGES,
                )  # fmt: skip
        done += WIDTH // STEP


@gluon.jit
def copy_unit(
    many, few, weight, rings, first, second, start, done,
    ROWS: gl.constexpr, WIDTH: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """All that a unit of work multiplies, as soon as there is room."""
    rows, words, full, empty = rings
    x = many if many.block_shape[0] <= ROWS else few
    EACH: gl.constexpr = x.block_shape[0]
    for k in range(WIDTH // STEP):
        step = done + k
        stage = step % STAGES
        mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
        ready = full.index(stage)
        mbarrier.expect(ready, 2 * (128 * 64) + ROWS * (STEP * 2))
        tma.async_copy_global_to_shared(weight, [first, k * 32], ready, words.index(2 * stage))
        tma.async_copy_global_to_shared(weight, [second, k * 32], ready, words.index(2 * stage + 1))
        for panel in gl.static_range(2):
            for i in gl.static_range(ROWS // EACH):
                tma.async_copy_global_to_shared(
                    x, [start + EACH * i, k * STEP + 64 * panel], ready,
                    rows.index(2 * stage + panel).slice(EACH * i, EACH, dim=0),
                )  # fmt: skip


@gluon.jit
def copy_tiles(
    many, few, weight, rings, table, WIDTH: gl.constexpr, OUTPUTS: gl.constexpr,
    IS_UP: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The warp that copies, ahead of those that multiply."""
    BLOCKS: gl.constexpr = OUTPUTS // (128 if IS_UP else 256)
    done = gl.to_tensor(0)
    for unit in range(gl.program_id(0), gl.load(table[0]) * BLOCKS, gl.num_programs(0)):
        expert, column, start, end = unit_of(unit, table, OUTPUTS, IS_UP)
        first = expert * (2 * OUTPUTS if IS_UP else OUTPUTS) + column
        second = first + (OUTPUTS if IS_UP else 128)
        power = power_of(end - start)
        for n in gl.static_range(3, 8):
            if power == n:
                copy_unit(
                    many, few, weight, rings, first, second, start, done, 1 << n, WIDTH, STAGES
                )
        done += WIDTH // STEP


@gluon.jit
def experts_kernel(
    many, few, weight, scales, shares, order, tiles, tile_expert, tile_start, tile_end, out,
    limit, WIDTH: gl.constexpr, OUTPUTS: gl.constexpr, IS_UP: gl.constexpr, GROUP: gl.constexpr,
    STAGES: gl.constexpr, REGISTERS: gl.constexpr, COPY_REGISTERS: gl.constexpr,
    EARLY: gl.constexpr,
):  # fmt: skip
    """Units of work in turn: a tile, and 128 columns of gate and of up, or 256 of down.

    many, few: the same rows of activations, copied so many at once. IS_UP: share * swiglu in the
    order of the experts, else each pair where it came from. EARLY: see `dependent_launch`.
    """
    if EARLY:
        gl.inline_asm_elementwise(
            "griddepcontrol.wait; griddepcontrol.launch_dependents; mov.u32 $0, 0;",
            "=r",
            [],
            dtype=gl.int32,
            is_pure=False,
            pack=1,
        )
    rows = gl.allocate_shared_memory(gl.bfloat16, [2 * STAGES, 128, 64], many.layout)
    words = gl.allocate_shared_memory(gl.uint16, [2 * STAGES, 128, 32], weight.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    barrier()
    rings = (rows, words, full, empty)
    table = (tiles, tile_expert, tile_start, tile_end)
    gl.warp_specialize(
        [
            (
                multiply_tiles,
                (rings, scales, shares, order, table, out, limit, 0, WIDTH, OUTPUTS, IS_UP, GROUP,
                 STAGES),
            ),
            (
                multiply_tiles,
                (rings, scales, shares, order, table, out, limit, 1, WIDTH, OUTPUTS, IS_UP, GROUP,
                 STAGES),
            ),
            (copy_tiles, (many, few, weight, rings, table, WIDTH, OUTPUTS, IS_UP, STAGES)),
        ],
        [4, 1],
        [REGISTERS, COPY_REGISTERS],
    )  # fmt: skip


def suits(experts: Experts, x: Tensor) -> bool:
    """Whether these products are those of such experts; x [rows, width]."""
    gate_up, down = experts.gate_up, experts.down
    if not (isinstance(gate_up, Mxfp4Weight) and isinstance(down, Mxfp4Weight)):
        return False
    width, inner = down.shape[-2:]
    groups = (gate_up.input_group, down.input_group)
    return (
        x.dtype == torch.bfloat16
        and width % COLUMNS == 0
        and inner % 128 == 0
        and gate_up.shape[-2] == 2 * inner
        and all(g in (None, 32) for g in groups)
    )


def product(
    x: Tensor, weight: Mxfp4Weight, shares: Tensor, tiles: Tiles, out: Tensor, limit: float, *,
    is_up: bool, group: int | None,
) -> Tensor:  # fmt: skip
    """Launch one of the two products; x [pairs, width] as `spread` has it."""
    words = weight.packed.view(torch.uint16).flatten(0, 1)
    width, outputs = x.shape[1], out.shape[1]
    units = tiles.most * (outputs // (128 if is_up else 256))
    experts_kernel[(min(units, processors(x.device)),)](
        TensorDescriptor.from_tensor(x, [MANY_ROWS, 64], ROWS_LAYOUT),
        TensorDescriptor.from_tensor(x, [FEW_ROWS, 64], ROWS_LAYOUT),
        TensorDescriptor.from_tensor(words, [128, 32], WORDS_LAYOUT),
        weight.scales,
        shares,
        *tiles.table,
        out,
        limit,
        WIDTH=width,
        OUTPUTS=outputs,
        IS_UP=is_up,
        GROUP=group or 0,
        STAGES=STAGES,
        REGISTERS=REGISTERS,
        COPY_REGISTERS=COPY_REGISTERS,
        num_warps=4,
        **early(),
    )
    return out


def run_experts(
    x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor, shared: Shared
) -> Tensor:
    """See kernels.grouped_matmul.reference: mxfp4 experts with bfloat16 x here, others as
    `triton_fp8` does it.
    """
    if not chosen.numel() or not suits(experts, x):
        return triton_fp8.run_experts(x, experts, chosen, weights, shared)
    return in_tiles(x, experts, chosen, weights, shared)


def run_experts_alone(
    x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor, shared: Shared
) -> Tensor:
    """The same, others as `triton_invariant` does it: what a row adds up, and in which order, is
    the same in tiles of any size.
    """
    if not chosen.numel() or not suits(experts, x):
        return triton_invariant.run_experts(x, experts, chosen, weights, shared)
    return in_tiles(x, experts, chosen, weights, shared)


def in_tiles(
    x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor, shared: Shared
) -> Tensor:
    """`run_experts` of experts that suit."""
    x, chosen, weights = x.contiguous(), chosen.contiguous(), weights.contiguous()
    gate_up, down = experts.gate_up, experts.down
    assert isinstance(gate_up, Mxfp4Weight)
    assert isinstance(down, Mxfp4Weight)
    tiles, rows, shares = spread(
        x, chosen, weights, down.shape[0], size=TILE, group=gate_up.input_group
    )
    middle = torch.empty((len(rows), down.shape[-1]), dtype=x.dtype, device=x.device)
    limit, group = experts.limit, down.input_group
    product(rows, gate_up, shares, tiles, middle, limit, is_up=True, group=group)
    # Rows have been multiplied: what pairs add may lie where they lay.
    product(middle, down, shares, tiles, rows, limit, is_up=False, group=None)
    return combined(rows, chosen, ready(shared).contiguous())
