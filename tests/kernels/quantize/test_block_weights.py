import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from kernels.quantize.reference import (
    FormatError,
    dequantise_fp8_blocks,
    dequantise_mxfp4,
    e2m1_encode,
    e2m1_value,
    e4m3_round,
    quantise_fp8_blocks,
    quantise_mxfp4,
    ue8m0_scale,
    ue8m0_value,
)

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(ratio=st.floats(2.0**-120, 2.0**120, width=32))
def test_scale_is_the_least_power_of_two_not_below_the_ratio(ratio):
    mantissa, exponent = math.frexp(ratio)  # ratio = mantissa * 2^exponent, mantissa in [1/2, 1)
    expected = exponent - 1 if mantissa == 0.5 else exponent
    scale = ue8m0_scale(torch.tensor([ratio]), 1.0)
    assert scale.item() == expected + 127
    assert ue8m0_value(scale).item() == 2.0**expected


def test_every_scale_byte_has_its_value():
    values = ue8m0_value(torch.arange(256, dtype=torch.uint8)).tolist()
    assert values[:255] == [2.0 ** (byte - 127) for byte in range(255)]
    assert math.isnan(values[255])


@given(value=st.floats(-8, 8, width=32))
def test_fp4_codes_are_the_nearest_with_ties_to_even(value):
    magnitude = min(abs(value), 6.0)
    nearest = min(range(8), key=lambda code: (abs(E2M1[code] - magnitude), code % 2))
    code = e2m1_encode(torch.tensor([value])).item()
    assert code & 7 == nearest
    assert bool(code & 8) == (math.copysign(1, value) < 0)
    assert abs(e2m1_value(torch.tensor([code])).item()) == E2M1[nearest]


def test_fp8_saturates_instead_of_overflowing():
    assert e4m3_round(torch.tensor([1e9, -1e9, 460.0])).float().tolist() == [448.0, -448.0, 448.0]


def test_every_fp8_tile_has_its_own_scale():
    weight = torch.zeros(64, 64)
    weight[0, 0], weight[0, 63], weight[63, 0] = 448.0, 896.0, 449.0
    values, scale = quantise_fp8_blocks(weight, (32, 32))
    assert values.dtype == torch.float8_e4m3fn
    assert scale.dtype == torch.float8_e8m0fnu
    assert scale.view(torch.uint8).tolist() == [[127, 128], [128, 1]]


@pytest.mark.parametrize("shape", [(64, 96), (33, 70), (1, 31), (5, 32)])
@pytest.mark.parametrize("block", [(32, 32), (128, 128), (1, 32)])
def test_fp8_blocks_come_back_within_half_a_step(shape, block):
    weight = noise(*shape)
    values, scale = quantise_fp8_blocks(weight, block)
    assert scale.shape == (-(-shape[0] // block[0]), -(-shape[1] // block[1]))
    back = dequantise_fp8_blocks(values, scale, block)
    assert back.shape == weight.shape
    floor = weight.abs().max() * 2.0**-17  # half a subnormal step of the coarsest tile
    assert bool(((back - weight).abs() <= weight.abs() / 16 + floor).all())


def test_fp8_blocks_quantise_to_themselves():
    values, scale = quantise_fp8_blocks(noise(48, 80), (32, 32))
    weight = dequantise_fp8_blocks(values, scale, (32, 32))
    again = dequantise_fp8_blocks(*quantise_fp8_blocks(weight, (32, 32)), (32, 32))
    assert torch.equal(again, weight)


def test_scales_are_read_alike_as_bytes_and_as_e8m0():
    values, scale = quantise_fp8_blocks(noise(32, 64), (32, 32))
    by_bytes = dequantise_fp8_blocks(values, scale.view(torch.uint8), (32, 32))
    assert torch.equal(by_bytes, dequantise_fp8_blocks(values, scale, (32, 32)))


def test_one_mxfp4_row_lies_in_bytes_as_worked_by_hand():
    weight = torch.zeros(1, 64)
    weight[0, 0], weight[0, 1], weight[0, 33] = 12.0, -2.0, 0.375
    packed, scale = quantise_mxfp4(weight)
    assert packed.dtype == torch.int8
    codes = packed.view(torch.uint8)[0].tolist()
    # group 0: 12 / 6 = 2, scale 2, codes 6 -> 7 and -1 -> 10; group 1: scale 1/16, 6 -> 7
    assert codes[0] == 0xA7
    assert codes[16] == 0x70
    assert scale.view(torch.uint8).tolist() == [[128, 123]]
    assert torch.equal(dequantise_mxfp4(packed, scale), weight)


def test_mxfp4_comes_back_within_half_a_step():
    weight = noise(16, 96)
    back = dequantise_mxfp4(*quantise_mxfp4(weight))
    largest = weight.view(16, 3, 32).abs().amax(-1, keepdim=True)
    assert bool(((back - weight).view(16, 3, 32).abs() <= largest / 3).all())
    assert torch.equal(dequantise_mxfp4(*quantise_mxfp4(back)), back)


def test_zero_weights_stay_zero():
    zeros = torch.zeros(32, 64)
    assert torch.equal(
        dequantise_fp8_blocks(*quantise_fp8_blocks(zeros, (32, 32)), (32, 32)), zeros
    )
    assert torch.equal(dequantise_mxfp4(*quantise_mxfp4(zeros)), zeros)


def test_scales_of_the_wrong_shape_are_refused():
    values, scale = quantise_fp8_blocks(noise(64, 64), (32, 32))
    with pytest.raises(FormatError, match=r"needs scales of \[2, 2\], not \[1, 2\]"):
        dequantise_fp8_blocks(values, scale[:1], (32, 32))
    packed, scale = quantise_mxfp4(noise(4, 64))
    with pytest.raises(FormatError, match=r"need scales of \[4, 2\]"):
        dequantise_mxfp4(packed, scale[:, :1])


def test_inputs_that_32_does_not_divide_are_refused():
    with pytest.raises(FormatError, match="width of 40"):
        quantise_mxfp4(noise(4, 40))
