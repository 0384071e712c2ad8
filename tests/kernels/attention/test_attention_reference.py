"""Attention with sinks against a loop."""

import math

import torch

from kernels.attention.reference import KeyRows, attend


def naive(query, rows, sink, scale):
    exps = [math.exp(float(query @ row) * scale) for row in rows]
    total = sum(exps) + math.exp(sink)
    return sum(
        (e / total * row for e, row in zip(exps, rows, strict=True)), torch.zeros(4).double()
    )


def test_all_parts_and_the_sink_share_one_softmax():
    queries = torch.randn(2, 3, 2, 4, dtype=torch.float64)
    sink = torch.randn(2, dtype=torch.float64)
    parts = [
        KeyRows(torch.randn(2, n, 4, dtype=torch.float64), torch.rand(2, 3, n) < 0.6)
        for n in (5, 0, 7)
    ]
    got = attend(queries, parts, sink, 0.5)
    for b in range(2):
        for q in range(3):
            rows = [
                row
                for part in parts
                for row, seen in zip(part.rows[b], part.visible[b, q], strict=True)
                if seen
            ]
            for h in range(2):
                expected = naive(queries[b, q, h], rows, float(sink[h]), 0.5)
                torch.testing.assert_close(got[b, q, h], expected)


def test_a_query_that_sees_nothing_gets_zeros():
    part = KeyRows(torch.randn(1, 3, 4), torch.zeros(1, 1, 3, dtype=torch.bool))
    assert torch.equal(
        attend(torch.randn(1, 1, 2, 4), [part], torch.zeros(2), 1.0), torch.zeros(1, 1, 2, 4)
    )
