import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import RequestError
from engine.request import SamplingParams
from engine.sampling import draw_seed
from engine.sampling_checks import validate
from tests.fakes.hash_model import FACTS
from tests.fakes.sampling import Rows, choose

EOS = 1


def one(logits, *, position=10, output_index=0, seed=0, **params):
    rows = Rows(SamplingParams(**params), seed, 1, position, output_index)
    return choose(torch.tensor([logits]), [rows], EOS)[0]


def draws(logits, count, **params):
    """Tokens at `count` positions of one seeded sequence with the same logits everywhere."""
    rows = Rows(SamplingParams(**params), 7, count, 0, 0)
    return choose(torch.tensor([logits]).expand(count, -1), [rows], EOS)


def test_greedy_takes_the_highest_and_the_lowest_id_on_ties():
    assert one([0.0, 2.0, 1.0], temperature=0.0) == 1
    assert one([0.0, 2.0, 2.0, 2.0], temperature=0.0) == 1
    assert one([-math.inf, 5.0, 5.0], temperature=0.0) == 1


def test_sampling_follows_the_softmax():
    logits, count = [0.0, 1.0, 2.0, -1.0], 40_000
    for temperature in (0.5, 1.0, 1.5):
        found = torch.bincount(torch.tensor(draws(logits, count, temperature=temperature)))
        expected = (torch.tensor(logits) / temperature).softmax(0) * count
        chi_square = float(((found - expected) ** 2 / expected).sum())
        assert chi_square < 16.27  # p = 0.001 at 3 degrees of freedom


def test_top_k_keeps_the_k_best_and_the_lowest_ids_on_ties():
    assert set(draws([1.0, 1.0, 1.0, 5.0], 500, top_k=2)) == {0, 3}
    assert set(draws([1.0, 3.0, 2.0], 100, top_k=1)) == {1}
    assert set(draws([1.0, 1.0, 1.0], 500, top_k=99)) == {0, 1, 2}


def test_top_p_keeps_the_smallest_nucleus_that_reaches_it():
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().tolist()
    assert set(draws(logits, 2000, top_p=0.5)) == {0}
    assert set(draws(logits, 2000, top_p=0.6)) == {0, 1}
    assert set(draws(logits, 2000, top_p=0.9)) == {0, 1, 2}
    assert set(draws(logits, 4000, top_p=1.0)) == {0, 1, 2, 3}
    assert set(draws(logits, 2000, top_p=1e-9)) == {0}


def test_top_p_applies_to_what_top_k_left():
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().tolist()
    assert set(draws(logits, 4000, top_p=0.56)) == {0, 1}
    assert set(draws(logits, 4000, top_p=0.56, top_k=2)) == {0}  # 0.4 of 0.7 is 0.57


@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.floats(-5, 5), min_size=3, max_size=9),
    st.integers(1, 6),
    st.integers(0, 10**6),
)
def test_a_row_chooses_the_same_alone_and_in_any_batch(seed, logits, rows, position):
    params = SamplingParams(temperature=0.8, top_p=0.9, top_k=4)
    table = torch.tensor([logits]).expand(rows, -1).double()
    groups = [
        Rows(params, seed, rows, position, 0),
        Rows(SamplingParams(temperature=0.0), 3, rows, 0, 0),
        Rows(SamplingParams(temperature=2.0), seed + 1, rows, position, 0),
    ]
    together = choose(table.repeat(3, 1), groups, EOS)
    for i in range(rows):
        alone = Rows(params, seed, 1, position + i, i)
        assert choose(table[:1], [alone], EOS)[0] == together[i]
    assert together[rows : 2 * rows] == [int(table[0].argmax())] * rows


def test_seeds_and_positions_give_different_noise():
    flat = [0.0] * 1000
    assert one(flat, position=1) != one(flat, position=2)
    assert one(flat, seed=1) != one(flat, seed=2)
    assert len({draw_seed(0, n) for n in range(1000)}) == 1000
    assert draw_seed(0, 1) != draw_seed(1, 1)


