"""Seeded choice in one pass on a CPU: the tokens of the definition, whatever the scale."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.cases_selection import choose_case
from kernels.ops import REFERENCE
from kernels.sampling.numba_cpu import choose_highest, choose_tokens
from kernels.sampling.reference import SamplingRules

VOCABS = st.sampled_from([1, 2, 3, 63, 64, 65, 127, 130, 1000])
TEMPERATURES = st.sampled_from([0.0, 1e-5, 1e-4, 0.01, 0.7, 1.0, 2.0, 50.0])


@given(VOCABS, TEMPERATURES, st.floats(0.01, 300), st.booleans(), st.integers(0, 2**31))
def test_the_tokens_are_those_of_the_definition(vocab, temperature, scale, has_ties, seed):
    torch.manual_seed(seed)
    logits = torch.randn(5, vocab) * scale
    logits = logits.round() if has_ties else logits
    logits[1, vocab // 2] = -torch.inf
    rules = SamplingRules(
        temperatures=torch.full((5,), temperature, dtype=torch.float64),
        seeds=torch.randint(-(2**62), 2**62, (5,)),
    )
    positions = torch.randint(0, 10**6, (5,))
    found = choose_tokens(logits, positions, rules)
    exact = REFERENCE.choose_tokens(logits, positions, rules)
    assert torch.equal(found.is_finite, exact.is_finite)
    assert torch.equal(found.token_ids[found.is_finite], exact.token_ids[exact.is_finite])
    highest, first = choose_highest(logits), REFERENCE.choose_highest(logits)
    assert torch.equal(highest.is_finite, first.is_finite)
    assert torch.equal(highest.token_ids[highest.is_finite], first.token_ids[first.is_finite])


@pytest.mark.parametrize("value", [torch.nan, -torch.nan, torch.inf])
@pytest.mark.parametrize("at", [0, 40, 64])
def test_a_row_that_is_not_finite_is_told_and_spoils_no_other(value, at):
    logits, positions, rules = choose_case(65, is_narrow=False).make(
        3, torch.float32, torch.device("cpu")
    )
    expected = choose_tokens(logits, positions, rules)
    logits[1, at] = value
    found = choose_tokens(logits, positions, rules)
    assert found.is_finite.tolist() == [True, False, True]
    assert torch.equal(found.token_ids[[0, 2]], expected.token_ids[[0, 2]])
    assert 0 <= found.token_ids[1] < 65
    assert choose_highest(logits).is_finite.tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("is_narrow", [False, True])
def test_every_kind_of_rule(dtype, is_narrow):
    case = choose_case(257, is_narrow=is_narrow)
    arguments = case.make(9, dtype, torch.device("cpu"))
    found, exact = choose_tokens(*arguments), REFERENCE.choose_tokens(*arguments)
    assert torch.equal(found.token_ids, exact.token_ids)
