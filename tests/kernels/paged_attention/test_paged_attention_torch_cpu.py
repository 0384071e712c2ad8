"""Attention of a CPU over paged caches, against its definition."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import tolerance
from kernels.cases import SMALL_CASES
from kernels.cases_causal import paged_case
from kernels.fused_linear.reference import Norm
from kernels.ops import REFERENCE
from kernels.paged_attention.reference import Context, Heads, by_block
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


@pytest.mark.parametrize("sequences", [0, 2])
def test_no_rows_are_answered_by_none(sequences):
    heads = Heads(queries=2, keys=1, dim=16, scale=0.25)
    none = torch.empty(0, dtype=torch.int64)
    context = Context(
        table=torch.zeros(sequences, 1, dtype=torch.int64),
        block_tokens=4,
        owner=none,
        positions=none,
        starts=(0,) * (sequences + 1),
        lengths=(3,) * sequences,
    )
    turn = rotation(none, frequencies(16, 1e4).float())
    cache = torch.zeros(4, 32).bfloat16()
    found = attend_fresh(torch.empty(0, 64).bfloat16(), heads, turn, cache, context)
    assert (found.shape, found.dtype) == ((0, 32), torch.bfloat16)
    assert not cache.any()


@st.composite
def steps(draw):
    """Fresh rows of each sequence, and how many it held before."""
    sizes = st.one_of(st.just(1), st.integers(1, 8), st.integers(9, 40))
    return draw(st.lists(st.tuples(sizes, st.integers(0, 40)), min_size=1, max_size=6))


@given(steps(), st.sampled_from([2, 4, 16]), st.booleans())
def test_any_step_agrees_with_the_definition_in_any_number_of_threads(step, tokens, has_norm):
    """Whatever was never written holds NaN."""
    torch.manual_seed(len(step) + step[0][0])
    gain = Norm(weight=torch.rand(8) + 0.5, eps=1e-6) if has_norm else None
    heads = Heads(queries=6, keys=2, dim=8, scale=0.3, query_norm=gain, key_norm=gain)
    context, cache = a_cache(step, tokens, heads)
    turn = rotation(context.positions, frequencies(8, 1e4).float())
    qkv = torch.randn(len(context.positions), 80).bfloat16()
    caches = [cache.clone() for _ in range(3)]
    exact = REFERENCE.attend_fresh(qkv, heads, turn, caches[0], context)
    threads = torch.get_num_threads()
    found = []
    for count, kept in zip((1, 2), caches[1:], strict=True):
        torch.set_num_threads(count)
        found.append(attend_fresh(qkv, heads, turn, kept, context))
    torch.set_num_threads(threads)
    assert torch.isfinite(found[0]).all()
    torch.testing.assert_close(found[0], exact, rtol=0.03, atol=0.03)
    assert torch.equal(found[0], found[1])
    torch.testing.assert_close(
        caches[0].nan_to_num(0), caches[1].nan_to_num(0), rtol=0.02, atol=0.02
    )


def a_cache(step, tokens, heads):
    fresh, held = zip(*step, strict=True)
    lengths = tuple(a + b for a, b in step)
    widest = -(-max(lengths) // tokens)
    order = torch.randperm(len(step) * widest) + 1
    table = order.view(len(step), widest)
    cache = torch.full(((len(order) + 1) * tokens, 2 * heads.keys * heads.dim), torch.nan)
    places = by_block(cache, heads, tokens)
    for row, count in zip(table, held, strict=True):
        for at in range(count):
            places[row[at // tokens], :, :, at % tokens] = torch.randn(2, heads.keys, heads.dim)
        if count % tokens:
            places[row[count // tokens], :, :, count % tokens :] = 0  # as its first row left it
    starts = [0]
    for count in fresh:
        starts.append(starts[-1] + count)
    context = Context(
        table=table,
        block_tokens=tokens,
        owner=torch.repeat_interleave(torch.arange(len(step)), torch.tensor(fresh)),
        positions=torch.cat([torch.arange(b, a + b) for a, b in step]),
        starts=tuple(starts),
        lengths=lengths,
    )
    return context, cache.bfloat16()
