"""Rotation against complex numbers, YaRN against the formula pair by pair."""

import cmath
import math

import torch

from kernels.rotary.reference import Yarn, frequencies, rotate, rotation


def test_pairs_of_the_last_dimensions_turn_as_complex_numbers():
    positions = torch.tensor([0, 3, 70])
    freqs = frequencies(4, 100.0)
    x = torch.randn(3, 2, 6, dtype=torch.float64)
    got = rotate(x, rotation(positions, freqs))
    assert torch.equal(got[..., :2], x[..., :2])
    for row, position in enumerate(positions.tolist()):
        for head in range(2):
            for pair in range(2):
                turn = cmath.exp(1j * position * 100.0 ** (-2 * pair / 4))
                before = complex(*x[row, head, 2 + 2 * pair : 4 + 2 * pair].tolist())
                after = complex(*got[row, head, 2 + 2 * pair : 4 + 2 * pair].tolist())
                assert cmath.isclose(after, before * turn, rel_tol=1e-12)


def test_the_inverse_undoes_the_rotation():
    turn = rotation(torch.arange(9), frequencies(8, 10000.0))
    x = torch.randn(9, 12, dtype=torch.float64)
    torch.testing.assert_close(rotate(rotate(x, turn), turn.inverse), x)


def test_yarn_keeps_fast_pairs_and_stretches_slow_ones():
    base, width, original = 160000.0, 64, 65536
    yarn = Yarn(factor=16, beta_fast=32, beta_slow=1, original_positions=original)
    got = frequencies(width, base, yarn)

    def pair_of(turns):
        return width * math.log(original / (2 * math.pi * turns)) / (2 * math.log(base))

    low, high = max(math.floor(pair_of(32)), 0), min(math.ceil(pair_of(1)), width - 1)
    assert 0 < low < high < width // 2
    for i in range(width // 2):
        plain = base ** (-2 * i / width)
        ramp = min(max((i - low) / (high - low), 0), 1)
        expected = plain / 16 * ramp + plain * (1 - ramp)
        assert math.isclose(float(got[i]), expected, rel_tol=1e-12)
    assert float(got[0]) == 1.0
    assert math.isclose(float(got[-1]), base ** (-62 / 64) / 16, rel_tol=1e-12)
