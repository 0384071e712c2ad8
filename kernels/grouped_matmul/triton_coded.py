"""mxfp4 experts with few rows each on Hopper, activations in e4m3 codes: what is launched.

`kernels.grouped_matmul.triton_hopper_few` multiplies; a launch before it puts pairs in order of
their experts and rounds rows, as many as there are pairs or not.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attention.triton_hopper import processors
from kernels.beside import ready
from kernels.dependent_launch import early, wait_for_results
from kernels.grouped_matmul.reference import Experts, Shared
from kernels.grouped_matmul.triton_cuda import combined
from kernels.grouped_matmul.triton_hopper_few import few_experts_kernel
from kernels.grouped_matmul.triton_tiles import Cut, Tiles, group_chunk
from kernels.matmul.weights import Mxfp4Weight
from kernels.quantize.triton_cuda import e4m3_code
from kernels.quantize.triton_operands import group_exponents, power_of_two
from kernels.tuning import Config, Tunable
from kernels.tuning import chosen as configured

BLOCK = 1024
GROUP = 32
FEW_PAIRS = 4  # of an expert on average, below which a table may choose this form
LEAST_INPUTS = 1024  # more stages than are copied ahead
FEW = Tunable(
    name="few_experts",
    op="run_experts",
    implementation="gluon",
    default={"ROWS": 0, "GROUPS": 0, "num_warps": 0, "num_stages": 0},
    candidates=tuple(
        {"ROWS": rows, "GROUPS": groups, "num_warps": warps, "num_stages": stages}
        for rows, groups, warps, stages in (
            (0, 0, 0, 0), (16, 8, 8, 3), (32, 8, 8, 3), (32, 4, 4, 4),
        )
    ),
)  # fmt: skip
"""ROWS: of a tile; 0: `triton_hopper` has all. GROUPS of 32 inputs are copied at a time."""
TUNABLES = (FEW,)
REGISTERS = {4: 168, 8: 128}  # by warps: three programs a processor, or two
PROGRAMS = {4: 3, 8: 2}


@triton.jit(do_not_specialize=["pairs", "chunks", "blocks"])
def group_and_code_kernel(
    x, chosen, order, places, tiles, tile_expert, tile_start, tile_end, codes, shares,
    pairs, experts, chunks, width, blocks,
    EARLY: tl.constexpr, COUNTED: tl.constexpr, TILE: tl.constexpr, BINS: tl.constexpr,
    CHUNK: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`group_chunk` of all chunks, and blocks of rows: e4m3 codes, of each 32 the even inputs
    first, and float32 scales.
    """
    wait_for_results(EARLY)
    if tl.program_id(0) < chunks:
        group_chunk(
            chosen, chosen, order, places, tiles, tile_expert, tile_start, tile_end, pairs,
            experts, tl.program_id(0), chunks, COUNTED, TILE, BINS, CHUNK, STEP,
        )  # fmt: skip
    else:
        row = ((tl.program_id(0) - chunks) // blocks).to(tl.int64)
        first = (tl.program_id(0) - chunks) % blocks * BLOCK
        to = first + tl.arange(0, BLOCK)
        at = to // 32 * 32 + to % 16 * 2 + to % 32 // 16
        value = tl.load(x + row * width + at, mask=at < width, other=0.0).to(tl.float32)
        groups = tl.reshape(value, (BLOCK // 32, 32))
        exponent = group_exponents(groups, 1)
        down = power_of_two(tl.where(exponent == 255, 255, 254 - exponent))
        code = tl.where((exponent == 255)[:, None], 0, e4m3_code(groups * down[:, None]))
        code = tl.reshape(code, (BLOCK,)).to(tl.uint8)
        tl.store(codes + row * width + to, code, mask=to < width)
        group = first // 32 + tl.arange(0, BLOCK // 32)
        here = shares + row * (width // 32) + group
        tl.store(here, power_of_two(exponent), mask=group < width // 32)


def group_and_code(
    x: Tensor, chosen: Tensor, experts: int, size: int
) -> tuple[Tiles, Tensor, Tensor]:
    """Tiles of at most `size` pairs, e4m3 codes [rows, width] and float32 [rows, width / 32]."""
    rows, width = x.shape
    codes = torch.empty((rows, width), dtype=torch.uint8, device=x.device)
    shares = torch.empty((rows, width // GROUP), dtype=torch.float32, device=x.device)
    cut, blocks = Cut.of(chosen.numel(), experts, size), triton.cdiv(width, BLOCK)
    assert not cut.counted, "more pairs than a program counts"
    tiles = Tiles.room(chosen, experts, size)
    group_and_code_kernel[(cut.chunks + rows * blocks,)](
        x, chosen, *tiles.written, codes, shares, chosen.numel(), experts, cut.chunks, width,
        blocks, **cut.constants, BLOCK=BLOCK, num_warps=4, **early(),
    )  # fmt: skip
    return tiles, codes.view(torch.float8_e4m3fn), shares


def config_of(experts: Experts, pairs: int) -> Config | None:
    """How such experts, which suit `triton_hopper`, are multiplied here; None: they are not."""
    gate_up, down = experts.gate_up, experts.down
    count, width, inner = down.shape
    if (
        pairs >= FEW_PAIRS * count
        or Cut.of(pairs, count, 1).counted
        or min(width, inner) < LEAST_INPUTS
        or width % 256
        or inner % 256
        or not (isinstance(gate_up, Mxfp4Weight) and gate_up.input_group == GROUP)
        or not (isinstance(down, Mxfp4Weight) and down.input_group == GROUP)
    ):
        return None
    config = configured(FEW, "few pairs")
    return config if config["ROWS"] else None


def in_tiles(
    x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor, shared: Shared, config: Config
) -> Tensor:
    """`run_experts` as `config_of` says; all contiguous."""
    gate_up, down = experts.gate_up, experts.down
    assert isinstance(gate_up, Mxfp4Weight)
    assert isinstance(down, Mxfp4Weight)
    pairs, (width, inner) = chosen.numel(), down.shape[-2:]
    tiles, codes, shares = group_and_code(x, chosen, down.shape[0], config["ROWS"])
    middle = torch.empty((pairs, inner), dtype=torch.int8, device=x.device)
    middle_shares = torch.empty((pairs, inner // GROUP), dtype=torch.float32, device=x.device)
    sizes = (tiles, weights, experts.limit, config)
    _product(codes, shares, gate_up, *sizes, middle, middle_shares, is_up=True)
    parts = torch.empty((pairs, width), dtype=x.dtype, device=x.device)
    middle = middle.view(torch.float8_e4m3fn)
    _product(middle, middle_shares, down, *sizes, parts, middle_shares, is_up=False)
    return combined(parts, chosen, ready(shared).contiguous())


def _product(
    codes: Tensor, shares: Tensor, weight: Mxfp4Weight, tiles: Tiles, weights: Tensor,
    limit: float, config: Config, out: Tensor, out_shares: Tensor, *, is_up: bool,
) -> None:  # fmt: skip
    warps, outputs = config["num_warps"], out.shape[1]
    blocks = outputs // (64 if is_up else 128)
    programs = processors(codes.device) * PROGRAMS[warps]
    few_experts_kernel[(min(tiles.most * blocks, programs),)](
        codes, shares, weight.packed, weight.scales.view(torch.int32), weights, *tiles.table,
        out, out_shares, weights.shape[1], codes.shape[1], outputs, blocks, limit,
        IS_UP=is_up, STAGES=config["num_stages"], GROUPS=config["GROUPS"], MOST=config["ROWS"],
        num_warps=warps, maxnreg=REGISTERS[warps], **early(),
    )  # fmt: skip
