"""Drawing tokens by rule, seed and position: the definition against shares and loops."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.sampling.reference import (
    Narrowing,
    SamplingRules,
    choose_highest,
    choose_tokens,
    mixed,
    mixed_words,
    noise,
    signed,
)


def rules(rows, temperature=1.0, seed=7, top_k=10**6, top_p=1.0, min_p=0.0):
    def of(value):
        return torch.full((rows,), value, dtype=torch.float64)

    narrowing = Narrowing(top_k=torch.full((rows,), top_k), top_p=of(top_p), min_p=of(min_p))
    seeds = torch.full((rows,), signed(mixed(seed)))
    return SamplingRules(temperatures=of(temperature), seeds=seeds, narrowing=narrowing)


def draws(logits, count, **rule):
    table = torch.tensor([logits]).expand(count, -1)
    return choose_tokens(table, torch.arange(count), rules(count, **rule)).token_ids


def chi_square(found, expected):
    return float(((found - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_tokens_are_drawn_from_the_softmax(temperature):
    logits, count = [0.0, 1.0, 2.0, -1.0], 40_000
    found = torch.bincount(draws(logits, count, temperature=temperature), minlength=4)
    expected = (torch.tensor(logits) / temperature).softmax(0) * count
    assert chi_square(found, expected) < 16.27  # p = 0.001 at 3 degrees of freedom


def test_equal_logits_are_drawn_equally_often():  # and not the lowest id
    found = torch.bincount(draws([1.0] * 101, 40_400), minlength=101)
    assert chi_square(found, torch.full((101,), 400.0)) < 149.4  # p = 0.001 at 100 degrees


def test_a_peak_does_not_keep_what_top_k_leaves_out():
    found = draws([9.0, *[0.0] * 50], 20_000, top_k=3)
    assert set(found.tolist()) == {0, 1, 2}


def test_min_p_keeps_what_is_likely_enough():
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().tolist()
    assert set(draws(logits, 4000, min_p=0.31).tolist()) == {0, 1}
    assert set(draws(logits, 4000, min_p=1.0).tolist()) == {0}


def test_two_tokens_of_a_word_have_independent_noise():
    drawn = noise(torch.tensor([signed(mixed(3))] * 500), torch.arange(500), 64)
    assert abs(float(drawn.mean()) - 0.5772) < 0.02  # Euler's constant
    assert abs(float(drawn.var()) - math.pi**2 / 6) < 0.05
    even, odd = drawn[:, ::2].flatten(), drawn[:, 1::2].flatten()
    pair = float(torch.corrcoef(torch.stack((even, odd)))[0, 1])
    assert abs(pair) < 4 / len(even) ** 0.5


@given(st.integers(0, 2**64 - 1))
def test_words_are_mixed_alike_as_numbers_and_in_tensors(word):
    assert int(mixed_words(torch.tensor([signed(word)]))[0]) == signed(mixed(word))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rows_that_are_not_finite_are_flagged_and_stay_in_the_vocabulary(bad):
    table = torch.tensor([[0.0, bad, 1.0], [-math.inf] * 3, [0.0, 3.0, 1.0]])
    for choice in (choose_highest(table), choose_tokens(table, torch.arange(3), rules(3, top_k=1))):
        assert choice.is_finite.tolist() == [False, False, True]
        assert int(choice.token_ids[2]) == 1
        assert int(choice.token_ids.max()) < 3
