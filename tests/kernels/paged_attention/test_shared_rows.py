"""Chunks that share their rows as only the device knows say what those whose rows the host knows
do, by the definition and by the kernels of a device."""

import pytest
import torch

from kernels.paged_attention.reference import attend_fresh
from tests.fakes.interpreter import interpreted
from tests.fakes.shared_rows import made

KERNELS = """
from kernels.paged_attention import reference, triton_cuda
from tests.fakes.shared_rows import made

for singles, sizes in ((0, (3, 1, 0, 4)), (3, (3, 1, 0, 4)), (8, (16, 16)), (2, (30, 2))):
    qkv, heads, turn, cache, known, shared, live = made(singles, sizes, torch.float32)
    held = cache.clone()
    expected = reference.attend_fresh(qkv, heads, turn, held, known)
    found = triton_cuda.attend_fresh(qkv, heads, turn, cache, shared)
    torch.testing.assert_close(found[live], expected[live], rtol=1e-4, atol=1e-4)
    rows = known.table[:-1].flatten()[:, None] * 8 + torch.arange(8)
    torch.testing.assert_close(cache[rows], held[rows], rtol=1e-4, atol=1e-4)
    print("the same")
"""


@pytest.mark.parametrize("singles", [0, 3])
def test_the_definition_says_the_same_whoever_knows_the_rows(singles):
    qkv, heads, turn, cache, known, shared, live = made(singles, (3, 1, 0, 4), torch.float64)
    expected = attend_fresh(qkv, heads, turn, cache.clone(), known)
    found = attend_fresh(qkv, heads, turn, cache, shared)
    torch.testing.assert_close(found[live], expected[live], rtol=1e-12, atol=1e-12)


def test_kernels_find_whose_rows_they_are_in_the_interpreter():
    assert interpreted(KERNELS).count("the same") == 4
