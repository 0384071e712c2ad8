"""Cases of writing global rows. See `kernels.cases`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from kernels.cache_ops.reference import RowNorm
from kernels.case import Arguments, Case, Run, normal
from kernels.cases_attention import make_cache, stored_bytes
from kernels.compressor.reference import GlobalRows, Pairs
from kernels.rotary.reference import frequencies, rotation
from kernels.tolerance import AFTER_ROUNDING

RING = 7  # rows that a sequence keeps


def latents_case(width: int, turned: int, packing: str | None, *, has_pairs: bool) -> Case:
    """Sequences of one to three rows, every other row closing; the rest of the cache untouched."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        cache = make_cache(width, packing, rows + 7, dtype, device)
        where = torch.randperm(rows + 7, device=device)[:rows]
        pairs, x = None, normal((rows, width), dtype, device)
        if has_pairs:
            where[::2] = -1
            x = normal((rows, 2 * width), torch.float32, device)
            pairs = _pairs(rows, width, device)
        turn = rotation(
            torch.randint(0, 100_000, (rows,), device=device),
            frequencies(turned, 1e4).float().to(device),
        )
        norm = RowNorm(weight=torch.rand(width, device=device) + 0.5, eps=1e-6)
        return x, pairs, norm, GlobalRows(cache=cache, where=where, turn=turn), dtype

    def call(run: Run, arguments: Arguments) -> object:
        return run(*arguments)

    def observe(run: Run, arguments: Arguments) -> object:
        x, pairs, norm, into, dtype = arguments
        assert isinstance(x, Tensor)
        assert isinstance(into, GlobalRows)
        held = replace(into, cache=replace(into.cache, tensor=into.cache.tensor.clone()))
        kept = None
        if pairs is not None:
            assert isinstance(pairs, Pairs)
            kept = replace(pairs, tails=pairs.tails.clone())
        latents = run(x, kept, norm, held, dtype)
        places = into.where[into.where >= 0]
        seen = latents, held.cache.read(places, torch.float32)
        if kept is None:
            return seen
        return *seen, _kept(pairs, kept)

    size = width * (3 if has_pairs else 1)
    return Case(
        op="write_latents",
        name=f"width {width} {packing or 'plain'}{' of pairs' if has_pairs else ''}",
        make=make,
        bytes_per_row=lambda value: (
            (4 * 2 * size if has_pairs else value * width)
            + value * width
            + stored_bytes(1, width, packing)
            + 8 * turned
        ),
        call=call,
        observe=observe,
        is_rounding=True,
        limit=AFTER_ROUNDING,
        waits=True,
    )


def _pairs(rows: int, width: int, device: torch.device) -> Pairs:
    """Row r belongs to sequence r // 3."""
    sequences = max(-(-rows // 3), 1)
    row = torch.arange(rows, device=device)
    sequence = row // 3
    newest = torch.randint(0, RING, (sequences,), device=device)
    begin = RING * torch.arange(sequences, device=device)
    return Pairs(
        tails=normal((RING * sequences, 2 * width), torch.float32, device),
        old=begin + newest,
        previous=torch.where(row % 3 == 0, sequence, sequences + row - 1),
        keep=begin[sequence] + (newest[sequence] + 1 + row % 3) % RING,
    )


def _kept(before: Pairs, after: Pairs) -> Tensor:
    """Rows that wait for the next step; no other row has changed."""
    others = torch.ones(len(before.tails), dtype=torch.bool, device=before.tails.device)
    others[before.keep] = False
    assert torch.equal(after.tails[others], before.tails[others])
    return after.tails[after.keep]
