"""Attention to rows where they lie: which rows a query sees, and how it is turned."""

from dataclasses import replace

import pytest
import torch

from kernels import formats
from kernels.attention.reference import (
    ChosenRows,
    KeyRows,
    OwnRows,
    attend,
    attend_cached,
    attend_turned,
)
from kernels.cache_ops.reference import CachedRows
from kernels.cases_attention import in_pages
from kernels.rotary.reference import frequencies, rotate, rotation

WINDOW, RING, WIDTH = 5, 7, 8
SINK = torch.tensor([0.3, -torch.inf]).double()


def own_rows(position, floor=0):
    """A ring in which row r of the sequence is filled with r + 1, rows of others with NaN."""
    tensor = torch.full((2 * RING, WIDTH), torch.nan).double()
    for row in range(max(0, position - RING + 1), position + 1):
        tensor[RING + row % RING] = torch.arange(WIDTH) + row + 1.0
    return OwnRows(
        cache=CachedRows(tensor=tensor, width=WIDTH),
        ring=RING,
        length=WINDOW,
        slots=torch.tensor([1]),
        positions=torch.tensor([position]),
        floors=torch.tensor([floor]),
    )


def expected(queries, rows):
    keys = torch.stack([torch.arange(WIDTH) + row + 1.0 for row in rows]).double()
    part = KeyRows(keys.unsqueeze(0), torch.ones(1, 1, len(rows), dtype=torch.bool))
    return attend(queries.unsqueeze(1), [part], SINK, 0.1).squeeze(1)


@pytest.mark.parametrize("position", [0, WINDOW - 2, WINDOW - 1, WINDOW, 3 * RING])
def test_a_window_ends_at_its_query_and_is_as_long_as_it_says(position):
    queries = torch.randn(1, 2, WIDTH).double()
    seen = range(max(0, position - WINDOW + 1), position + 1)
    got = attend_cached(queries, own_rows(position), None, SINK, 0.1)
    torch.testing.assert_close(got, expected(queries, seen))


def test_rows_older_than_the_floor_are_not_seen():
    queries = torch.randn(1, 2, WIDTH).double()
    got = attend_cached(queries, own_rows(9, floor=8), None, SINK, 0.1)
    torch.testing.assert_close(got, expected(queries, [8, 9]))


def test_a_query_without_any_choice_sees_its_window_alone():
    queries = torch.randn(1, 2, WIDTH).double()
    nothing = CachedRows(tensor=torch.full((3, WIDTH), torch.nan).double(), width=WIDTH)
    chosen = ChosenRows(cache=nothing, index=torch.full((1, 4), -1))
    got = attend_cached(queries, own_rows(3), chosen, SINK, 0.1)
    torch.testing.assert_close(got, expected(queries, range(4)))


@pytest.mark.parametrize("offset", [1, 40, 100_000])
def test_attention_between_a_rotation_and_its_inverse_follows_differences_of_positions(offset):
    freqs, plain = frequencies(WIDTH, 100.0), own_rows(6)
    queries = torch.randn(1, 2, WIDTH).double()

    def attended(shift):
        turn = rotation(torch.arange(RING) + shift, freqs)
        tensor = plain.cache.tensor.clone()
        tensor[RING:] = rotate(tensor[RING:], turn)
        own = replace(plain, cache=CachedRows(tensor=tensor, width=WIDTH))
        return attend_turned(queries, own, None, SINK, 0.1, turn.rows(torch.tensor([6])))

    torch.testing.assert_close(attended(offset), attended(0))


@pytest.mark.parametrize("page_rows", [1, 2, 64, 256])
def test_rows_in_pages_are_the_rows_of_a_plain_cache(page_rows):
    packed = formats.pack(torch.randn(300, 192), formats.FP8_GROUP64_TAIL)
    plain = CachedRows(tensor=packed, width=192, packing=formats.FP8_GROUP64_TAIL)
    paged = in_pages(plain, page_rows)
    rows = torch.randint(0, 300, (4, 9))
    assert torch.equal(paged.stored(rows), packed[rows])
    assert torch.equal(paged.read(rows, torch.float32), plain.read(rows, torch.float32))
