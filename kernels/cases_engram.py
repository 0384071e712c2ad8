"""Cases of the n-gram memory. See `kernels.cases`."""

from __future__ import annotations

import torch

from kernels.case import Arguments, Case, normal
from kernels.engram.reference import hash_constants


def look_up_case(ngram: int, heads: int, dim: int) -> Case:
    """A table of about a thousand rows a column."""
    sizes = {"vocab_size": 1000, "token_ids": 2860, "ngram": ngram, "heads": heads}
    constants = hash_constants((1,), **sizes)[0]
    columns = (ngram - 1) * heads

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        ids = torch.randint(0, 2860, (rows, ngram), device=device)
        table = normal((constants.table_rows, dim), dtype, device)
        return ids, constants.to(device), table

    return Case(
        op="look_up",
        name=f"{columns} columns of {dim}",
        make=make,
        bytes_per_row=lambda size: 2 * columns * dim * size + 8 * ngram,
    )


def gated_add_case(n: int, width: int) -> Case:
    """Keys that fit well, badly and not at all."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        streams = normal((rows, n, width), dtype, device)
        kv = normal((rows, (n + 1) * width), dtype, device)
        kv[::2, :width] += streams[::2, 0]
        kv[1::3] = 0
        return streams, kv, torch.rand(n, width, device=device), 1e-6

    return Case(
        op="gated_add",
        name=f"{n} streams of {width}",
        make=make,
        bytes_per_row=lambda size: (3 * n + 1) * width * size,
        fixed_bytes=4 * n * width,
    )
