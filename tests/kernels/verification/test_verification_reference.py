"""Verifying drafts against a loop."""

import pytest
import torch

from kernels.sampling.reference import SamplingRules, choose_tokens
from kernels.verification.reference import Drafts, accept, verify


def said(logits, first, rule):
    """Token by token, as one that drafts nothing chooses."""
    temperature, seed = rule
    rules = SamplingRules(
        temperatures=torch.tensor([temperature], dtype=torch.float64), seeds=torch.tensor([seed])
    )
    rows = enumerate(logits.unsqueeze(1), int(first))
    return [int(choose_tokens(row, torch.tensor([at]), rules).token_ids) for at, row in rows]


def drafts_of(guesses, counts):
    return Drafts(guesses=torch.tensor(guesses), counts=torch.tensor(counts))


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_what_stands_is_what_would_have_been_said_without_drafts(temperature):
    logits = torch.randn(2, 4, 50)
    first = torch.tensor([10, 700])
    expected = [said(logits[s], first[s], (temperature, 5 + s)) for s in range(2)]
    guesses = [expected[0][:3], [*expected[1][:1], 49 - expected[1][1], expected[1][2]]]
    rules = SamplingRules(
        temperatures=torch.full((2,), temperature, dtype=torch.float64),
        seeds=torch.tensor([5, 6]),
    )
    verdict = verify(logits, drafts_of(guesses, [3, 3]), first, rules)
    assert verdict.token_ids.tolist() == expected
    assert verdict.accepted.tolist() == [3, 1]
    if not temperature:
        greedy = verify(logits, drafts_of(guesses, [3, 3]), first, None)
        assert torch.equal(greedy.row, verdict.row)


def test_guesses_beyond_the_drafts_of_a_sequence_do_not_stand():
    logits = torch.zeros(2, 3, 4)
    verdict = verify(logits, drafts_of([[0, 0], [0, 0]], [2, 1]), torch.zeros(2).long(), None)
    assert verdict.accepted.tolist() == [2, 1]


def test_equal_logits_choose_the_lowest_id():
    logits = torch.tensor([[[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]])
    verdict = verify(logits, drafts_of([[2]], [1]), torch.tensor([0]), None)
    assert (verdict.token_ids.tolist(), verdict.accepted.tolist()) == ([[1, 0]], [0])


def test_nothing_stands_from_a_row_on_that_is_not_finite():
    logits = torch.zeros(3, 3, 4)
    logits[0, 1, 2], logits[1, 0, 3], logits[2, 2] = torch.nan, torch.inf, -torch.inf
    verdict = verify(logits, drafts_of([[0, 0]] * 3, [2] * 3), torch.zeros(3).long(), None)
    assert verdict.accepted.tolist() == [1, 0, 2]
    assert verdict.is_finite.tolist() == [[1, 0, 1], [0, 1, 1], [1, 1, 0]]
    assert not verdict.token_ids.any()


def test_one_draft_that_falls_takes_those_behind_it_along():
    chosen = torch.tensor([[1, 2, 3, 4]])
    guesses, is_draft = torch.tensor([[1, 9, 3]]), torch.ones(1, 3, dtype=torch.bool)
    assert accept(guesses, chosen, is_draft).tolist() == [1]


def test_a_step_without_drafts_or_sequences_has_a_verdict():
    none = Drafts(guesses=torch.zeros(2, 0, dtype=torch.int64), counts=torch.zeros(2).long())
    verdict = verify(torch.randn(2, 1, 4), none, torch.zeros(2).long(), None)
    assert (verdict.token_ids.shape, verdict.accepted.tolist()) == ((2, 1), [0, 0])
    empty = Drafts(guesses=torch.zeros(0, 2, dtype=torch.int64), counts=torch.zeros(0).long())
    verdict = verify(torch.randn(0, 3, 4), empty, torch.zeros(0).long(), None)
    assert (verdict.token_ids.shape, len(verdict.accepted)) == ((0, 3), 0)
