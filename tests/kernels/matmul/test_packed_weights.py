"""Packed matrices against what they stand for."""

import pytest
import torch

from kernels.matmul.reference import grouped_linear, linear
from kernels.matmul.weights import (
    Fp8Weight,
    Mxfp4Weight,
    dense,
    joined,
    matrix,
    rows_of,
    split_rows,
    stacked,
)
from kernels.quantize.reference import (
    dequantise_groups,
    quantise_fp8_blocks,
    quantise_groups,
    quantise_mxfp4,
    round_groups,
)


def fp8(rows, columns, tile=(32, 32), input_group=None):
    values, scales = quantise_fp8_blocks(torch.randn(rows, columns), tile)
    return Fp8Weight(
        values=values, scales=scales.view(torch.uint8), tile=tile, input_group=input_group
    )


def mxfp4(rows, columns, input_group=None):
    packed, scales = quantise_mxfp4(torch.randn(rows, columns))
    return Mxfp4Weight(
        packed=packed.view(torch.uint8), scales=scales.view(torch.uint8), input_group=input_group
    )


@pytest.mark.parametrize("make", [fp8, mxfp4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_product_is_that_of_the_dequantised_matrix_in_the_dtype_of_its_input(make, dtype):
    weight, x = make(40, 96), torch.randn(3, 96, dtype=dtype)
    got = linear(x, weight)
    assert got.dtype == dtype
    assert torch.equal(got, x @ weight.dequantised().to(dtype).T)


def test_inputs_are_rounded_in_groups_before_a_product_that_says_so():
    x = torch.randn(5, 96).bfloat16()
    for group in (32, 128):  # the last group is a part of one
        weight = fp8(64, 96, input_group=group)
        assert torch.equal(
            linear(x, weight), linear(round_groups(x, group), dense(weight, x.dtype))
        )
        assert not torch.equal(round_groups(x, group), x)


def test_rounding_in_groups_keeps_each_value_within_a_sixteenth_and_its_scale_a_power_of_two():
    x = torch.randn(7, 80, dtype=torch.float64) * torch.logspace(-3, 3, 7).unsqueeze(1)
    values, scale = quantise_groups(x, 32)
    assert values.dtype == torch.float8_e4m3fn
    assert scale.shape == (7, 3)
    spread = torch.exp2(scale.double() - 127).repeat_interleave(32, 1)[:, :80]
    assert ((values.double() * spread - x).abs() <= x.abs() / 16 + spread * 2**-10).all()
    assert (values.float().abs() > 224).any(1).all(), "a smaller scale would have done"
    assert torch.equal(dequantise_groups(values, scale, 32).double(), values.double() * spread)


def test_a_group_of_zeros_stays_zero_and_one_with_an_infinity_is_nan():
    x = torch.zeros(1, 64)
    x[0, 40] = torch.inf
    got = round_groups(x, 32)
    assert torch.equal(got[:, :32], x[:, :32])
    assert got[:, 32:].isnan().all()


def test_joined_rows_stay_packed_where_no_tile_is_shared():
    first, second = fp8(64, 96), fp8(40, 96)
    whole = joined([first, second], torch.float32)
    assert isinstance(whole, Fp8Weight)
    parts = torch.cat((first.dequantised(), second.dequantised()))
    assert torch.equal(whole.dequantised(), parts)
    assert torch.equal(rows_of(whole, 64, 104).dequantised(), parts[64:])
    swapped = joined([second, first], torch.float32)
    assert isinstance(swapped, torch.Tensor), "a tile would hold rows of both"
    assert torch.equal(swapped, torch.cat((second.dequantised(), first.dequantised())))


def test_matrices_packed_unlike_are_joined_plain():
    for other in (torch.randn(64, 96), mxfp4(64, 96), fp8(64, 96, input_group=32)):
        both = joined([fp8(64, 96), other], torch.float64)
        assert isinstance(both, torch.Tensor)
        assert both.dtype == torch.float64


@pytest.mark.parametrize("make", [fp8, mxfp4])
def test_stacked_matrices_come_apart_again(make):
    each = [make(64, 96) for _ in range(3)]
    whole = stacked(each, torch.float32)
    assert type(whole) is type(each[0])
    assert whole.shape == (3, 64, 96)
    for i, one in enumerate(each):
        assert torch.equal(matrix(whole, i).dequantised(), one.dequantised())


@pytest.mark.parametrize(("groups", "is_packed"), [(2, True), (4, False)])
def test_groups_of_rows_stay_packed_where_no_tile_is_cut(groups, is_packed):
    weight, x = fp8(128 if is_packed else 96, 64), torch.randn(5, groups, 64)
    split = split_rows(weight, groups, torch.float32)
    assert isinstance(split, Fp8Weight) is is_packed
    got, whole = grouped_linear(x, split), weight.dequantised().unflatten(0, (groups, -1))
    for group in range(groups):
        torch.testing.assert_close(got[:, group], x[:, group] @ whole[group].T)
