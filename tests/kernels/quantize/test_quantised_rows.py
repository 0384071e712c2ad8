"""Rows rounded to e4m3 for a product, through the interpreter."""

from tests.fakes.interpreter import interpreted

ROWS = """
from kernels.quantize.reference import round_groups
from kernels.quantize import triton_groups
from kernels.quantize.triton_groups import quantised

empty = torch.empty
torch.empty = lambda *shape, **kind: empty(*shape, **kind).fill_(7)
x = torch.randn(5, 2, 384) * torch.randn(5, 2, 1).exp() * torch.randn(5, 2, 384).mul(2).exp()
x = x.bfloat16()
x[3, 1, 40:80], x[4, 0, 130] = 0, -0.0


def values(x, **about):
    codes, factors = quantised(x, **about)
    assert codes.shape[0] == factors.shape[2] == 128
    group = codes.shape[2] // len(factors)
    spread = factors[:, :, : len(x)].permute(2, 1, 0).double().repeat_interleave(group, 2)
    return codes[: len(x)].double() * spread, spread


for group in (32, 128):
    exact = round_groups(x.flatten(0, 1).double(), group).view_as(x)
    found, _ = values(x, group=group)
    assert torch.equal(found, exact)
    found, spread = values(x, group=group, shared=128, multiple=512)
    assert found.shape[2] == 512 and not found[..., 384:].any()
    found, spread = found[..., :384], spread[..., :384]
    assert ((found - exact).abs() <= spread * 2**-10).all()
    assert (found - exact).norm() <= 1e-4 * exact.norm()

x[2, 0, 200] = torch.inf
for about in ({"group": 32}, {"group": 32, "shared": 128}):
    found, _ = values(x, **about)
    group = about.get("shared", 32)
    here = 200 // group * group
    assert found[2, 0, here : here + group].isnan().all()
    assert found.isnan().sum() == group, "others are not touched"

triton_groups.FEW_BLOCKS = 0  # as of many rows
many, scales = quantised(x, group=32, shared=128)
triton_groups.FEW_BLOCKS = 1056
few, same = quantised(x, group=32, shared=128)
assert torch.equal(many[:5].view(torch.uint8), few[:5].view(torch.uint8))
assert torch.equal(scales[..., :5].view(torch.int32), same[..., :5].view(torch.int32))
"""

WIDENED = """
from kernels.cases_matmul import random_fp8
from kernels.matmul.triton_packed import library_tiles

weight = random_fp8((256, 640), (32, 32), 32, torch.device("cpu"))
weight.scales.add_(torch.randint(-4, 5, weight.scales.shape).to(torch.uint8))
values, tiles = library_tiles(weight)
assert values.shape == (256, 1024) and tiles.shape == (2, 8), "whole steps of the library"
spread = tiles.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
found, spread = (values.double() * spread)[:, :640], spread[:, :640]
assert not values[:, 640:].float().any()
exact = weight.dequantised().double()
assert ((found - exact).abs() <= spread * 2**-10).all()
assert (found - exact).norm() <= 1e-4 * exact.norm()
for inputs in (512, 640):
    wide = random_fp8((256, inputs), (128, 128), 128, torch.device("cpu"))
    values, tiles = library_tiles(wide)
    spread = tiles.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
    found = values.double() * spread
    assert torch.equal(found[:, :inputs], wide.dequantised().double())
"""


def test_rows_are_what_their_codes_and_scales_say_to_the_last_digit_that_they_can_hold():
    interpreted(ROWS)


def test_narrow_tiles_become_wide_ones_and_lose_no_more_than_the_largest_scale_leaves():
    interpreted(WIDENED)
