"""Cache tensors: sizes, addresses, and what rounding leaves."""

import pytest
import torch

from engine.cache.groups import PagedGroup, RingGroup, RowFormat
from engine.cache.storage import CacheStorage
from engine.errors import CapacityError

GROUPS = (
    PagedGroup(name="pairs", width=64, tokens_per_row=2, row_format=RowFormat.FP4_GROUP16),
    PagedGroup(name="rows", width=32, tokens_per_row=1, row_format=RowFormat.PLAIN),
    RingGroup(name="ring", width=64, rows=5, row_format=RowFormat.FP8_GROUP32),
    RingGroup(name="tail", width=8, rows=3, row_format=RowFormat.FLOAT32),
)


def storage(dtype=torch.bfloat16):
    return CacheStorage.allocate(
        GROUPS, blocks=3, block_tokens=4, slots=2, dtype=dtype, device="cpu"
    )


def test_rows_are_counted_by_block_and_by_slot():
    shapes = {name: tuple(tensor.shape) for name, tensor in storage().tensors.items()}
    assert shapes == {"pairs": (6, 36), "rows": (12, 32), "ring": (10, 66), "tail": (6, 8)}
    assert storage().rows_per_block("pairs") == 2


def test_bytes_are_those_of_the_rows():
    found = storage()
    assert found.bytes_per_token == 36 / 2 + 32 * 2
    assert found.bytes_per_slot == 5 * 66 + 3 * 8 * 4


@pytest.mark.parametrize(
    ("dtype", "exact"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_float32_groups_are_never_narrower(dtype, exact):
    assert storage(dtype).tensors["tail"].dtype == exact
    assert storage(dtype).tensors["rows"].dtype == dtype


@pytest.mark.parametrize("name", ["pairs", "rows", "ring", "tail"])
def test_what_is_read_is_what_rounding_left_of_what_was_written(name):
    found = storage(torch.float32)
    values = torch.randn(2, found.groups[name].width)
    found.write(name, torch.tensor([4, 1]), values)
    got = found.read(name, torch.tensor([[1, 4, 0]]))
    assert got.shape == (1, 3, values.shape[1])
    assert torch.equal(got[0, :2], found.rounded(name, values).flip(0))
    assert torch.equal(got[0, 2], torch.zeros(values.shape[1]))
    assert torch.equal(found.rounded(name, values), values) == (name in ("rows", "tail"))


def test_memory_that_the_device_does_not_give_is_a_capacity_error():
    with pytest.raises(CapacityError, match="cache_tokens, max_num_seqs") as refusal:
        CacheStorage.allocate(
            GROUPS, blocks=2**52, block_tokens=4, slots=1, dtype=torch.float32, device="cpu"
        )
    assert refusal.value.exit_code == 1
