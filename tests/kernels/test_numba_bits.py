"""bfloat16 as bits in compiled loops, against torch and against double precision."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.numba_bits import (
    bits_at,
    compiled,
    exponential,
    floats_at,
    high,
    joined,
    low,
    narrow,
    pairs_at,
    widen,
)

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=True)


@compiled
def there(floats, words, count):
    given, made = floats_at(floats, (count,)), bits_at(words, (count,))
    for i in range(count):
        made[i] = narrow(given[i])


@compiled
def and_back(words, floats, count):
    given, made = bits_at(words, (count,)), floats_at(floats, (count,))
    for i in range(count):
        made[i] = widen(given[i])


@compiled
def swapped(pairs, count):
    held = pairs_at(pairs, (count,))
    for i in range(count):
        held[i] = joined(narrow(high(held[i])), narrow(low(held[i])))


@compiled
def exponentials(values, made):
    for i in range(len(values)):
        made[i] = exponential(values[i])


@given(st.lists(FLOATS, min_size=1, max_size=40))
def test_rounding_is_that_of_torch(values):
    exact = torch.tensor(values, dtype=torch.float32)
    found = torch.empty(len(values), dtype=torch.bfloat16)
    there(exact.data_ptr(), found.data_ptr(), len(values))
    expected = exact.bfloat16()
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(1.0), expected.nan_to_num(1.0))
    wide = torch.empty(len(values))
    and_back(found.data_ptr(), wide.data_ptr(), len(values))
    assert torch.equal(wide.nan_to_num(1.0), expected.float().nan_to_num(1.0))


def test_neighbours_are_taken_apart_and_joined():
    values = torch.randn(8).bfloat16()
    expected = values.view(-1, 2).flip(1).flatten()
    swapped(values.data_ptr(), 4)
    assert torch.equal(values, expected)


def test_the_exponential_is_exact_to_half_a_millionth():
    values = np.linspace(-87, 88, 200_001).astype(np.float32)
    found = np.empty_like(values)
    exponentials(values, found)
    exact = np.exp(values.astype(np.float64))
    assert np.abs(found / exact - 1).max() < 5e-7


def test_the_exponential_beyond_its_range():
    values = np.array([np.nan, -np.inf, np.inf, 0.0], np.float32)
    found = np.empty_like(values)
    exponentials(values, found)
    assert np.isnan(found[0])
    assert 0 < found[1] < 1.1 * np.exp(-87.0)
    assert found[2] > 0.9 * np.exp(88.0)
    assert found[3] == 1
