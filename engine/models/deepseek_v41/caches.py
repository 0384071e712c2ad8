"""The cache groups of V4.1 and their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cache.groups import CacheGroup, PagedGroup, RingGroup, RowFormat
from kernels.cache_ops.reference import CachedRows

if TYPE_CHECKING:
    from engine.cache.storage import CacheStorage
    from engine.models.deepseek_v41.config import DeepseekV41Config


def window_name(layer: int) -> str:
    """Window keys of a layer."""
    return f"window.{layer}"


def global_name(owner: int) -> str:
    """Global rows of an owner."""
    return f"global.{owner}"


def index_name(owner: int) -> str:
    """Index keys of an owner."""
    return f"index.{owner}"


def tail_name(owner: int) -> str:
    """Values and gates of the newest tokens of a ratio-2 owner."""
    return f"tail.{owner}"


def context_name(stage: int) -> str:
    """Context keys of a DSpark stage."""
    return f"dspark.{stage}"


def cached_rows(caches: CacheStorage, name: str) -> CachedRows:
    """The rows of a group where they lie."""
    group = caches.groups[name]
    is_exact = group.row_format in (RowFormat.PLAIN, RowFormat.FLOAT32)
    packing = None if is_exact else group.row_format.value
    return CachedRows(tensor=caches.tensors[name], width=group.width, packing=packing)


def cache_groups(
    config: DeepseekV41Config, *, max_backtrack: int, released: bool
) -> tuple[CacheGroup, ...]:
    """Every group; `released` picks the packed formats of the release, else rows are exact."""
    ring = config.sliding_window + max_backtrack
    rings = [window_name(layer) for layer in range(config.num_hidden_layers)]
    rings += [context_name(stage) for stage in range(config.num_nextn_predict_layers)]
    fp8 = RowFormat.FP8_GROUP32 if released else RowFormat.PLAIN
    groups: list[CacheGroup] = [
        RingGroup(name=name, width=config.head_dim, rows=ring, row_format=fp8) for name in rings
    ]
    for owner in config.kv_source_layer_ids:
        groups += _owner_groups(config, owner, max_backtrack, released)
    return tuple(groups)


def _owner_groups(
    config: DeepseekV41Config, owner: int, max_backtrack: int, released: bool
) -> list[CacheGroup]:
    ratio = config.compress_ratios[owner]
    groups: list[CacheGroup] = [
        PagedGroup(
            name=global_name(owner),
            width=config.head_dim,
            tokens_per_row=ratio,
            row_format=RowFormat.FP4_GROUP16 if released else RowFormat.PLAIN,
        ),
        PagedGroup(
            name=index_name(owner),
            width=config.index_head_dim,
            tokens_per_row=ratio,
            row_format=RowFormat.FP4_GROUP32 if released else RowFormat.PLAIN,
        ),
    ]
    if ratio == 2:
        groups.append(
            RingGroup(
                name=tail_name(owner),
                width=2 * config.head_dim,
                rows=max_backtrack + 2,
                row_format=RowFormat.FLOAT32,
            )
        )
    return groups
