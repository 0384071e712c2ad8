"""Kernels that a tuned table may put in the place of others. See `kernels.launches`."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.indexer.triton_ahead import SCORES
from kernels.launches import Launch


def variant_launches() -> Iterator[Launch]:
    """Each in every shape that its table may choose."""
    yield from _scores_ahead()


def _scores_ahead() -> Iterator[Launch]:
    """One for each shape of a program that the table may choose."""
    shapes = {(c["KEYS"], c["STAGES"], c["num_warps"]) for c in SCORES.candidates if c["AHEAD"]}
    for keys, stages, warps in sorted(shapes):
        yield Launch(
            address="kernels.indexer.triton_ahead:score_ahead_kernel",
            types=_typed("queries weights", "*bf16")
            | {"keys": "*u8", "out": "*fp32"}
            | _typed("table counts", "*i64")
            | _typed("heads context spans per_block table_stride", "i32"),
            constants={
                "SHIFT": 7, "WIDTH": 128, "HEADS": 32, "KEYS": keys, "TILES": 16,
                "STAGES": stages, "IN_ASSEMBLY": True,
            },
            warps=warps,
            even=("heads", "context"),
        )  # fmt: skip


def _typed(names: str, kind: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), kind)
