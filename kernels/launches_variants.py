"""Kernels that a tuned table may put in the place of others. See `kernels.launches`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kernels.grouped_matmul.triton_packed import PACKED
from kernels.hyper_connection import triton_fused
from kernels.indexer.triton_ahead import SCORES
from kernels.launches import Launch, typed
from kernels.launches_matmul import product_launches
from kernels.matmul.triton_packed import FEW
from kernels.topk.triton_lines import BEST
from kernels.tuning import Tunable


def variant_launches() -> Iterator[Launch]:
    """Each in every shape that its table may choose."""
    yield from _between_sublayers()
    yield from _scores_ahead()
    yield from _best_lines()
    yield from _packed_products()


def _between_sublayers() -> Iterator[Launch]:
    common = {"EARLY": True, "IN_ASSEMBLY": True, "N": 4, "OUT": 32}
    yield Launch(
        address="kernels.hyper_connection.triton_fused:expand_product_kernel",
        types=typed("y streams halves out x", "*bf16")
        | typed("pre post matrix partial sums", "*fp32")
        | typed("rows width parts tiles", "i32"),
        constants={**common, "ROWS": triton_fused.ROWS, "BLOCK": triton_fused.BLOCK},
        warps=triton_fused.WARPS,
        even=("width",),
        registers=triton_fused.REGISTERS,
    )
    yield Launch(
        address="kernels.hyper_connection.triton_finish:mix_norm_kernel",
        types=typed("x", "*bf16")
        | typed("weight pre post matrix partial sums base scale", "*fp32")
        | typed("rows width parts iterations", "i32")
        | typed("norm_eps eps x_eps", "fp32"),
        constants={**common, "PARTS": 64, "BLOCK": triton_fused.NORM_BLOCK, "BLOCKS": 5},
        warps=1,
        even=("width",),
    )


def _scores_ahead() -> Iterator[Launch]:
    """One for each shape of a program that the table may choose."""
    shapes = {(c["KEYS"], c["STAGES"], c["num_warps"]) for c in SCORES.candidates if c["AHEAD"]}
    for keys, stages, warps in sorted(shapes):
        yield Launch(
            address="kernels.indexer.triton_ahead:score_ahead_kernel",
            types=typed("queries weights", "*bf16")
            | {"keys": "*u8", "out": "*fp32"}
            | typed("table counts", "*i64")
            | typed("heads context spans per_block table_stride", "i32"),
            constants={
                "SHIFT": 7, "WIDTH": 128, "HEADS": 32, "KEYS": keys, "TILES": 16,
                "STAGES": stages, "IN_ASSEMBLY": True,
            },
            warps=warps,
            even=("heads", "context"),
        )  # fmt: skip


def _best_lines() -> Iterator[Launch]:
    """512 of 16384, whole; and of a part of a long row."""
    lines = [c for c in BEST.candidates if c["LINES"]]
    for block in sorted({c["BLOCK"] for c in lines}):
        warps = min(c["num_warps"] for c in lines if c["BLOCK"] == block)  # most registers
        for is_final in (True, False):
            yield Launch(
                address="kernels.topk.triton_lines:best_lines_kernel",
                types=typed("index held", "*i32")
                | {"scores": "*fp32", "best": "*u32", "out": "*i64" if is_final else "*i32"}
                | typed("table lines", "*i64")
                | typed("n k shared span parts table_stride index_stride", "i32"),
                constants={
                    "NAMES": 0, "BLOCK_ROWS": 0, "IS_FINAL": is_final, "PER_BLOCK": 128,
                    "LANES": 1024, "ROOM": 2048, "BLOCK": block, "MOST": 512, "UNROLL": 8,
                },
                warps=warps,
                even=("n", "k", "span"),
            )  # fmt: skip


def _packed_products() -> Iterator[Launch]:
    """In the place of the products of few rows, whose launches these are but for their shapes."""
    for one in product_launches():
        name = one.address.rpartition(":")[2]
        if name in ("gate_up_packed_kernel", "down_packed_kernel") and one.constants["TILE"] != 128:
            yield from _shaped(one, PACKED, ("COLUMNS", "BLOCK"), {"IN_ASSEMBLY": 2})
        if name == "few_rows_kernel" and one.constants["ROWS"] in (16, 128):
            yield from _shaped(one, FEW, ("OUT", "BLOCK"), {})


def _shaped(
    one: Launch, tunable: Tunable, names: tuple[str, ...], constants: Mapping[str, int]
) -> Iterator[Launch]:
    """A launch in each shape but the first, the default; of those alike, with most stages."""
    shapes = {tuple(c[n] for n in names): c for c in tunable.candidates[1:]}
    for shape, config in shapes.items():
        chosen = {**one.constants, **constants, **dict(zip(names, shape, strict=True))}
        if chosen != one.constants:
            yield replace(
                one, constants=chosen, warps=config["num_warps"], stages=config["num_stages"]
            )
