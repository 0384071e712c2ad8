"""The kernel that reads keys ahead, cut small so that each of its ways is taken."""

import pytest

from tests.fakes.interpreter import INTERPRETED, run

AHEAD = (
    INTERPRETED
    + """
from kernels import formats, tolerance
from kernels.cache_ops.reference import Pages
from kernels.cases_attention import make_cache
from kernels.indexer import reference, triton_cuda
from kernels.indexer.triton_cuda import Shape, launch_scores

triton_cuda._parts = lambda queries, keys: 4
cpu = torch.device("cpu")
shape = Shape(keys=16, tiles=4, stages=2, is_ahead=True)
triton_cuda.RESIDENT_PROGRAMS = 2
for width, heads, context, per_block in ((128, 3, 100, 16), (64, 20, 37, 16), (128, 1, 16, 5)):
    blocks = -(-context // per_block) + 2
    keys = make_cache(width, formats.FP4_GROUP32, blocks * per_block, torch.bfloat16, cpu)
    scales = keys.tensor[:, width // 2 :]
    scales[0], scales[1, 0], scales[2] = 0, 60, 135
    for rows in (0, 1, 5):
        table = torch.rand(rows, blocks).argsort(1)
        pages = Pages(table=table, rows_per_block=per_block)
        counts = torch.randint(0, context + 1, (rows,))
        counts[:2] = torch.tensor([context, 0])[:rows]
        queries = torch.randn(rows, heads, width).bfloat16()
        weights = torch.randn(rows, heads).bfloat16()
        arguments = queries, weights, keys, pages, counts, context
        found = launch_scores(*arguments, shape)
        exact = reference.score_rows(*tolerance.widened(arguments))
        assert torch.equal(exact == -torch.inf, found == -torch.inf)
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-3)
print("agree")
"""
)


def test_every_way_of_the_kernel_scores_as_the_definition_does():
    pytest.importorskip("triton", reason="triton is not installed")
    assert "agree" in run(AHEAD, TRITON_INTERPRET="1")
