"""Attention of a CPU over paged caches, against its definition."""

from dataclasses import replace

import pytest
import torch

from kernels import tolerance
from kernels.cases import SMALL_CASES
from kernels.cases_causal import paged_case
from kernels.ops import REFERENCE
from kernels.paged_attention.reference import Context, Heads
from kernels.paged_attention.torch_cpu import attend_fresh
from kernels.rotary.reference import frequencies, rotation

CASES = [
    *(case for case in SMALL_CASES if case.op == "attend_fresh"),
    paged_case((4, 2, 16), 70, has_norm=False, chunk=20, block_tokens=16),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("rows", [1, 5, 23])
def test_it_agrees_with_its_definition(case, rows):
    torch.manual_seed(0)
    *others, cache, context = case.make(rows, torch.bfloat16, torch.device("cpu"))
    arguments = (*others, cache.nan_to_num(), context)
    found = case.observe(attend_fresh, arguments)
    exact = case.observe(REFERENCE.attend_fresh, tolerance.widened(arguments))
    assert tolerance.error(found, exact) <= tolerance.RELATIVE[torch.bfloat16]


def test_what_a_block_held_before_and_what_others_hold_is_not_seen():
    """Block 0, which pads tables, and the rest of a block that is opened hold NaN."""
    torch.manual_seed(0)
    heads = Heads(queries=2, keys=1, dim=16, scale=0.25)
    context = Context(
        table=torch.tensor([[1, 2, 3], [4, 0, 0]]),
        block_tokens=4,
        owner=torch.tensor([0, 1]),
        positions=torch.tensor([8, 1]),
        starts=(0, 1, 2),
        lengths=(9, 2),
    )
    cache = torch.randn(5 * 4, 32).bfloat16()
    for block in (0, 3):
        cache[block * 4 : block * 4 + 4] = torch.nan
    turn = rotation(context.positions, frequencies(16, 1e4).float())
    arguments = torch.randn(2, 64).bfloat16(), heads, turn
    found = attend_fresh(*arguments, cache.clone(), context)
    exact = REFERENCE.attend_fresh(*arguments, cache.clone(), context)
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found, exact, rtol=0.02, atol=0.02)
    again = replace(context, positions=torch.tensor([3, 1]))
    assert not torch.equal(attend_fresh(*arguments, cache.nan_to_num(), again), found)
