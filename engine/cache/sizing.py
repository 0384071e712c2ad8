"""How many cache blocks a replica gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.cache.groups import PagedGroup
from engine.cache.storage import CacheStorage
from engine.choices import AcceleratorKind
from engine.errors import CapacityError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.cache.groups import CacheGroup
    from engine.config import ResolvedConfig

_CPU_TOKENS = 131_072  # host memory is zeroed page by page, so demand is not taken at its word


def count_blocks(
    groups: Sequence[CacheGroup],
    resolved: ResolvedConfig,
    *,
    dtype: torch.dtype,
    free_bytes: int,
) -> int:
    """Blocks for one replica: what `cache_tokens` says, else what demand and memory allow.

    Demand is `max_num_seqs` sequences of `max_model_len`, on a CPU at most 131,072 tokens or one
    such sequence. Memory is `memory_fraction` of `free_bytes` (which replicas share on a CPU),
    less the rings of every slot. ConfigError: blocks that
    hold part of a row, or less than one block. CapacityError: no room for one block.
    """
    config = resolved.config
    _check_block_tokens(groups, config.block_tokens)
    if config.cache_tokens is not None:
        return _explicit_blocks(config.cache_tokens, config.block_tokens)
    probe = CacheStorage.allocate(
        groups, blocks=1, block_tokens=config.block_tokens, slots=1, dtype=dtype, device="meta"
    )
    is_cpu = resolved.accelerator is AcceleratorKind.CPU
    sharers = config.data_parallel_size if is_cpu else 1
    budget = int(free_bytes * resolved.memory_fraction / sharers)
    spare = budget - probe.bytes_per_slot * config.max_num_seqs
    block_bytes = max(1, int(probe.bytes_per_token * config.block_tokens))
    if spare < block_bytes:
        raise CapacityError(
            f"{config.max_num_seqs} sequences of {probe.bytes_per_slot} bytes each leave no room "
            f"for a cache block in {budget} bytes.",
            where="cache memory",
            remedy="Lower max_num_seqs or raise memory_fraction.",
        )
    whole = -(-resolved.max_model_len // config.block_tokens)
    demand = config.max_num_seqs * whole
    if is_cpu:
        demand = min(demand, max(whole, _CPU_TOKENS // config.block_tokens))
    return min(demand, spare // block_bytes)


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
