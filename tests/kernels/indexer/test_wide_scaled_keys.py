"""Index keys of DeepSeek-V4, 132 bytes each, through the interpreter: stored and scored, in pages
whose data lie before their scales and without pages.
"""

import pytest

from tests.fakes.interpreter import interpreted

SET_UP = """
import torch

from kernels import formats, tolerance
from kernels.cache_ops import reference as cache_reference
from kernels.cache_ops import triton_cuda as cache_ops
from kernels.cache_ops.reference import CachedRows, Pages
from kernels.cases_attention import in_pages, make_cache
from kernels.formats import FP8_GROUP128
from kernels.indexer import reference, triton_cuda
from kernels.rotary.reference import Rotation

CPU = torch.device("cpu")
ROWS, HEADS, CONTEXT = 6, 3, 90
"""

SCORES = (
    SET_UP
    + """
def difference(found, exact):  # as DeepGEMM measures it
    return 1 - 2 * (found * exact).sum() / (found.square().sum() + exact.square().sum())


values = torch.randn(96, 128)
plain = CachedRows(tensor=values.double(), width=128)
whole = CachedRows(tensor=formats.pack(values, FP8_GROUP128), width=128, packing=FP8_GROUP128)
counts = torch.tensor([CONTEXT, 0, 1, 17, 64, 33])
for dtype, keys in (
    (torch.bfloat16, whole),
    (torch.bfloat16, in_pages(whole, 16)),
    (torch.float32, in_pages(whole, 48)),
):
    for tables in (ROWS, 1):
        table = torch.rand(tables, 6).argsort(1)
        pages = Pages(table=table, rows_per_block=16)
        queries = torch.randn(ROWS, HEADS, 128).to(dtype)
        weights = torch.rand(ROWS, HEADS).to(dtype)
        found = triton_cuda.score_rows(queries, weights, keys, pages, counts, CONTEXT)
        wide = tolerance.widened((queries, weights, keys, pages, counts, CONTEXT))
        exact = reference.score_rows(*wide)
        assert torch.equal(found == -torch.inf, exact == -torch.inf)
        seen = exact > -torch.inf
        assert difference(found.double()[seen], exact[seen]) <= 5e-6
        unrounded = reference.score_rows(wide[0], wide[1], plain, *wide[3:])
        assert difference(found.double()[seen], unrounded[seen]) <= 1e-3
"""
)

SCALES = (
    SET_UP
    + """
rows = formats.pack(torch.randn(32, 128), FP8_GROUP128)
scales = torch.rand(32) * 3
scales[5] = torch.nan
rows[:, 128:] = scales[:, None].view(torch.uint8)  # of another writer: no powers of two
pages = Pages(table=torch.tensor([[1, 0]]).repeat(2, 1), rows_per_block=16)
counts, weights = torch.tensor([32, 20]), torch.rand(2, HEADS).bfloat16()
queries = torch.randn(2, HEADS, 128).bfloat16()
for page in (None, 16):
    keys = CachedRows(tensor=rows, width=128, packing=FP8_GROUP128)
    keys = keys if page is None else in_pages(keys, page)
    arguments = queries, weights, keys, pages, counts, 32
    found = triton_cuda.score_rows(*arguments)
    exact = reference.score_rows(*tolerance.widened(arguments))
    assert torch.equal(found.isnan(), exact.isnan())
    assert found.isnan().sum() == 1, "the second query does not see it"
    seen = exact.isfinite()
    assert (found.double() - exact)[seen].norm() <= 3e-6 * exact[seen].norm()
"""
)

STORED = (
    SET_UP
    + """
x = torch.randn(7, 128) * torch.logspace(-6, 6, 7)[:, None]
x[2, 3], x[4, 100], x[5] = torch.nan, -torch.inf, 0
where = torch.tensor([3, 30, 17, -1, 0, 16, 31])
still = Rotation(cos=torch.ones(7, 64), sin=torch.zeros(7, 64))
for page in (None, 16):
    for rows in (x, x.bfloat16()):
        empty = CachedRows(
            tensor=torch.zeros(32, 132, dtype=torch.uint8), width=128, packing=FP8_GROUP128
        )
        made = [empty if page is None else in_pages(empty, page) for _ in range(2)]
        made = [CachedRows(**{**vars(m), "tensor": m.tensor.clone()}) for m in made]
        cache_ops.insert_rows(made[0], where, rows, None, still)
        cache_reference.insert_rows(made[1], where, rows, None, still)
        every = torch.arange(32)
        bad = where[~torch.isfinite(rows).all(1)]
        fine = every[~torch.isin(every, bad)]
        assert torch.equal(made[0].stored(fine), made[1].stored(fine))
        assert made[0].read(bad, torch.float32).isnan().all()
        assert made[1].read(bad, torch.float32).isnan().all()
"""
)


@pytest.mark.parametrize("script", [SCORES, SCALES, STORED], ids=["scores", "scales", "stored"])
def test_keys_are_stored_and_scored_as_the_definitions_say(script):
    interpreted(script)
