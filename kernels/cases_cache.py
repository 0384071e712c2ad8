"""Cases of operations on cache rows. See `kernels.cases`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from kernels.cache_ops.reference import CachedRows, RowNorm
from kernels.case import Arguments, Case, Run, normal
from kernels.cases_attention import in_pages, make_cache
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
