"""How the keys of a query are split among the processors of a device."""

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from kernels.attention.reference import ChosenRows, OwnRows
from kernels.attention.triton_hopper import shapes, tiles_of_split
from kernels.cache_ops.reference import CachedRows
from kernels.formats import FP8_GROUP32


@pytest.mark.parametrize(
    ("programs", "tiles", "expected"),
    [(1, 10, 1), (13, 10, 1), (32, 10, 3), (66, 10, 5), (128, 10, 10), (4096, 10, 10), (1, 2, 1)],
)
def test_keys_are_split_as_far_as_there_is_room_beside_the_other_programs(
    programs, tiles, expected
):
    split = tiles_of_split(programs, tiles, 132)
    assert split == expected
    assert split == tiles or programs * -(-tiles // split) <= 132


@pytest.mark.parametrize(
    ("room", "told"), [(132, "10 splits"), (9, "2 splits"), (1, "whole"), (0, "in turn")]
)
def test_a_class_tells_the_packings_and_how_many_splits_have_room(room, told):
    rows = torch.arange(3)
    cache = CachedRows(
        tensor=torch.empty(3, 528, dtype=torch.uint8), width=512, packing=FP8_GROUP32
    )
    own = OwnRows(cache=cache, ring=3, length=1, slots=rows, positions=rows, floors=rows)
    plain = CachedRows(tensor=torch.empty(3, 512), width=512)
    chosen = ChosenRows(cache=plain, index=rows[:, None])
    assert shapes(own, None, room) == f"1 and 1, {told}"
    assert shapes(own, chosen, room) == f"1 and 0, {told}"
