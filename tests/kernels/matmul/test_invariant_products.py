"""Products whose rows do not depend on each other, through the interpreter."""

import pytest
import torch

from tests.fakes.interpreter import interpreted

SET_UP = """
import torch

from kernels.cases_matmul import random_fp8, random_mxfp4
from kernels.fused_linear import reference as fused_reference
from kernels.fused_linear import triton_invariant as fused
from kernels.fused_linear.reference import Norm
from kernels.matmul import reference, triton_invariant
from kernels.norm.triton_cuda import rms_norm

empty = torch.empty


def poisoned(*shape, **kind):
    made = empty(*shape, **kind)
    return made.fill_(torch.nan if made.is_floating_point() else 0xFF)


torch.empty = poisoned
CPU = torch.device("cpu")
SOME = (slice(0, 1), slice(3, 5), slice(63, 66), slice(64, 130))


def difference(found, exact):  # as DeepGEMM measures it
    found, exact = found.double(), exact.double()
    return 1 - 2 * (found * exact).sum() / (found.square().sum() + exact.square().sum())


def held(run, x, exact):
    among = run(x)
    assert difference(among, exact) <= 5e-6
    for some in SOME:
        assert torch.equal(run(x[some].clone()), among[some])
    assert run(x[:0]).shape == (0, *among.shape[1:])
    return among
"""

PACKED = (
    SET_UP
    + """
x = torch.randn(130, 256).bfloat16()
for tile, group in ((32, 32), (128, 128), (64, None)):
    weight = random_fp8((72, 256), (tile, tile), group, CPU)
    held(lambda x: triton_invariant.linear(x, weight), x, reference.linear(x.double(), weight))
    unrounded = x.double() @ weight.dequantised().double().T
    assert difference(triton_invariant.linear(x, weight), unrounded) <= 1e-3
for weight in (random_mxfp4((72, 256), 32, CPU), random_fp8((30, 256), (16, 16), 16, CPU)):
    held(lambda x: triton_invariant.linear(x, weight), x, reference.linear(x.double(), weight))
weight = random_fp8((3, 64, 96), (32, 32), None, CPU)
x = torch.randn(130, 3, 96).bfloat16()
exact = reference.grouped_linear(x.double(), weight)
held(lambda x: triton_invariant.grouped_linear(x, weight), x, exact)
plain = weight.dequantised().bfloat16()
exact = reference.grouped_linear(x.double(), plain.double())
held(lambda x: triton_invariant.grouped_linear(x, plain), x, exact)
"""
)

PLAIN = (
    SET_UP
    + """
for dtype in (torch.bfloat16, torch.float32):
    x, weight = torch.randn(130, 100).to(dtype), torch.randn(70, 100).to(dtype)
    exact = x.double() @ weight.double().T
    held(lambda x: triton_invariant.linear(x, weight), x, exact)
    wide = held(lambda x: triton_invariant.wide_linear(x, weight), x, exact)
    assert wide.dtype == torch.float32
    assert (wide.double() - exact).norm() <= 3e-6 * exact.norm()
    deep = triton_invariant.linear(x.view(13, 10, 100), weight)
    assert torch.equal(deep.flatten(0, 1), triton_invariant.linear(x, weight))
    norm = Norm(weight=torch.rand(100) + 0.5, eps=1e-6)
    wide_norm = Norm(weight=norm.weight.double(), eps=1e-6)
    total = torch.randn(130, 70).to(dtype)
    for name in ("norm_linear", "norm_swiglu", "norm_logits"):
        exact = getattr(fused_reference, name)(x.double(), wide_norm, weight.double())
        among = getattr(fused, name)(x, norm, weight)
        assert difference(among, exact) <= 2e-5, name
        for some in SOME:
            assert torch.equal(getattr(fused, name)(x[some].clone(), norm, weight), among[some])
    exact = total.double() + x.double() @ weight.double().T
    among = total.clone()
    assert fused.add_linear(among, x, weight) is among
    assert difference(among, exact) <= 5e-6
    for some in SOME:
        assert torch.equal(fused.add_linear(total[some].clone(), x[some], weight), among[some])
    normed = rms_norm(x, norm.weight, norm.eps)
    for some in SOME:
        assert torch.equal(rms_norm(x[some].clone(), norm.weight, norm.eps), normed[some])
"""
)

SLICES = (
    SET_UP
    + """
x, plain = torch.randn(130, 2100).bfloat16(), torch.randn(40, 2100).bfloat16()
packed = random_fp8((40, 2112), (32, 32), 32, CPU)
for weight, x in ((plain, x), (packed, torch.randn(130, 2112).bfloat16())):
    exact = reference.linear(x.double(), weight)
    among = held(lambda x: triton_invariant.linear(x, weight), x, exact)
    triton_invariant.MOST_ROWS = 50
    assert torch.equal(triton_invariant.linear(x, weight), among)
    triton_invariant.MOST_ROWS = 2048
"""
)

CANCELLED = (
    SET_UP
    + """
# What is left of sums that cancel is the rounding of their parts: another order would show.
half = 1056
back = torch.randperm(half)
packed = random_fp8((40, 2 * half), (32, 32), None, CPU)
packed.scales.fill_(120)
values = packed.values.view(torch.uint8)
values[:, half:] = values[:, :half][:, back]
plain = packed.dequantised().bfloat16()
left = torch.randn(130, half).bfloat16()
x = torch.cat((left, -left[:, back]), 1)
for run in (
    lambda x: triton_invariant.linear(x, packed),
    lambda x: triton_invariant.linear(x, plain),
    lambda x: triton_invariant.wide_linear(x, plain),
    lambda x: triton_invariant.linear(x.float(), plain.float()),
):
    among = run(x)
    assert 0 < among.abs().max() < 1e-2
    for some in SOME:
        assert torch.equal(run(x[some].clone()), among[some])
strided = torch.stack((x, x), 2)[..., 0]
assert torch.equal(triton_invariant.linear(strided, packed), triton_invariant.linear(x, packed))
assert torch.equal(triton_invariant.linear(strided, plain), triton_invariant.linear(x, plain))
"""
)


@pytest.mark.parametrize(
    "script",
    [PACKED, PLAIN, SLICES, CANCELLED],
    ids=["packed", "plain", "slices", "cancelled"],
)
def test_a_row_comes_out_the_same_whatever_runs_beside_it_and_as_the_definition_says(script):
    interpreted(script)


def test_how_a_product_is_cut_follows_from_its_matrix_alone():
    pytest.importorskip("triton", reason="triton is not installed")
    from kernels.matmul.triton_invariant import Cut, packed_cut, slices_of

    assert Cut.of(5120, 8192, 1, torch.bfloat16).slices == 4
    assert Cut.of(32768, 1280, 1, torch.bfloat16).slices == 1
    assert packed_cut(5120, 8192, 1).slices == 3
    assert slices_of(programs=1, inputs=1023) == 1
    assert slices_of(programs=1000, inputs=10**6) == 1
