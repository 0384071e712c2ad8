"""How the keys of a query are split among the processors of a device."""

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from kernels.attention.triton_hopper import tiles_of_split


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
