"""Sequences that decode and chunks, as the host knows their rows and as only a device does."""

from dataclasses import replace

import torch

from kernels.fused_linear.reference import Norm
from kernels.paged_attention.reference import Context, Heads
from kernels.rotary.reference import frequencies, rotation


def made(singles, sizes, dtype):
    torch.manual_seed(1)
    heads = Heads(
        queries=4,
        keys=2,
        dim=16,
        scale=0.25,
        query_norm=Norm(weight=torch.rand(16) + 0.5, eps=1e-6),
        key_norm=Norm(weight=torch.rand(16) + 0.5, eps=1e-6),
    )
    counts = torch.tensor([1] * singles + list(sizes))
    count, rows = len(counts), int(counts.sum())
    before = torch.tensor([5 * n % 13 for n in range(count - 1)] + [0])
    owner = torch.arange(count).repeat_interleave(counts)
    first = counts.cumsum(0) - counts
    positions = (before[owner] + torch.arange(rows) - first[owner]) * (owner < count - 1)
    table = torch.randperm(count * 8).view(count, 8)
    ends = tuple(counts.cumsum(0).tolist())
    known = Context(
        table=table,
        block_tokens=8,
        owner=owner,
        positions=positions,
        starts=(0, *ends),
        lengths=tuple((before + counts).tolist()),
    )
    shared = replace(
        known,
        starts=(*range(singles + 1), *((rows,) * len(sizes))),
        lengths=(64,) * count,
        shared_from=singles,
    )
    cache = torch.randn(count * 8 * 8, 2 * 2 * 16, dtype=dtype)
    qkv = torch.randn(rows, 8 * 16, dtype=dtype)
    turn = rotation(positions, frequencies(16, 1e4).float())
    live = owner < count - 1
    return qkv, heads, turn, cache, known, shared, live
