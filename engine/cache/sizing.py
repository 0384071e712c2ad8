"""How many cache blocks a replica gets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.cache.groups import PagedGroup
from engine.cache.storage import CacheStorage
from engine.choices import AcceleratorKind
from engine.errors import CapacityError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from engine.cache.groups import CacheGroup
    from engine.config import EngineConfig
    from engine.resolution import ResolvedConfig

_CPU_TOKENS = 131_072  # host memory is zeroed page by page, so demand is not taken at its word


@dataclass(frozen=True, kw_only=True)
class _Costs:
    """Bytes of the caches of one replica, and the bytes there are."""

    slot_bytes: int
    block_bytes: int
    free_bytes: int  # this replica's share

    def needed_bytes(self, slots: int, blocks: int) -> int:
        return slots * self.slot_bytes + blocks * self.block_bytes


def count_blocks(
    groups: Sequence[CacheGroup],
    resolved: ResolvedConfig,
    *,
    dtype: torch.dtype,
    free_bytes: int,
    reserve_bytes: int = 0,
) -> int:
    """Blocks for one replica: what `cache_tokens` says, else what demand and memory allow.

    Demand is `max_num_seqs` sequences of `max_model_len`, on a CPU at most 131,072 tokens or one
    such sequence. Memory is `memory_fraction` of `free_bytes` (which replicas share on a CPU), or
    all but `reserve_bytes` if that is less, without the rings of every slot. ConfigError: blocks
    that hold part of a row, or less than one block. CapacityError: no room for one block, or
    `cache_tokens` and `max_num_seqs` that need more than there is.
    """
    config = resolved.config
    _check_block_tokens(groups, config.block_tokens)
    costs = _costs(groups, resolved, dtype, free_bytes)
    if config.cache_tokens is not None:
        blocks = _explicit_blocks(config.cache_tokens, config.block_tokens)
        _check_room(costs, config, blocks)
        return blocks
    share = int(costs.free_bytes * resolved.memory_fraction)
    budget = min(share, costs.free_bytes - reserve_bytes)
    spare = budget - costs.needed_bytes(config.max_num_seqs, 0)
    if spare < costs.block_bytes:
        raise CapacityError(
            f"{config.max_num_seqs} sequences of {costs.slot_bytes} bytes each leave no room "
            f"for a cache block of {costs.block_bytes} in {budget} bytes.",
            where="max_num_seqs",
            remedy="Lower max_num_seqs or memory_reserve_bytes, or raise memory_fraction.",
        )
    whole = -(-resolved.max_model_len // config.block_tokens)
    demand = config.max_num_seqs * whole
    if resolved.accelerator is AcceleratorKind.CPU:
        demand = min(demand, max(whole, _CPU_TOKENS // config.block_tokens))
    return min(demand, spare // costs.block_bytes)


def _costs(
    groups: Sequence[CacheGroup], resolved: ResolvedConfig, dtype: torch.dtype, free_bytes: int
) -> _Costs:
    config = resolved.config
    whole_rows = math.lcm(*(g.tokens_per_row for g in groups if isinstance(g, PagedGroup)))
    probe = CacheStorage.allocate(
        groups, blocks=1, block_tokens=whole_rows, slots=1, dtype=dtype, device="meta"
    )
    sharers = config.data_parallel_size if resolved.accelerator is AcceleratorKind.CPU else 1
    return _Costs(
        slot_bytes=probe.bytes_per_slot,
        block_bytes=max(1, int(probe.bytes_per_token * config.block_tokens)),
        free_bytes=free_bytes // sharers,
    )


def _check_room(costs: _Costs, config: EngineConfig, blocks: int) -> None:
    needed = costs.needed_bytes(config.max_num_seqs, blocks)
    if needed > costs.free_bytes:
        raise CapacityError(
            f"{config.cache_tokens} cache tokens and {config.max_num_seqs} sequences need "
            f"{needed} bytes; {costs.free_bytes} are free for each replica.",
            where="cache_tokens, max_num_seqs",
            remedy="Lower cache_tokens or max_num_seqs.",
        )


def _check_block_tokens(groups: Sequence[CacheGroup], block_tokens: int) -> None:
    for group in groups:
        if isinstance(group, PagedGroup) and block_tokens % group.tokens_per_row:
            raise ConfigError(
                f"{block_tokens} is not a multiple of {group.tokens_per_row}, the tokens that "
                f"one row of {group.name} covers.",
                where="block_tokens",
                remedy="Use a multiple, such as 64.",
            )


def _explicit_blocks(cache_tokens: int, block_tokens: int) -> int:
    if cache_tokens < block_tokens:
        raise ConfigError(
            f"{cache_tokens} is less than one block of {block_tokens} tokens.",
            where="cache_tokens",
            remedy=f"Use at least {block_tokens}.",
        )
    return cache_tokens // block_tokens
