"""The kernel that chooses the best rows, cut small so that each of its ways is taken."""

import pytest

from tests.fakes.interpreter import INTERPRETED, run

BEST = (
    INTERPRETED
    + """
from kernels.cache_ops.reference import Pages
from kernels.topk import reference
from kernels.topk.triton_cuda import Names, Shape, launch_best

def scores_of(rows, n, lanes):
    inf = torch.inf
    yield "distinct", torch.randn(rows, n)
    zeros = torch.randint(-2, 3, (rows, n)) * -0.0
    yield "few values, both zeros", zeros + torch.randint(0, 2, (rows, n))
    yield "all equal", torch.zeros(rows, n)
    sparse = torch.where(torch.rand(rows, n) < 0.95, -inf, torch.rand(rows, n))
    sparse[0], sparse[1, :3], sparse[1, 9:12] = -inf, inf, torch.nan
    yield "few alive, infinite, NaN", sparse
    crowded = torch.randn(rows, n)
    crowded[:, torch.arange(n) % lanes < lanes // 8] += 50
    yield "the best in few lanes", crowded

small = Shape(lanes=32, block=128, span=256, warps=4, held=64)
lines = Shape(lanes=32, block=128, span=256, warps=4, held=64, is_lines=True)
for n, k, tables in ((7, 3, 2), (300, 9, 2), (700, 16, 1), (60, 64, 1)):
    for name, scores in scores_of(2, n, 32):
        table = torch.rand(tables, n // 16 + 4).argsort(1)
        pages = Pages(table=table, rows_per_block=16)
        alive = torch.where(scores == scores, scores, -torch.inf)
        for shape in (small, lines):
            found = launch_best(scores, k, Names(pages=pages), shape)
            assert torch.equal(found, reference.best_rows(alive, k, pages)), (n, k, name, shape)
print("agree")
"""
)


def test_every_way_of_the_kernel_chooses_as_the_definition_does():
    pytest.importorskip("triton", reason="triton is not installed")
    assert "agree" in run(BEST, TRITON_INTERPRET="1")
