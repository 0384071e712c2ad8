"""Cases of operations on cache rows. See `kernels.cases`."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import formats
from kernels.attention.reference import ChosenRows, OwnRows
from kernels.cache_ops.reference import CachedRows, Pages, RowNorm
from kernels.case import Arguments, Case, Run, normal
from kernels.rotary.reference import Rotation, frequencies, rotation
from kernels.tolerance import AFTER_ROUNDING

POOL = 700  # rows of a cache, most of them read by nobody


def _stored(rows: int, width: int, packing: str | None) -> int:
    return rows * (2 * width if packing is None else formats.row_bytes(packing, width))


def _cache(
    width: int, packing: str | None, rows: int, dtype: torch.dtype, device: torch.device
) -> CachedRows:
    values = normal((rows, width), dtype, device)
    tensor = values if packing is None else formats.pack(values, packing)
    return CachedRows(tensor=tensor, width=width, packing=packing)


def insert_case(width: int, turned: int, packing: str | None, *, has_norm: bool) -> Case:
    """One row in three is not stored."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        cache = _cache(width, packing, rows + 7, dtype, device)
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
        held = CachedRows(tensor=cache.tensor.clone(), width=width, packing=packing)
        run(held, where, x, norm, turn)
        untouched = torch.ones(len(held.tensor), dtype=torch.bool, device=where.device)
        untouched[where[where >= 0]] = False
        assert torch.equal(held.tensor[untouched], cache.tensor[untouched])
        places = where[where >= 0]
        if not has_norm and packing is not None:
            return held.tensor[places]
        return held.read(places, x.dtype)

    return Case(
        op="insert_rows",
        name=f"width {width} {packing or 'plain'}{' normed' if has_norm else ''}",
        make=make,
        bytes_per_row=lambda size: (width + width // 3 * 2) * size + 8 * turned,
        call=call,
        observe=observe,
        waits=True,
        is_rounding=packing is not None,
        limit=None if packing is None else AFTER_ROUNDING,
    )


def attend_case(
    heads: int, width: int, window: int, count: int, packing: tuple[str | None, str | None]
) -> Case:
    """Windows that begin before the sequence, dead rows of NaN, and queries without any choice."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        ring, slots = window + 6, max(rows // 2, 1)
        own = _cache(width, packing[0], ring * slots, dtype, device)
        positions = torch.randint(0, 4 * window, (rows,), device=device)
        floors = (positions - torch.randint(0, 2 * window, (rows,), device=device)).clamp(min=0)
        slot = torch.randint(0, slots, (rows,), device=device)
        chosen = None
        if count:
            pool = _cache(width, packing[1], max(POOL, 2 * count), dtype, device)
            index = torch.rand(rows, len(pool.tensor), device=device).topk(count).indices
            index[:, count - count // 3 :] = -1
            index[::4] = -1
            _poison(pool, index)
            chosen = ChosenRows(cache=pool, index=index)
        own_rows = OwnRows(
            cache=own, ring=ring, length=window, slots=slot, positions=positions, floors=floors
        )
        queries = normal((rows, heads, width), dtype, device)
        return queries, own_rows, chosen, torch.randn(heads, device=device), width**-0.5

    key_bytes = _stored(window, width, packing[0]) + _stored(count, width, packing[1])
    return Case(
        op="attend_cached",
        name=f"{heads} heads of {width}, {window} + {count} {packing[0] or 'plain'}",
        make=make,
        bytes_per_row=lambda size: 2 * heads * width * size + key_bytes + 8 * count,
        waits=packing != (None, None),
    )


def _poison(cache: CachedRows, index: Tensor) -> None:
    """NaN in the rows that nobody chose."""
    dead = torch.ones(len(cache.tensor), dtype=torch.bool, device=index.device)
    dead[index[index >= 0]] = False
    cache.tensor[dead] = 0xFF if cache.packing else torch.nan


def _pages(rows: int, n: int, blocks: int, device: torch.device) -> Pages:
    per_block = 16
    drawn = torch.rand(rows, blocks, device=device).argsort(1)
    return Pages(table=drawn[:, : -(-n // per_block)].contiguous(), rows_per_block=per_block)


def score_case(heads: int, width: int, context: int, packing: str | None) -> Case:
    """Contexts of every length, none included."""
    blocks = -(-context // 16) + 3

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        keys = _cache(width, packing, blocks * 16, dtype, device)
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
            heads * (width + 1) * size + (_stored(context, width, packing) + 4 * context) // 2
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
