"""Products of fp8 tiles with few rows on Hopper, in one launch or two.

Weights go from memory to the fp8 matrix instruction as they are, and start to before the launch
before has ended; see `kernels.matmul.triton_hopper_tiles`. Up to 32 rows, weights are the wide
side of the instruction; from then on rows are. Inputs may be cut into slices, which the last
program of a tile to end adds in their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
from torch import Tensor

from kernels.matmul.triton_hopper_kernels import few_rows_fp8_kernel, some_rows_fp8_kernel
from kernels.matmul.weights import Fp8Weight
from kernels.quantize.triton_groups import quantised
from kernels.tuning import Tunable, chosen, current_arch

ARCH = 90
STEP = 128  # inputs of a tile
NARROW_ROWS = 32  # up to here, weights are the wide side
SOME_ROWS = 128  # that are served where tiles are wide
WIDE_PROGRAMS = 132  # of 128 rows: one for each processor of an H200
WIDE_STAGES = 4
MOST_SLICES = 16
LEAST_STEPS = 2  # of a slice
MOST_HELD_STEPS = 32  # of a slice whose row is rounded at once
MOST_TILES = 1024  # that are counted where inputs are cut
FEW_HOPPER = Tunable(
    name="few_rows_hopper",
    op="linear",
    default={"PROGRAMS": 320, "STAGES": 4},
    candidates=tuple(
        {"PROGRAMS": programs, "STAGES": stages}
        for programs, stages in ((320, 4), (320, 6), (512, 4), (400, 4), (240, 6), (160, 6))
    ),
)
TUNABLES = (FEW_HOPPER,)


@dataclass(frozen=True)
class Cut:
    """How a product is cut: rows of a tile, steps of a slice of the inputs, stages of the ring."""

    rows: int
    steps: int
    stages: int

    @classmethod
    def of(cls, x: Tensor, weight: Fp8Weight) -> Cut:
        """By shapes alone, for as many programs as the tables say."""
        rows, groups, inputs = x.shape
        outputs, tile = weight.shape[-2], row_tile(rows)
        steps = inputs // STEP
        least = triton.cdiv(steps, MOST_HELD_STEPS) if rows == 1 else 1
        if tile <= NARROW_ROWS:
            shapes = f"{groups} of {outputs} x {inputs} by {1 if rows == 1 else tile}"
            config = chosen(FEW_HOPPER, shapes)
            programs, stages = config["PROGRAMS"], config["STAGES"]
            tiles = groups * triton.cdiv(outputs, 64)
        else:
            programs, stages = WIDE_PROGRAMS * SOME_ROWS // tile, WIDE_STAGES
            tiles = groups * triton.cdiv(outputs, 128)
        slices = max(min(programs // tiles, MOST_SLICES, steps // LEAST_STEPS), least)
        return cls(rows=tile, steps=triton.cdiv(steps, slices), stages=stages)


def row_tile(rows: int) -> int:
    """How many rows a program takes: none more than there are, and as matrix instructions do."""
    return min(max(triton.next_power_of_2(rows), 8), SOME_ROWS)


def suits(x: Tensor, weight: Fp8Weight) -> bool:
    """Whether bfloat16 x [rows, groups, inputs] can be multiplied here, and in less time."""
    rows, _, inputs = x.shape
    side, group = weight.tile[0], weight.input_group
    most = {(32, 32): NARROW_ROWS, (32, None): 1, (128, 128): SOME_ROWS}.get((side, group), 0)
    return (
        x.is_cuda
        and current_arch() == ARCH
        and weight.tile[1] == side
        and inputs % STEP == 0
        and weight.shape[-2] % 16 == 0
        and rows <= most
    )


def product(x: Tensor, weight: Fp8Weight, cut: Cut | None = None) -> Tensor:
    """bfloat16 x [rows, groups, inputs], weight [groups, outputs, inputs] (groups may be absent
    where they are 1): [rows, groups, outputs]. Inputs are rounded as the weight says.

    One row is rounded by every program that reads it; of more, groups of 128 inputs share the
    largest scale among them, see `quantised`. Not for two streams at once with one weight.
    """
    rows, groups, inputs = x.shape
    outputs, side = weight.shape[-2], weight.tile[0]
    cut = cut or Cut.of(x, weight)
    steps = inputs // STEP
    slices = triton.cdiv(steps, cut.steps)
    out = torch.empty((rows, groups, outputs), dtype=x.dtype, device=x.device)
    parts = out if slices == 1 else out.new_empty((slices, *out.shape), dtype=torch.float32)
    is_narrow, is_one = cut.rows <= NARROW_ROWS, rows == 1
    group = weight.input_group or side
    values, factors, held = x.contiguous(), parts, cut.rows
    if not is_one:
        values, factors = quantised(x, group=group, shared=STEP)
        held = factors.shape[-1]
    columns = groups * triton.cdiv(outputs, 64 if is_narrow else 128)
    grid = (columns, triton.cdiv(rows, cut.rows), slices)
    assert slices == 1 or grid[0] * grid[1] <= MOST_TILES
    kernel = few_rows_fp8_kernel if is_narrow else some_rows_fp8_kernel
    own = {
        "SIDE": side,
        "GROUP": group if is_one else STEP,
        "PLANES": 2 if weight.input_group is None else 1,
        "STEPS": triton.next_power_of_2(cut.steps) if is_one else 0,
    }
    kernel[grid](
        values,
        factors,
        weight.values.view(torch.uint8),
        weight.scales,
        out,
        parts,
        ended(weight.values.data_ptr(), x.device),
        rows,
        groups,
        outputs,
        inputs,
        weight.scales.shape[-1],
        held,
        cut.steps,
        steps,
        SLICES=slices,
        ROWS=cut.rows,
        STAGES=cut.stages,
        **(own if is_narrow else {}),
        num_warps=4 if is_narrow else cut.rows // 16,
        launch_pdl=True,
    )
    return out


@cache
def ended(place: int, device: torch.device) -> Tensor:
    """How many programs of each tile of a launch have ended, 0 between launches; one for each
    weight, since others may run beside it.
    """
    return torch.zeros(MOST_TILES, dtype=torch.int32, device=device)
