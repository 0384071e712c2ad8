"""Addresses against arithmetic by hand."""

import torch

from kernels.cache_ops.reference import paged_rows, ring_rows


def test_ring_rows_wrap_within_their_slot():
    slots = torch.tensor([0, 2, 2])
    assert ring_rows(slots, torch.tensor([3, 7, 11]), 4).tolist() == [3, 11, 11]
    assert ring_rows(slots, torch.tensor([-1, -4, -5]), 4).tolist() == [3, 8, 11]


def test_paged_rows_follow_the_block_table():
    table = torch.tensor([[5, 1, 0], [2, 7, 3]])
    logical = torch.tensor([[0, 3, 4], [1, 9, 11]])
    assert paged_rows(table, logical, 4).tolist() == [[20, 23, 4], [9, 13, 15]]
