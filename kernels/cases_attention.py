"""Cases of attention to cache rows. See `kernels.cases`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from kernels import formats
from kernels.attention.reference import ChosenRows, OwnRows
from kernels.cache_ops.reference import CachedRows
from kernels.case import TIMED_ROWS, Arguments, Case, Make, normal
from kernels.rotary.reference import frequencies, rotation

POOL = 700  # rows of a cache, most of them read by nobody
PAGE_ROWS = 64
PAGED_ROWS = (1, 6, 32, 128, 192, 768, 2048, 8192)
"""That are timed in pages: also six rows of 1, 32 and 128 sequences, as they verify drafts."""


def stored_bytes(rows: int, width: int, packing: str | None) -> int:
    """Bytes of rows in a packing; plain ones have two bytes a value."""
    return rows * (2 * width if packing is None else formats.row_bytes(packing, width))


def make_cache(
    width: int, packing: str | None, rows: int, dtype: torch.dtype, device: torch.device
) -> CachedRows:
    """Rows of random values."""
    values = normal((rows, width), dtype, device)
    tensor = values if packing is None else formats.pack(values, packing)
    return CachedRows(tensor=tensor, width=width, packing=packing)


def in_pages(cache: CachedRows, page_rows: int = PAGE_ROWS) -> CachedRows:
    """The same rows in pages, whose bytes are a multiple of those of a row's data."""
    assert cache.packing is not None
    rows, size = cache.tensor.shape
    held = formats.data_bytes(cache.packing, cache.width)
    page_bytes = -(-page_rows * size // held) * held
    empty = torch.full((-(-rows // page_rows), page_bytes), 0xFF, dtype=torch.uint8)
    paged = CachedRows(
        tensor=empty.to(cache.tensor.device),
        width=cache.width,
        packing=cache.packing,
        page_rows=page_rows,
    )
    paged.store(torch.arange(rows, device=cache.tensor.device), cache.tensor)
    return paged


def _poison(cache: CachedRows, index: Tensor) -> None:
    """NaN in the rows that nobody chose."""
    dead = torch.ones(len(cache.tensor), dtype=torch.bool, device=index.device)
    dead[index[index >= 0]] = False
    cache.tensor[dead] = 0xFF if cache.packing else torch.nan


def _make(
    heads: int, width: int, window: int, count: int, packing: tuple[str | None, str | None],
    *, has_pages: bool,
) -> Make:  # fmt: skip
    """Windows that begin before the sequence, dead rows of NaN, and queries without any choice."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        ring, slots = window + 6, max(rows // 2, 1)
        own = make_cache(width, packing[0], ring * slots, dtype, device)
        positions = torch.randint(0, 4 * window, (rows,), device=device)
        floors = (positions - torch.randint(0, 2 * window, (rows,), device=device)).clamp(min=0)
        slot = torch.randint(0, slots, (rows,), device=device)
        chosen = None
        if count:
            pool = make_cache(width, packing[1], max(POOL, 2 * count), dtype, device)
            index = torch.rand(rows, len(pool.tensor), device=device).topk(count).indices
            index[:, count - count // 3 :] = -1
            index[::4] = -1
            _poison(pool, index)
            chosen = ChosenRows(cache=in_pages(pool) if has_pages else pool, index=index)
        own_rows = OwnRows(
            cache=in_pages(own) if has_pages else own,
            ring=ring,
            length=window,
            slots=slot,
            positions=positions,
            floors=floors,
        )
        queries = normal((rows, heads, width), dtype, device)
        sink = torch.randn(heads, device=device)
        sink[0] = -torch.inf
        return queries, own_rows, chosen, sink, width**-0.5

    return make


def attend_case(
    heads: int,
    width: int,
    window: int,
    count: int,
    packing: tuple[str | None, str | None],
    *,
    has_pages: bool = False,
) -> Case:
    """Attention to rows where they lie, between a rotation and its inverse."""
    turned = min(64, width // 2)
    make_plain = _make(heads, width, window, count, packing, has_pages=has_pages)

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        freqs = frequencies(turned, 1e4).float().to(device)
        positions = torch.randint(0, 100_000, (rows,), device=device)
        return (*make_plain(rows, dtype, device), rotation(positions, freqs))

    kinds = packing[0] or "plain"
    if packing[0] is None and count and packing[1] is not None:
        kinds = f"plain and {packing[1]}"
    key_bytes = stored_bytes(window, width, packing[0]) + stored_bytes(count, width, packing[1])
    return Case(
        op="attend_turned",
        name=f"{heads} heads of {width}, {window} + {count} {kinds}{' paged' if has_pages else ''}",
        make=make,
        bytes_per_row=lambda size: 2 * heads * width * size + key_bytes + 8 * (count + turned),
        flops=lambda rows: 4 * rows * heads * width * (window + count),
        timed_rows=PAGED_ROWS if has_pages else TIMED_ROWS,
        head_dim=width,
        waits=packing != (None, None),
    )


def far_case(packing: str | None) -> Case:
    """Rows beyond 2^31 values and 2^32 bytes; those that lie 2^31 and 2^32 below hold NaN."""
    width, count = 512, 64
    near = attend_case(64, width, 128, count, (packing, packing))

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        queries, own, chosen, *others = near.make(rows, dtype, device)
        assert isinstance(chosen, ChosenRows)
        pool = chosen.cache.tensor
        size = pool.element_size() * pool.shape[1]
        total = (1 << 32) // size + 2 * len(pool)
        values = torch.full((total, pool.shape[1]), 0xFF, dtype=torch.uint8, device=device)
        if packing is None:
            values = torch.full((total, width), torch.nan, dtype=dtype, device=device)
        values[-len(pool) :] = pool
        index = torch.where(chosen.index < 0, -1, chosen.index + total - len(pool))
        far = ChosenRows(cache=replace(chosen.cache, tensor=values), index=index)
        return queries, own, far, *others

    return replace(near, name=f"{near.name} far", make=make, checked_rows=(5,))
