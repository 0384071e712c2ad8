"""Selections against sorting in Python."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.topk.reference import first_argmax, positions_of, stable_top_k, top_k_mask

ROWS = st.lists(st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=20)


def order(values):
    return sorted(range(len(values)), key=lambda i: (-values[i], i))


@given(ROWS, st.integers(1, 8))
def test_ties_go_to_the_lowest_index(values, k):
    assert stable_top_k(torch.tensor(values), k).tolist() == order(values)[:k]
    assert int(first_argmax(torch.tensor(values))) == order(values)[0]


@given(ROWS, st.integers(1, 8))
def test_the_mask_is_the_same_selection_without_what_is_not_visible(values, k):
    chosen = {i for i in order(values)[:k] if values[i] > -math.inf}
    mask = top_k_mask(torch.tensor(values), k)
    assert mask.tolist() == [i in chosen for i in range(len(values))]


@given(ROWS, st.integers(1, 8))
def test_positions_ascend_and_say_where_they_end(values, k):
    mask = top_k_mask(torch.tensor([values]), k)
    index, valid = positions_of(mask, k)
    assert index.shape == valid.shape == (1, k)
    assert index[valid].tolist() == mask[0].nonzero().flatten().tolist()
    assert index[~valid].tolist() == [0] * int((~valid).sum())


def test_a_longer_row_does_not_change_the_choice_among_equals():
    scores = torch.zeros(300)
    assert stable_top_k(scores, 5).tolist() == stable_top_k(scores[:7], 5).tolist()
    assert top_k_mask(scores, 5).nonzero().flatten().tolist() == [0, 1, 2, 3, 4]
