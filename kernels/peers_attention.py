"""FlashMLA's sparse attention beside `attend_turned`, as sgl-flash-mla offers it (`flash_mla`).

Its kernels for Hopper, the "legacy" ones, read DeepSeek-V4's rows of 584 bytes in pages. A peer
attends alone: queries come as they are and nothing is turned back.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels import formats
from kernels.attention.reference import ChosenRows, OwnRows
from kernels.cache_ops.reference import CachedRows, ring_rows
from kernels.case import Arguments
from kernels.formats import FP8_GROUP64_TAIL
from kernels.stopwatch import Work

WIDTH = 512
HEADS = (64, 128)
BLOCK = 64  # keys that its kernels take at once: counts are multiples of it
PROMPT_ROWS = 1024  # from which rows are those of a prompt
DRAFTED = 6  # rows that a sequence verifies: five drafts and the token before them


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """Of attention that FlashMLA can do."""

    queries: Tensor  # bfloat16 [rows, heads, 512]
    own: CachedRows
    own_index: Tensor  # int32 [rows, window] rows of `own`, -1 where there is none
    chosen: CachedRows
    chosen_index: Tensor  # int32 [rows, k], the same of `chosen`
    sink: Tensor  # float32 [heads]
    scale: float


def decode(arguments: Arguments) -> Work | None:
    """Each row a sequence of its own."""
    return _decode(arguments, 1)


def decode_drafted(arguments: Arguments) -> Work | None:
    """DRAFTED rows a sequence; None where their number is no multiple of it."""
    return _decode(arguments, DRAFTED)


def _decode(arguments: Arguments, each: int) -> Work | None:
    held = _inputs(arguments)
    if held is None or len(held.queries) % each:
        return None
    flash = importlib.import_module("flash_mla")
    schedule, _ = flash.get_mla_metadata()
    queries, own_index, chosen_index = (
        x.unflatten(0, (-1, each)) for x in (held.queries, held.own_index, held.chosen_index)
    )

    def work() -> object:
        return flash.flash_mla_with_kvcache(
            queries,
            _pages(held.own),
            None,
            None,
            WIDTH,
            schedule,
            softmax_scale=held.scale,
            is_fp8_kvcache=True,
            indices=own_index,
            attn_sink=held.sink,
            extra_k_cache=_pages(held.chosen),
            extra_indices_in_kvcache=chosen_index,
            use_legacy=True,
        )

    work()  # makes the schedule, as an engine does once a step for all its layers
    return work


def prefill(arguments: Arguments) -> Work | None:
    """Rows of a prompt over bfloat16 keys, which are unpacked beforehand."""
    held = _inputs(arguments)
    if held is None or len(held.queries) < PROMPT_ROWS:
        return None
    attend = importlib.import_module("flash_mla").flash_mla_sparse_fwd
    own, chosen = _unpacked(held.own), _unpacked(held.chosen)
    further = torch.where(held.chosen_index < 0, -1, held.chosen_index + len(own))
    keys = torch.cat((own, chosen)).unsqueeze(1)  # [keys, 1, 512]
    index = torch.cat((held.own_index, further), -1).unsqueeze(1)  # [rows, 1, window + k]
    return lambda: attend(
        held.queries, keys, index, held.scale, WIDTH, attn_sink=held.sink, use_legacy=True
    )


def _inputs(arguments: Arguments) -> _Inputs | None:
    queries, own, chosen, sink, scale, *_ = arguments
    assert isinstance(queries, Tensor)
    assert isinstance(own, OwnRows)
    assert isinstance(sink, Tensor)
    assert isinstance(scale, float)
    if not isinstance(chosen, ChosenRows) or not _suits(queries, own, chosen):
        return None
    at = own.positions[:, None] + torch.arange(1 - own.length, 1, device=queries.device)
    places = ring_rows(own.slots[:, None], at, own.ring)
    visible = (at >= own.floors[:, None]) & (at >= 0)
    return _Inputs(
        queries=queries.contiguous(),
        own=own.cache,
        own_index=torch.where(visible, places, -1).int(),
        chosen=chosen.cache,
        chosen_index=chosen.index.clamp(min=-1).int(),
        sink=sink.float(),
        scale=scale,
    )


def _suits(queries: Tensor, own: OwnRows, chosen: ChosenRows) -> bool:
    caches = (own.cache, chosen.cache)
    return (
        queries.dtype == torch.bfloat16
        and len(queries) > 0
        and queries.shape[1] in HEADS
        and queries.shape[2] == WIDTH
        and all(cache.packing == FP8_GROUP64_TAIL for cache in caches)
        and all(cache.page_rows is not None for cache in caches)
        and own.length % BLOCK == chosen.index.shape[-1] % BLOCK == 0
    )


def _pages(cache: CachedRows) -> Tensor:
    """As FlashMLA takes them: [pages, rows of a page, 1, bytes of a row], a view."""
    assert cache.page_rows is not None
    size = formats.row_bytes(FP8_GROUP64_TAIL, cache.width)
    shape = (len(cache.tensor), cache.page_rows, 1, size)
    strides = (cache.page_stride, size, size, 1)
    return cache.tensor.as_strided(shape, strides).view(torch.float8_e4m3fn)


def _unpacked(cache: CachedRows) -> Tensor:
    """All rows: bfloat16 [rows, 512]."""
    assert cache.page_rows is not None
    rows = torch.arange(len(cache.tensor) * cache.page_rows, device=cache.tensor.device)
    return cache.read(rows, torch.bfloat16)
