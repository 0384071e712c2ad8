"""Cases of operations on cache rows. See `kernels.cases`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from kernels.cache_ops.reference import CachedRows, Pages, RowNorm
from kernels.case import Arguments, Case, Run, normal
from kernels.cases_attention import in_pages, make_cache, stored_bytes
from kernels.rotary.reference import Rotation, frequencies, rotation
from kernels.tolerance import AFTER_ROUNDING


def insert_case(
    width: int, turned: int, packing: str | None, *, has_norm: bool, has_pages: bool = False
) -> Case:
    """One row in three is not stored."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        cache = make_cache(width, packing, rows + 7, dtype, device)
        cache = in_pages(cache) if has_pages else cache
        where = torch.randperm(rows + 7, device=device)[:rows]
        where[2::3] = -1
        x = normal((rows, 3 * width), dtype, device)[:, width : 2 * width]
        weight = torch.rand(width, device=device) + 0.5
        norm = RowNorm(weight=weight, eps=1e-6) if has_norm else None
        freqs = frequencies(turned, 1e4).float().to(device)
        turn = rotation(torch.randint(0, 100_000, (rows,), device=device), freqs)
        if not has_norm:  # nothing that rounds: the bytes must be those of the definition
            turn = Rotation(cos=torch.ones_like(turn.cos), sin=torch.zeros_like(turn.sin))
        return x, cache, where, norm, turn  # x first: it tells the rows

    def call(run: Run, arguments: Arguments) -> object:
        x, *others = arguments
        cache, where, norm, turn = others
        return run(cache, where, x, norm, turn)

    def observe(run: Run, arguments: Arguments) -> object:
        x, cache, where, norm, turn = arguments
        assert isinstance(x, Tensor)
        assert isinstance(cache, CachedRows)
        held = replace(cache, tensor=cache.tensor.clone())
        run(held, where, x, norm, turn)
        every = torch.arange(len(x) + 7, device=where.device)
        untouched = every[~torch.isin(every, where)]
        assert torch.equal(held.stored(untouched), cache.stored(untouched))
        places = where[where >= 0]
        if not has_norm and packing is not None:
            return held.stored(places)
        return held.read(places, x.dtype)

    return Case(
        op="insert_rows",
        name=f"width {width} {packing or 'plain'}{' normed' if has_norm else ''}"
        f"{' paged' if has_pages else ''}",
        make=make,
        bytes_per_row=lambda size: (width + width // 3 * 2) * size + 8 * turned,
        call=call,
        observe=observe,
        waits=True,
        is_rounding=packing is not None,
        limit=None if packing is None else AFTER_ROUNDING,
    )


def _pages(rows: int, n: int, blocks: int, device: torch.device) -> Pages:
    per_block = 16
    drawn = torch.rand(rows, blocks, device=device).argsort(1)
    return Pages(table=drawn[:, : -(-n // per_block)].contiguous(), rows_per_block=per_block)


def score_case(heads: int, width: int, context: int, packing: str | None) -> Case:
    """Contexts of every length, none included."""
    blocks = -(-context // 16) + 3

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        keys = make_cache(width, packing, blocks * 16, dtype, device)
        counts = torch.randint(0, context + 1, (rows,), device=device)
        queries = normal((rows, heads, width), dtype, device)
        weights = normal((rows, heads), dtype, device)
        return queries, weights, keys, _pages(rows, context, blocks, device), counts, context

    def observe(run: Run, arguments: Arguments) -> object:
        scores = run(*arguments)
        assert isinstance(scores, Tensor)
        dead = scores == -torch.inf
        return scores.masked_fill(dead, 0), dead.long()

    return Case(
        op="score_rows",
        name=f"{heads} heads of {width}, {context} {packing or 'plain'}",
        make=make,
        bytes_per_row=lambda size: (
            heads * (width + 1) * size + (stored_bytes(context, width, packing) + 4 * context) // 2
        ),
        observe=observe,
        waits=True,
    )


def best_case(n: int, k: int) -> Case:
    """Few values, so that most tie; some dead, and some rows with fewer than k alive."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        scores = torch.randint(-9, 9, (rows, n), device=device).float()
        scores[::2] = torch.randn((rows + 1) // 2, n, device=device)
        scores[::3] *= -0.0
        dead = torch.rand(rows, n, device=device) < torch.rand(rows, 1, device=device)
        scores[dead] = -torch.inf
        return scores, k, _pages(rows, n, -(-n // 16) + 3, device)

    return Case(
        op="best_rows", name=f"{k} of {n}", make=make, bytes_per_row=lambda size: 4 * n + 8 * k
    )


def round_case(width: int, packing: str) -> Case:
    """Rows of several heads."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        return normal((rows, 4, width), dtype, device), packing

    return Case(
        op="quantise_dequantise",
        name=f"width {width} {packing}",
        make=make,
        bytes_per_row=lambda size: 8 * width * size,
        is_rounding=True,
        limit=0.0,
        waits=True,
    )
