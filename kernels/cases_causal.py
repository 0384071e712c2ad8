"""Cases of the layers of one residual stream: fused products, paged attention. See `cases`."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from kernels.case import Arguments, Case, Run, normal
from kernels.fused_linear.reference import Norm
from kernels.paged_attention.reference import Context, Heads
from kernels.rotary.reference import frequencies, rotation

BFLOAT16_LIMITS = {
    "norm_logits": 4.5e-3,  # they are wide, but what they are made of has been rounded
    "norm_swiglu": 9e-3,  # the normed row, gate, up and their product are each rounded
}
OUTPUTS = {"norm_linear": 1, "norm_swiglu": 2, "norm_logits": 1, "add_linear": 1}


def product_case(op: str, width: int, outputs: int) -> Case:
    """Weights of so many outputs, twice as many where half of them gate the others."""
    factor = OUTPUTS[op]

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        x = normal((rows, width), dtype, device)
        weight = normal((factor * outputs, width), dtype, device) / width**0.5
        if op == "add_linear":
            return normal((rows, outputs), dtype, device), x, weight
        return x, Norm(weight=torch.rand(width, device=device) + 0.5, eps=1e-6), weight

    def call(run: Run, arguments: Arguments) -> object:
        first, *rest = arguments
        assert isinstance(first, Tensor)
        return run(first.clone() if op == "add_linear" else first, *rest)

    return Case(
        op=op,
        name=f"{width} to {outputs}",
        make=make,
        bytes_per_row=lambda size: (width + outputs) * size,
        bytes_shared=lambda rows, size: factor * outputs * width * size,
        flops=lambda rows: 2 * rows * factor * outputs * width,
        timed_rows=(1, 8, 32, 256, 2048),
        observe=call,
        bfloat16_limit=BFLOAT16_LIMITS.get(op),
    )


def paged_case(
    heads: tuple[int, int, int],
    context: int,
    *,
    has_norm: bool,
    chunk: int,
    block_tokens: int = 64,
) -> Case:
    """Sequences of up to `context` tokens that run `chunk` rows each, the last one what is left.

    Blocks are handed out in no order; a row that no query sees holds NaN.
    """
    queries, keys, dim = heads

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        norms = [
            Norm(weight=torch.rand(dim, device=device) + 0.5, eps=1e-6) if has_norm else None
            for _ in range(2)
        ]
        starts = (*range(0, rows, chunk), rows)
        sizes = [b - a for a, b in pairwise(starts)]
        before = [(37 * i) % max(context - chunk, 1) for i in range(len(sizes))]
        lengths = tuple(a + b for a, b in zip(before, sizes, strict=True))
        blocks = -(-context // block_tokens)
        table = torch.randperm(len(sizes) * blocks + 1, device=device)[1:]
        owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes, dtype=torch.int64))
        step = torch.arange(rows) - torch.tensor(starts)[owner]
        seen = Context(
            table=table.view(len(sizes), blocks),
            block_tokens=block_tokens,
            owner=owner.to(device),
            positions=(torch.tensor(before, dtype=torch.int64)[owner] + step).to(device),
            starts=starts,
            lengths=lengths,
        )
        cache = _cache(seen, before, (keys, dim), dtype)
        qkv = normal((rows, (queries + 2 * keys) * dim), dtype, device)
        turn = rotation(seen.positions, frequencies(dim, 1e4).float().to(device))
        named = Heads(
            queries=queries,
            keys=keys,
            dim=dim,
            scale=dim**-0.5,
            query_norm=norms[0],
            key_norm=norms[1],
        )
        return qkv, named, turn, cache, seen

    def observe(run: Run, arguments: Arguments) -> object:
        *others, cache, seen = arguments
        assert isinstance(cache, Tensor)
        held = cache.clone()
        return run(*others, held, seen), held.nan_to_num()

    kind = "normed " if has_norm else ""
    return Case(
        op="attend_fresh",
        name=f"{queries}/{keys} {kind}heads of {dim}, {chunk} of {context} tokens",
        make=make,
        bytes_per_row=lambda size: (2 * queries + 4 * keys + keys * context // chunk) * dim * size,
        timed_rows=(1, 32, 256) if chunk == 1 else (2048, 8192),
        observe=observe,
        is_invariant=False,
    )


def _cache(seen: Context, before: list[int], sizes: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Rows of the tokens before the fresh ones; NaN in all others."""
    keys, dim = sizes
    table = seen.table
    shape = (table.numel() + 1, 2, keys, seen.block_tokens, dim)
    cache = torch.full(shape, torch.nan, device=table.device, dtype=dtype)
    for sequence, count in enumerate(before):
        at = torch.arange(count, device=table.device)
        blocks = table[sequence][at // seen.block_tokens]
        cache[blocks, :, :, at % seen.block_tokens] = normal(
            (count, 2, keys, dim), dtype, table.device
        )
    return cache.view(-1, 2 * keys * dim)