def test_min_tokens_bars_what_would_stop_the_sequence():
    logits = [0.0, 9.0, 8.0, 1.0]
    asked = {"temperature": 0.0, "stop_token_ids": (2,), "min_tokens": 2}
    assert one(logits, output_index=0, **asked) == 3
    assert one(logits, output_index=1, **asked) == 3
    assert one(logits, output_index=2, **asked) == EOS
    assert one(logits, output_index=0, ignore_eos=True, **asked) == EOS


def test_golden_tokens_are_forced():
    params = SamplingParams(temperature=0.0, golden_token_ids=(5, 6, 7), max_tokens=3)
    rows = Rows(params, 0, 2, 11, 1)
    assert choose(torch.zeros(2, 9), [rows], EOS) == [6, 7]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_finite_chooses_nothing(bad, temperature):
    table = torch.tensor([[0.0, bad, 1.0], [0.0, 3.0, 1.0]])
    rows = Rows(SamplingParams(temperature=temperature, top_k=1), 0, 2, 0, 0)
    assert choose(table, [rows], EOS) == [None, 1]


@pytest.mark.parametrize(
    ("field", "params"),
    [
        ("temperature", {"temperature": -0.1}),
        ("temperature", {"temperature": math.nan}),
        ("temperature", {"temperature": math.inf}),
        ("temperature", {"temperature": "hot"}),
        ("top_p", {"top_p": 0.0}),
        ("top_p", {"top_p": 1.5}),
        ("top_k", {"top_k": 0}),
        ("top_k", {"top_k": -1}),
        ("max_tokens", {"max_tokens": 0}),
        ("max_tokens", {"max_tokens": None}),
        ("min_tokens", {"min_tokens": -1}),
        ("min_tokens", {"min_tokens": 17}),
        ("seq_seed", {"seq_seed": -1}),
        ("logprobs", {"logprobs": -1}),
        ("logprobs", {"logprobs": 24}),
        ("stop_token_ids", {"stop_token_ids": (23,)}),
        ("golden_token_ids", {"golden_token_ids": (1, 2)}),
        ("golden_token_ids", {"golden_token_ids": (-1,) * 16}),
        ("temperature", {"temperature": 10**400}),
        ("top_p", {"top_p": 10**400}),
        ("stop_token_ids", {"stop_token_ids": 5}),
        ("stop_token_ids", {"stop_token_ids": "5"}),
        ("stop_token_ids", {"stop_token_ids": (True,)}),
        ("stop_token_ids", {"stop_token_ids": None}),
        ("golden_token_ids", {"golden_token_ids": 5}),
        ("golden_token_ids", {"golden_token_ids": (np.int64(1),) * 16}),
        ("ignore_eos", {"ignore_eos": "yes"}),
        ("prompt_logprobs", {"prompt_logprobs": 1}),
        ("so_args", {"so_args": {"schema_type": "json"}}),
    ],
)
def test_parameters_that_cannot_be_served_are_refused_by_field(field, params):
    with pytest.raises(RequestError) as refusal:
        validate(SamplingParams(**params), FACTS, where="request 1")
    assert refusal.value.what.startswith(field)
    assert refusal.value.where == "request 1"
    assert refusal.value.remedy


def test_parameters_at_their_limits_are_served():
    edge = SamplingParams(
        temperature=0, top_p=1.0, top_k=1, max_tokens=1, min_tokens=1, logprobs=23, seq_seed=0
    )
    validate(edge, FACTS, where="request 1")


@pytest.mark.parametrize("temperature", [1e-308, 5e-324, 9.9e-6])
def test_a_temperature_too_cold_to_divide_by_is_greedy(temperature):
    table = torch.tensor([[1.0, 3.0, 2.0]])
    params = SamplingParams(temperature=temperature, top_p=0.9)
    assert choose(table, [Rows(params, 7, 1, 0, 0)], EOS) == [1]


@pytest.mark.parametrize("temperature", [1e-5, 1e308])
def test_the_coldest_and_hottest_temperatures_choose_a_token(temperature):
    table = torch.tensor([[1e38, 3e38, -3e38], [0.0, -math.inf, 1.0]])
    params = SamplingParams(temperature=temperature, top_k=10**30, top_p=0.5)
    found = choose(table, [Rows(params, 7, 2, 0, 0)], EOS)
    assert None not in found
    assert temperature > 1 or found == [1, 2]
