"""Log-probabilities against a loop."""

import math

import pytest
import torch

from kernels.logprobs.reference import log_probabilities


def naive(row):
    total = math.log(math.fsum(math.exp(x) for x in row))
    return [x - total for x in row]


def test_rows_are_taken_where_they_are_asked_for_and_the_best_come_first():
    logits = torch.randn(5, 9, dtype=torch.float64)
    rows, token_ids = torch.tensor([4, 0, 4]), torch.tensor([8, 2, 0])
    found = log_probabilities(logits, rows, token_ids, 3)
    for k in range(3):
        exact = naive(logits[rows[k]].tolist())
        order = sorted(range(9), key=lambda v: (-exact[v], v))[:3]
        assert float(found.of_token[k]) == pytest.approx(exact[token_ids[k]])
        assert found.top_ids[k].tolist() == order
        assert found.top[k].tolist() == pytest.approx([exact[v] for v in order])


def test_equal_logits_go_to_the_lowest_id_and_only_equal_ones():
    # 16 apart, so close that as float32 their log-probabilities are equal.
    close = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    logits = torch.tensor([[1.0, float(close), 30.0, 30.0]])
    found = log_probabilities(logits, torch.tensor([0]), torch.tensor([0]), 4)
    assert found.top_ids.tolist() == [[2, 3, 1, 0]]
    assert found.top[0, 2] == found.top[0, 3]


def test_none_of_the_most_likely_may_be_asked_for_and_bfloat16_is_widened():
    logits = torch.randn(2, 6).bfloat16()
    found = log_probabilities(logits, torch.tensor([1]), torch.tensor([3]), 0)
    assert (found.top.shape, found.top_ids.dtype) == ((1, 0), torch.int64)
    assert found.of_token.dtype == torch.float32
    assert float(found.of_token) == pytest.approx(naive(logits[1].tolist())[3], abs=1e-5)
