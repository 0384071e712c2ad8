import lzma
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from safetensors.torch import load

from engine.cache.groups import RowFormat
from kernels.formats import (
    FP4_GROUP16,
    FP4_GROUP32,
    FP8_GROUP32,
    FP8_GROUP64_TAIL,
    FP8_GROUP128,
    PACKED_FORMATS,
    ROW_LAYOUTS,
    pack,
    quantise_dequantise,
    row_bytes,
    unpack,
)
from kernels.quantize.reference import FormatError, quantise_groups, ue8m0_value

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "quantisers.safetensors.xz"
WIDTH = 64

every_format = pytest.mark.parametrize("fmt", PACKED_FORMATS)
finite = st.floats(-(2.0**125), 2.0**125, width=32)
rows = st.lists(finite, min_size=WIDTH, max_size=WIDTH).map(torch.tensor)


def bits(x):
    return x.view(torch.int32)


def through_bytes(x, fmt):
    return unpack(pack(x, fmt), fmt, x.shape[-1], x.dtype)


@every_format
def test_dequantised_rows_equal_the_golden_ones_bit_for_bit(fmt):
    golden = load(lzma.decompress(GOLDEN.read_bytes()))
    assert torch.equal(bits(quantise_dequantise(golden["input"], fmt)), bits(golden[fmt]))


@every_format
def test_packed_rows_unpack_to_the_golden_ones_bit_for_bit(fmt):
    golden = load(lzma.decompress(GOLDEN.read_bytes()))
    assert torch.equal(bits(through_bytes(golden["input"], fmt)), bits(golden[fmt]))


@pytest.mark.parametrize(
    ("fmt", "width", "expected"),
    [
        (FP8_GROUP32, 512, 528),
        (FP4_GROUP16, 512, 288),
        (FP4_GROUP32, 128, 68),
        (FP8_GROUP64_TAIL, 512, 584),
        (FP8_GROUP128, 128, 132),
    ],
)
def test_released_rows_have_their_published_size(fmt, width, expected):
    assert row_bytes(fmt, width) == expected
    assert pack(torch.ones(3, 2, width), fmt).shape == (3, 2, expected)


def test_names_are_those_that_a_cache_group_declares():
    declared = {RowFormat.FP8_GROUP32, RowFormat.FP4_GROUP16, RowFormat.FP4_GROUP32}
    assert declared == set(PACKED_FORMATS)


def test_one_fp8_row_lies_in_bytes_as_worked_by_hand():
    row = torch.zeros(32)
    row[0], row[1], row[2] = 448.0, -1.0, 2.0**-9  # scale 1 = byte 127
    packed = pack(row, FP8_GROUP32).tolist()
    assert packed[:3] == [0x7E, 0xB8, 0x01]
    assert packed[32:] == [127]


def test_one_fp8_row_with_a_tail_lies_in_bytes_as_worked_by_hand():
    row = torch.zeros(128)
    row[0], row[1], row[64], row[127] = 448.0, -1.0, 1.0, -2.0
    packed = pack(row, FP8_GROUP64_TAIL).tolist()
    assert packed[:2] == [0x7E, 0xB8]
    assert packed[64:66] == [0x80, 0x3F]  # bfloat16, the low byte first
    assert packed[190:192] == [0x00, 0xC0]
    assert packed[192:] == [127, 0]
    back = unpack(pack(row, FP8_GROUP64_TAIL), FP8_GROUP64_TAIL, 128, torch.float32)
    assert torch.equal(back, row)
    assert torch.equal(quantise_dequantise(row, FP8_GROUP64_TAIL), row)


def test_one_fp8_row_with_a_float32_scale_lies_in_bytes_as_worked_by_hand():
    row = torch.zeros(128)
    row[0], row[1], row[127] = 896.0, -2.0, 2.0**-8  # scale 2 = 0x40000000
    packed = pack(row, FP8_GROUP128)
    assert packed.tolist() == [0x7E, 0xB8, *[0] * 125, 0x01, 0, 0, 0, 0x40]
    assert torch.equal(unpack(packed, FP8_GROUP128, 128, torch.float32), row)


