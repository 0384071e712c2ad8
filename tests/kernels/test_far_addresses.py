"""Rows beyond 2^31 values and 2^32 bytes: addresses that wrap at 32 bits read NaN, or nothing.

What lies at the end of a pool larger than that must come out as where the pool is small. Here the
interpreter does it, whose integers wrap as those of a device do; memory that is not touched takes
none. On a device: `python -m pytest tests/kernels/test_far_addresses.py -rs`.
"""

import pytest
import torch

from tests.fakes.interpreter import INTERPRETED, run

ON_DEVICE = "import torch\ndevice = torch.device('cuda')\ntorch.manual_seed(0)\n"
HERE = INTERPRETED + "device = torch.device('cpu')\n"
PLACED = """
from dataclasses import replace
import torch
from kernels import formats

def far(near, multiple=1):
    # The rows at the end of a pool beyond 2^31 values and 2^32 bytes, which begins with NaN.
    row = near[0].numel()
    size = max(2**31, 2**32 // near.element_size()) // row + 2 * len(near)
    size += -(size - len(near)) % multiple
    pool = torch.empty(size, *near.shape[1:], dtype=near.dtype, device=near.device)
    pool[: 2 * len(near)] = torch.nan if near.is_floating_point() else 0xFF
    pool[-len(near) :] = near
    assert pool.numel() > 2**31 and pool.nbytes > 2**32
    return pool, size - len(near)
"""
ATTENTION = """
from kernels.attention.triton_cuda import attend_turned
from kernels.cases_attention import attend_case

def held(case, dtype, attend):
    queries, own, chosen, *others = case.make(3, dtype, device)
    exact = attend(queries, own, chosen, *others)
    page = chosen.cache.page_rows or 1
    pool, shift = far(chosen.cache.tensor)
    index = torch.where(chosen.index < 0, -1, chosen.index + shift * page)
    far_chosen = replace(chosen, cache=replace(chosen.cache, tensor=pool), index=index)
    assert torch.equal(attend(queries, own, far_chosen, *others), exact), (case.name, "chosen")
    page = own.cache.page_rows or 1
    pool, shift = far(own.cache.tensor, own.ring)
    far_own = replace(
        own, cache=replace(own.cache, tensor=pool), slots=own.slots + shift * page // own.ring
    )
    assert torch.equal(attend(queries, far_own, chosen, *others), exact), (case.name, "own")

for own, chosen in ((formats.FP8_GROUP32, formats.FP4_GROUP16), (None, None)):
    held(attend_case(4, 64, 26, 20, (own, chosen)), torch.bfloat16, attend_turned)
tailed = (formats.FP8_GROUP64_TAIL, formats.FP8_GROUP64_TAIL)
held(attend_case(3, 128, 26, 20, tailed, has_pages=True), torch.bfloat16, attend_turned)
if device.type == "cuda" and torch.cuda.get_device_capability() == (9, 0):
    from kernels.attention import triton_hopper
    for packing in (formats.FP8_GROUP32, None):
        case = attend_case(64, 512, 128, 64, (packing, packing))
        held(case, torch.bfloat16, triton_hopper.attend_turned)
print("held")
"""
INDEX = """
from kernels.cache_ops.triton_cuda import insert_rows
from kernels.cases_cache import insert_case
from kernels.cases_selection import score_case
from kernels.indexer.triton_cuda import score_rows

for packing in (formats.FP8_GROUP32, formats.FP4_GROUP16, formats.FP4_GROUP32, None):
    x, cache, where, norm, turn = insert_case(64, 16, packing, has_norm=True).make(
        5, torch.bfloat16, device
    )
    pool, shift = far(cache.tensor)
    insert_rows(replace(cache, tensor=pool), where.where(where < 0, where + shift), x, norm, turn)
    insert_rows(cache, where, x, norm, turn)
    assert torch.equal(pool[-len(cache.tensor) :], cache.tensor), packing
    del pool
queries, weights, keys, pages, counts, context = score_case(
    4, 32, 100, formats.FP4_GROUP32
).make(3, torch.bfloat16, device)
pool, shift = far(keys.tensor, pages.rows_per_block)
far_pages = replace(pages, table=pages.table + shift // pages.rows_per_block)
found = [
    score_rows(queries, weights, k, p, counts, context)
    for k, p in ((keys, pages), (replace(keys, tensor=pool), far_pages))
]
assert torch.equal(*found)
print("held")
"""
PAGES = """
from kernels.cases_causal import paged_case
from kernels.paged_attention.triton_cuda import attend_fresh

for chunk, block_tokens in ((1, 64), (1, 16), (3, 64), (3, 16)):  # tiles in a block, and of two
    qkv, heads, turn, cache, seen = paged_case(
        (6, 2, 32), 40, has_norm=True, chunk=chunk, block_tokens=block_tokens
    ).make(5, torch.bfloat16, device)
    pool, shift = far(cache, seen.block_tokens)
    far_seen = replace(seen, table=seen.table + shift // seen.block_tokens)
    found = attend_fresh(qkv, heads, turn, pool, far_seen)
    exact = attend_fresh(qkv, heads, turn, cache, seen)
    assert torch.equal(found, exact), chunk
    assert torch.equal(pool[-len(cache) :].nan_to_num(), cache.nan_to_num()), chunk
print("held")
"""
EXPERTS = """
from kernels.cases_moe import experts_case, packed_experts_case
from kernels.grouped_matmul import triton_cuda, triton_packed
from kernels.grouped_matmul.triton_tiles import Tiles

triton_packed.arranged = lambda x, group, planes: x  # not of 2^19 rows
PAIRS, WIDTH = 16, 4096

def numbers(values):
    return torch.tensor(values, dtype=torch.int32, device=device)

def tiles(first):
    order = first + torch.arange(PAIRS, dtype=torch.int32, device=device)
    return Tiles(
        order=order, places=order, tiles=numbers([1]), expert=numbers([1]), start=numbers([0]),
        end=numbers([PAIRS]), most=1,
    )

for case, parts, sizes in (
    (experts_case(2, WIDTH, 32, 1), triton_cuda._plain_parts, triton_cuda._sizes(
        PAIRS, 2, torch.bfloat16
    )),
    (packed_experts_case(2, WIDTH, 32, 1, None), triton_packed.packed_parts,
     triton_packed.packed_sizes(PAIRS, 2)),
):
    x, experts, _, weights, _ = case.make(PAIRS, torch.bfloat16, device)
    pool, shift = far(x)
    gain, gain_shift = torch.empty(len(pool), 1, device=device), shift
    gain[-PAIRS:] = weights
    matrices = (experts.gate_up, experts.down, experts.limit)
    exact = parts(x, *matrices, tiles(0), weights, sizes)
    found = parts(pool, *matrices, tiles(shift), gain, sizes)
    assert found.numel() > 2**31
    assert torch.equal(found[-PAIRS:], exact), case.name
    del pool, found
print("held")
"""
PARTS = {"attention": ATTENTION, "index": INDEX, "pages": PAGES, "experts": EXPERTS}
DEVICE_BYTES = 24 * 10**9


@pytest.mark.parametrize("part", PARTS)
def test_rows_at_the_far_end_of_a_pool_are_what_they_are_in_a_small_one(part):
    pytest.importorskip("triton", reason="triton is not installed")
    assert "held" in run(HERE + PLACED + PARTS[part], TRITON_INTERPRET="1")


@pytest.mark.cuda
@pytest.mark.parametrize("part", PARTS)
def test_the_same_on_a_device(part):
    if torch.cuda.mem_get_info()[0] < DEVICE_BYTES:
        pytest.skip("the device has less than 24 GB to give")
    assert "held" in run(ON_DEVICE + PLACED + PARTS[part])
