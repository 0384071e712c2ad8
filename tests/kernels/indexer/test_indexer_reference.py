"""Index scores and candidate blocks against loops."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.indexer.reference import candidate_rows, index_scores


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
