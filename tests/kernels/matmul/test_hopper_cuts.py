"""How products of few rows are cut on Hopper. What they compute, a device checks."""

import pytest
import torch

RELEASED = (
    (1, 32768, 1280), (1, 5120, 8192), (1, 1792, 5120), (1, 4608, 5120), (1, 5120, 2304),
    (8, 1024, 4096), (1, 16, 128),
)  # fmt: skip


def cut_of(rows, groups, outputs, inputs, tile=32, input_group=32):
    pytest.importorskip("triton", reason="triton is not installed")
    from kernels.matmul.triton_hopper import Cut
    from kernels.matmul.weights import Fp8Weight

    weight = Fp8Weight(
        values=torch.empty(groups, outputs, inputs, device="meta", dtype=torch.float8_e4m3fn),
        scales=torch.empty(groups, 1, 1, device="meta", dtype=torch.uint8),
        tile=(tile, tile),
        input_group=input_group,
    )
    return Cut.of(torch.empty(rows, groups, inputs, device="meta"), weight)


@pytest.mark.parametrize(("groups", "outputs", "inputs"), RELEASED)
@pytest.mark.parametrize("rows", [1, 2, 8, 9, 31, 64, 65, 128])
def test_every_program_has_work_and_what_it_holds_fits(rows, groups, outputs, inputs):
    cut, steps = cut_of(rows, groups, outputs, inputs), inputs // 128
    from kernels.matmul.triton_hopper import MOST_HELD_STEPS, MOST_SLICES, MOST_TILES, NARROW_ROWS

    slices = -(-steps // cut.steps)
    assert 1 <= slices <= MOST_SLICES
    assert (slices - 1) * cut.steps < steps
    is_narrow = cut.rows <= NARROW_ROWS
    assert cut.rows >= rows
    tiles = groups * -(-outputs // (64 if is_narrow else 128))
    assert slices == 1 or tiles <= MOST_TILES
    held = cut.stages if rows > 1 else 1 << (cut.steps - 1).bit_length()
    assert rows > 1 or cut.steps <= MOST_HELD_STEPS
    ring = 128 * (cut.stages * (64 if is_narrow else 128) + held * cut.rows * (1 + (groups > 1)))
    assert ring <= 220 * 1024


def test_each_weight_counts_its_programs_apart_from_others():
    pytest.importorskip("triton", reason="triton is not installed")
    from kernels.matmul.triton_hopper import ended

    cpu = torch.device("cpu")
    assert ended(1, cpu) is ended(1, cpu)
    assert ended(1, cpu).data_ptr() != ended(2, cpu).data_ptr()
    assert not ended(1, cpu).any()
