import pytest
import torch

from engine.cache.groups import PagedGroup, RingGroup, RowFormat
from engine.cache.sizing import count_blocks
from engine.choices import AcceleratorKind
from engine.config import EngineConfig
from engine.errors import CapacityError, ConfigError
from engine.resolution import resolve
from tests.fakes.hash_model import FACTS

GROUPS = (
    PagedGroup(name="a", width=4, tokens_per_row=1, row_format=RowFormat.PLAIN),
    PagedGroup(name="b", width=8, tokens_per_row=2, row_format=RowFormat.PLAIN),
    RingGroup(name="c", width=2, rows=5, row_format=RowFormat.PLAIN),
)  # in float32: 32 bytes a token, 40 a slot


def blocks(free_bytes, kind=AcceleratorKind.CPU, reserve_bytes=0, **values):
    config = EngineConfig(model="m", **{"block_tokens": 8, "max_num_seqs": 2, **values})
    resolved = resolve(config, FACTS, kind)
    return count_blocks(
        GROUPS,
        resolved,
        dtype=torch.float32,
        free_bytes=free_bytes,
        reserve_bytes=reserve_bytes,
    )


def test_plenty_of_memory_holds_every_sequence_at_full_length():
    assert blocks(10**9) == 2 * 64 // 8


def test_little_memory_is_filled_to_its_fraction_after_the_rings():
    assert blocks(2 * (80 + 5 * 256), memory_fraction=0.5) == 5
    shared = {"memory_fraction": 0.5, "data_parallel_size": 2}
    assert blocks(4 * (80 + 5 * 256), **shared) == 5
    assert blocks(2 * (80 + 5 * 256), AcceleratorKind.CUDA, dtype="float32", **shared) == 5


def test_a_cpu_does_not_take_great_demand_at_its_word():
    assert blocks(10**12, max_num_seqs=10**5) == 131_072 // 8
    assert blocks(10**12, AcceleratorKind.CUDA, max_num_seqs=10**5) == 10**5 * 64 // 8


def test_a_reserve_is_left_alone_where_the_fraction_would_take_it():
    free = 80 + 5 * 256
    assert blocks(free, memory_fraction=1.0) == 5
    assert blocks(free, memory_fraction=1.0, reserve_bytes=1) == 4
    assert blocks(2 * free, memory_fraction=0.5, reserve_bytes=free) == 5
    with pytest.raises(CapacityError, match="memory_reserve_bytes"):
        blocks(free, reserve_bytes=free)


def test_no_room_for_one_block_is_a_capacity_error():
    with pytest.raises(CapacityError, match="max_num_seqs"):
        blocks(4 * (80 + 255))


def test_explicit_cache_tokens_are_taken_as_they_are():
    assert blocks(80 + 2 * 256, cache_tokens=20) == 2
    with pytest.raises(ConfigError, match="cache_tokens: 7 is less than one block"):
        blocks(0, cache_tokens=7)


def test_blocks_that_would_cut_a_row_are_refused():
    with pytest.raises(ConfigError, match="block_tokens"):
        blocks(10**9, block_tokens=7)


def test_more_than_there_is_is_refused_with_the_fields_and_the_bytes():
    with pytest.raises(CapacityError, match=r"cache_tokens, max_num_seqs: .*need 592 .*591 are"):
        blocks(80 + 2 * 256 - 1, cache_tokens=20)
    with pytest.raises(CapacityError, match=r"need 592 bytes; 591 are free for each replica"):
        blocks(2 * 592 - 1, cache_tokens=20, data_parallel_size=2)
    assert blocks(592, AcceleratorKind.CUDA, dtype="float32", cache_tokens=20) == 2
    huge = {"cache_tokens": 10**30, "max_num_seqs": 10**30, "block_tokens": 10**24}
    for field, value in huge.items():
        with pytest.raises(CapacityError, match=field.replace("block_tokens", "cache block")):
            blocks(10**12, **{field: value})
