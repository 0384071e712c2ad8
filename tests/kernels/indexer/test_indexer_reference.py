"""Index scores and candidate blocks against loops."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.cache_ops.reference import CachedRows, Pages
from kernels.indexer.reference import (
    candidate_blocks,
    candidate_rows,
    index_scores,
    score_blocks,
    score_rows,
)
from kernels.topk.reference import Blocks, best_of_blocks, best_rows


def test_scores_sum_rectified_products_over_heads():
    queries = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    weights = torch.randn(2, 3, 4, dtype=torch.float64)
    keys = torch.randn(2, 6, 5, dtype=torch.float64)
    got = index_scores(queries, weights, keys)
    for b in range(2):
        for q in range(3):
            for n in range(6):
                expected = sum(
                    float(weights[b, q, h]) * max(float(queries[b, q, h] @ keys[b, n]), 0.0)
                    for h in range(4)
                )
                assert math.isclose(float(got[b, q, n]), expected, rel_tol=1e-9, abs_tol=1e-12)


@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=14),
    st.integers(1, 4),
    st.integers(1, 4),
    st.data(),
)
def test_candidates_are_the_best_blocks_and_the_newest(values, block, keep, data):
    count = data.draw(st.integers(0, len(values)))
    scores = torch.tensor([[values]], dtype=torch.float64)
    scores[..., count:] = -math.inf
    got = candidate_rows(scores, torch.tensor([[count]]), block, keep)[0, 0].tolist()
    best = {}
    for row in range(count):
        best[row // block] = max(best.get(row // block, -math.inf), values[row])
    if count:
        best[(count - 1) // block] = math.inf
    kept = set(sorted(best, key=lambda b: (-best[b], b))[:keep])
    assert got == [row // block in kept for row in range(len(values))]


def test_scoring_candidates_alone_selects_what_masking_the_rest_does():
    torch.manual_seed(0)
    queries, weights = torch.randn(5, 3, 8), torch.randn(5, 3)
    keys = CachedRows(tensor=torch.randn(96, 8), width=8)
    pages = Pages(table=torch.rand(5, 6).argsort(1), rows_per_block=16)
    counts = torch.tensor([0, 1, 37, 90, 90])
    source = torch.where(torch.arange(90) < counts.unsqueeze(-1), torch.randn(5, 90), -math.inf)
    blocks = Blocks(index=candidate_blocks(source, counts, 4, 6), rows=4)
    found = best_of_blocks(
        score_blocks(queries, weights, keys, pages, counts, blocks), 7, pages, blocks
    )
    scores = score_rows(queries, weights, keys, pages, counts, 90)
    mask = candidate_rows(source, counts, 4, 6)
    assert torch.equal(found, best_rows(scores.masked_fill(~mask, -math.inf), 7, pages))


def test_consecutive_queries_may_share_a_table():
    queries, weights = torch.randn(6, 2, 8), torch.randn(6, 2)
    keys = CachedRows(tensor=torch.randn(64, 8), width=8)
    table, counts = torch.rand(2, 3).argsort(1), torch.tensor([5, 9, 40, 48, 0, 1])
    shared = Pages(table=table, rows_per_block=16)
    each = Pages(table=table.repeat_interleave(3, 0), rows_per_block=16)
    found = score_rows(queries, weights, keys, shared, counts, 48)
    assert torch.equal(found, score_rows(queries, weights, keys, each, counts, 48))
    assert torch.equal(best_rows(found, 4, shared), best_rows(found, 4, each))