@given(row=st.lists(finite, min_size=128, max_size=128).map(torch.tensor))
def test_a_float32_scale_is_the_power_of_two_that_one_byte_would_hold(row):
    values, scale = quantise_groups(row, 128)
    packed = pack(row, FP8_GROUP128)
    assert torch.equal(packed[:128], values.view(torch.uint8))
    assert torch.equal(packed[128:].clone().view(torch.float32), ue8m0_value(scale))
    through = through_bytes(row, FP8_GROUP128)
    assert torch.equal(bits(through), bits(quantise_dequantise(row, FP8_GROUP128)))


def test_a_row_that_others_wrote_with_any_float32_scale_is_read_by_it():
    row = pack(torch.linspace(-3, 3, 128), FP8_GROUP128)
    held = unpack(row, FP8_GROUP128, 128, torch.float32) / row[128:].clone().view(torch.float32)
    row[128:] = torch.tensor([0.3]).view(torch.uint8)
    assert torch.equal(unpack(row, FP8_GROUP128, 128, torch.float32), held * 0.3)


def test_a_row_with_a_float32_scale_is_nan_throughout_where_it_held_one():
    for poison in (torch.nan, torch.inf, -torch.inf):
        row = torch.ones(2, 256)
        row[0, 3] = poison
        for result in (through_bytes(row, FP8_GROUP128), quantise_dequantise(row, FP8_GROUP128)):
            assert result[0, :128].isnan().all()
            assert torch.equal(result[0, 128:], row[0, 128:])
            assert torch.equal(result[1], row[1])


@pytest.mark.parametrize("fmt", ROW_LAYOUTS)
def test_rounding_in_groups_leans_neither_up_nor_down(fmt):
    rows = torch.randn(400, 128, generator=torch.Generator().manual_seed(1))
    moved = (quantise_dequantise(rows, fmt) - rows).double()
    assert moved.mean().abs() < 5 * moved.std() / moved.numel() ** 0.5


@pytest.mark.parametrize("width", [64, 100, 0])
def test_a_width_without_room_for_whole_groups_beside_the_tail_is_refused(width):
    with pytest.raises(FormatError, match=f"a width of {width} cannot be stored"):
        row_bytes(FP8_GROUP64_TAIL, width)


def test_one_fp4_row_lies_in_bytes_as_worked_by_hand():
    row = torch.zeros(32)
    row[:4] = torch.tensor([6.0, -0.5, 1.5, -4.0])  # codes 7, 9, 3, 14; even element low
    assert pack(row, FP4_GROUP32).tolist() == [0x97, 0xE3, *[0] * 14, 127]
    by_16 = pack(row, FP4_GROUP16).tolist()
    assert by_16[:2] == [0x97, 0xE3]
    assert by_16[16:] == [0x38, 0x01]  # e4m3 of 1, and of the floor 2^-9


@every_format
@given(row=rows)
def test_bytes_and_arithmetic_give_the_same_row(fmt, row):
    assert torch.equal(bits(through_bytes(row, fmt)), bits(quantise_dequantise(row, fmt)))


@pytest.mark.parametrize("fmt", [FP8_GROUP32, FP4_GROUP32])
@given(row=rows)
def test_quantising_twice_changes_nothing(fmt, row):
    once = quantise_dequantise(row, fmt)
    assert torch.equal(quantise_dequantise(once, fmt), once)


@given(row=st.lists(st.floats(-2000, 2000, width=32), min_size=16, max_size=16).map(torch.tensor))
def test_quantising_to_e4m3_scales_twice_changes_nothing_above_the_subnormal_scales(row):
    row[0] = 6 * 2.0**-6 + row[0].abs()
    once = quantise_dequantise(row, FP4_GROUP16)
    assert torch.equal(quantise_dequantise(once, FP4_GROUP16), once)


