"""Hyper-connections against loops."""

import math

import torch

from kernels.hyper_connection.reference import Mixes, Mixing, collapse, expand, mixes, sinkhorn

N, WIDTH = 3, 5


def sigmoid(v):
    return 1 / (1 + math.exp(-v))


def naive_sinkhorn(logits, iterations, eps):
    n = len(logits)
    matrix = []
    for row in logits:
        exps = [math.exp(v) for v in row]
        matrix.append([v / sum(exps) + eps for v in exps])
    for turn in range(iterations):
        if turn:
            matrix = [[v / (sum(row) + eps) for v in row] for row in matrix]
        sums = [sum(matrix[i][j] for i in range(n)) + eps for j in range(n)]
        matrix = [[matrix[i][j] / sums[j] for j in range(n)] for i in range(n)]
    return matrix


def test_sinkhorn_ends_on_columns():
    logits = torch.randn(4, N, N, dtype=torch.float64)
    got = sinkhorn(logits, 3, 1e-3)
    for r in range(4):
        expected = naive_sinkhorn(logits[r].tolist(), 3, 1e-3)
        torch.testing.assert_close(got[r], torch.tensor(expected, dtype=torch.float64))


def test_many_iterations_make_rows_and_columns_sum_to_one():
    matrix = sinkhorn(torch.randn(6, 4, 4, dtype=torch.float64), 200, 1e-9)
    ones = torch.ones(6, 4, dtype=torch.float64)
    torch.testing.assert_close(matrix.sum(-1), ones, rtol=0, atol=1e-6)
    torch.testing.assert_close(matrix.sum(-2), ones, rtol=0, atol=1e-6)


def test_mixes_follow_the_formula():
    scales = [0.7, 1.3, 0.4]
    mixing = Mixing(
        fn=torch.randn((2 + N) * N, N * WIDTH, dtype=torch.float64),
        base=torch.randn((2 + N) * N, dtype=torch.float64),
        scale=torch.tensor([scales[0]] * N + [scales[1]] * N + [scales[2]] * N * N).double(),
        sinkhorn_iterations=4,
        norm_eps=1e-6,
        eps=1e-4,
    )
    streams = torch.randn(2, N, WIDTH, dtype=torch.float64)
    got = mixes(streams, mixing)
    for r in range(2):
        flat = streams[r].flatten().tolist()
        size = math.sqrt(sum(v * v for v in flat) / len(flat) + 1e-6)
        raw = [
            sum(w * v for w, v in zip(row, flat, strict=True)) / size for row in mixing.fn.tolist()
        ]
        base = mixing.base.tolist()
        pre = [sigmoid(raw[i] * mixing.scale[i].item() + base[i]) + 1e-4 for i in range(N)]
        post = [2 * sigmoid(raw[i] * mixing.scale[i].item() + base[i]) for i in range(N, 2 * N)]
        logits = [
            [raw[k] * mixing.scale[k].item() + base[k] for k in range(2 * N + i * N, 3 * N + i * N)]
            for i in range(N)
        ]
        torch.testing.assert_close(got.pre[r].tolist(), pre)
        torch.testing.assert_close(got.post[r].tolist(), post)
        torch.testing.assert_close(got.matrix[r].tolist(), naive_sinkhorn(logits, 4, 1e-4))


def test_collapse_is_a_weighted_sum_of_streams():
    streams = torch.randn(2, N, WIDTH, dtype=torch.float64)
    pre = torch.rand(2, N, dtype=torch.float64)
    expected = sum(pre[:, j, None] * streams[:, j] for j in range(N))
    torch.testing.assert_close(collapse(streams, pre), expected)


def test_the_first_index_of_the_matrix_is_the_input_stream():
    streams, y = torch.randn(2, N, WIDTH).double(), torch.randn(2, WIDTH).double()
    mixed = Mixes(
        pre=torch.rand(2, N).double(),
        post=torch.rand(2, N).double(),
        matrix=torch.rand(2, N, N).double(),
    )
    got = expand(y, streams, mixed)
    for r in range(2):
        for o in range(N):
            expected = mixed.post[r, o] * y[r]
            for i in range(N):
                expected = expected + mixed.matrix[r, i, o] * streams[r, i]
            torch.testing.assert_close(got[r, o], expected)
