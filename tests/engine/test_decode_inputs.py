"""How uniform decode steps are padded, and what is one."""

import pytest

from engine.decode_inputs import context_bucket, sequence_bucket


def test_sequences_are_padded_to_few_counts():
    counts = {sequence_bucket(n, 256) for n in range(1, 257)}
    assert sorted(counts) == [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]
    assert all(n <= sequence_bucket(n, 256) for n in range(1, 257))
    assert sequence_bucket(9, 10) == 10


@pytest.mark.parametrize(
    ("context", "width"), [(1, 256), (256, 256), (257, 512), (1025, 2048), (2048, 2048)]
)
def test_contexts_are_padded_to_powers_of_two(context, width):
    assert context_bucket(context) == width
