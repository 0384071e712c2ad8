"""Engram hashing against the constants of the release and plain integers."""

import math

import torch

from kernels.engram.reference import HashConstants, gated_add, hash_constants, table_rows


def released():
    return hash_constants((1, 14), vocab_size=16000000, token_ids=99092, ngram=4, heads=8)


def test_constants_of_the_release_are_reproduced():
    first, second = released()
    assert (first.table_rows, second.table_rows) == (384006168, 384016682)
    assert first.primes.flatten()[:3].tolist() == [16000057, 16000079, 16000081]
    assert first.multipliers.tolist() == [
        76632096046245,
        4839876093313,
        35959672319349,
        73987337458391,
    ]
    assert second.multipliers.tolist() == [
        67716810739261,
        51510806800915,
        30921347202721,
        82619226485591,
    ]


def test_rows_follow_the_hash_in_plain_integers():
    constants = released()[1]
    ids = torch.randint(0, 99092, (20, 4))
    got = table_rows(ids, constants)
    primes, multipliers = constants.primes.tolist(), constants.multipliers.tolist()
    for r, row in enumerate(ids.tolist()):
        expected, offset, value = [], 0, row[0] * multipliers[0]
        for back in range(1, 4):
            value ^= row[back] * multipliers[back]
            assert 0 <= value < 2**63
            for prime in primes[back - 1]:
                expected.append(value % prime + offset)
                offset += prime
        assert got[r].tolist() == expected
        assert max(expected) < constants.table_rows


def test_tiny_tables_take_primes_from_one_walk():
    first, second = hash_constants((0, 3), vocab_size=50, token_ids=64, ngram=4, heads=2)
    assert first.primes.tolist() == [[53, 59], [61, 67], [71, 73]]
    assert second.primes.tolist() == [[79, 83], [89, 97], [101, 103]]
    assert first.offsets.tolist() == [[0, 53], [112, 173], [240, 311]]
    assert isinstance(first, HashConstants)


def test_gate_weighs_the_shared_value_by_stream_and_key():
    n, width, eps = 2, 4, 1e-6
    streams = torch.randn(3, n, width, dtype=torch.float64)
    kv = torch.randn(3, (n + 1) * width, dtype=torch.float64)
    weight = torch.randn(n, width, dtype=torch.float64)
    got = gated_add(streams, kv, weight, eps)
    for r in range(3):
        value = kv[r, n * width :]
        for j in range(n):
            stream, key = streams[r, j], kv[r, j * width : (j + 1) * width]
            sizes = [math.sqrt(float((v * v).mean()) + eps) for v in (stream, key)]
            dot = float((stream * weight[j] * key).sum()) / (sizes[0] * sizes[1]) / math.sqrt(width)
            root = math.copysign(math.sqrt(max(abs(dot), 1e-6)), dot)
            torch.testing.assert_close(got[r, j], stream + value / (1 + math.exp(-root)))