@every_format
@given(row=st.lists(st.floats(-300, 300, width=32), min_size=WIDTH, max_size=WIDTH))
def test_no_value_moves_further_than_the_coarsest_step_of_its_group(fmt, row):
    row = torch.tensor(row)
    group = 16 if fmt == FP4_GROUP16 else 32
    largest = row.view(-1, group).abs().amax(-1, keepdim=True).clamp_min(0.1)
    step = {FP8_GROUP32: 1 / 14, FP4_GROUP16: 1 / 5, FP4_GROUP32: 1 / 3}[fmt]
    moved = (quantise_dequantise(row, fmt) - row).view(-1, group).abs()
    assert bool((moved <= largest * step).all())


@every_format
def test_rows_of_zeros_stay_zero(fmt):
    assert torch.equal(through_bytes(torch.zeros(2, WIDTH), fmt), torch.zeros(2, WIDTH))


@every_format
def test_a_group_with_a_nan_or_an_infinity_comes_back_as_nan_and_harms_no_other(fmt):
    for poison in (torch.nan, torch.inf, -torch.inf):
        row = torch.full((WIDTH,), 6.0)
        row[3] = poison
        for result in (through_bytes(row, fmt), quantise_dequantise(row, fmt)):
            assert bool(result[:16].isnan().all())
            assert torch.equal(result[32:], torch.full((32,), 6.0))


def test_fp4_with_e4m3_scales_saturates():
    assert quantise_dequantise(torch.full((16,), 1e30), FP4_GROUP16).tolist() == [2688.0] * 16


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0)],
)
def test_fp4_ties_go_to_the_even_code(value, rounded):
    row = torch.zeros(32)
    row[0], row[1], row[2] = 6.0, value, -value
    assert quantise_dequantise(row, FP4_GROUP32)[:3].tolist() == [6.0, rounded, -rounded]


@every_format
def test_float64_rows_are_rounded_to_float32_first(fmt):
    row = torch.linspace(-3, 3, WIDTH, dtype=torch.float64) / 7
    expected = quantise_dequantise(row.to(torch.float32), fmt)
    assert quantise_dequantise(row, fmt).dtype == torch.float64
    assert torch.equal(quantise_dequantise(row, fmt), expected.to(torch.float64))
    assert torch.equal(through_bytes(row, fmt), expected.to(torch.float64))


@every_format
def test_unpacked_rows_are_rounded_once_to_the_asked_type(fmt):
    row = torch.linspace(-3, 3, WIDTH)
    exact = through_bytes(row, fmt)
    assert torch.equal(unpack(pack(row, fmt), fmt, WIDTH, torch.bfloat16), exact.to(torch.bfloat16))


@every_format
def test_a_width_that_the_group_does_not_divide_is_refused(fmt):
    for attempt in (
        lambda: row_bytes(fmt, 40),
        lambda: pack(torch.zeros(40), fmt),
        lambda: quantise_dequantise(torch.zeros(40), fmt),
    ):
        with pytest.raises(FormatError, match="width of 40"):
            attempt()


def test_rows_of_the_wrong_length_or_type_are_refused():
    with pytest.raises(FormatError, match="528 bytes"):
        unpack(torch.zeros(527, dtype=torch.uint8), FP8_GROUP32, 512, torch.float32)
    with pytest.raises(FormatError, match=r"torch\.int8"):
        unpack(torch.zeros(528, dtype=torch.int8), FP8_GROUP32, 512, torch.float32)


def test_an_unpacked_format_is_refused():
    with pytest.raises(FormatError, match="'plain' is not a packed row format"):
        row_bytes("plain", 512)


@every_format
def test_one_row_that_lies_among_others_is_read_like_any(fmt):
    packed = pack(torch.randn(3, 32), fmt)  # rows of an odd number of bytes in some formats
    expected = unpack(packed, fmt, 32, torch.float32)
    assert torch.equal(unpack(packed[1:2], fmt, 32, torch.float32), expected[1:2])
    assert torch.equal(unpack(packed[:0], fmt, 32, torch.float32), expected[:0])
