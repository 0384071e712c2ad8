"""Pair pooling against a loop."""

import math

import torch

from kernels.compressor.reference import pool_pairs


def test_each_channel_is_weighed_by_its_own_gates():
    even, odd = torch.randn(2, 3, 8, dtype=torch.float64)
    got = pool_pairs(even, odd)
    assert got.shape == (3, 4)
    for r in range(3):
        for c in range(4):
            gates = [math.exp(float(t[r, 4 + c])) for t in (even, odd)]
            expected = gates[0] * float(even[r, c]) + gates[1] * float(odd[r, c])
            assert math.isclose(float(got[r, c]), expected / sum(gates), rel_tol=1e-12)
