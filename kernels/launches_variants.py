"""Kernels that a tuned table may put in the place of others. See `kernels.launches`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from kernels.grouped_matmul.triton_packed import PACKED, SOME_TILE
from kernels.hyper_connection import triton_fused
from kernels.indexer.triton_ahead import SCORES
from kernels.launches import Launch, typed
from kernels.launches_elementwise import TUNED_FOR, mix_norm_launch
from kernels.launches_matmul import product_launches
from kernels.matmul.triton_packed import FEW
from kernels.topk.triton_lines import BEST, LINE
from kernels.tuning import Config, Tunable, chosen


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
    yield mix_norm_launch(
        {"PARTS": 64, "MIXED": 1, "AT_ONCE": triton_fused.AT_ONCE}, has_norms=True
    )


def _scores_ahead() -> Iterator[Launch]:
    """One for each shape of a program that the table may choose, of those alike with the fewest
    registers.
    """
    ahead = [c for c in SCORES.candidates if c["AHEAD"]]
    shapes = {(c["KEYS"], c["STAGES"], c["num_warps"]): c for c in reversed(ahead)}
    for (keys, stages, warps), config in sorted(shapes.items()):
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
            registers=config["maxnreg"],
        )  # fmt: skip


def _best_lines() -> Iterator[Launch]:
    """512 of 16384 in each shape, of those alike with the fewest warps, which have the most
    registers each; and of other rows in the shapes that the table has for them.
    """
    lines = [c for c in BEST.candidates if c["LINES"]]
    sizes = [(c["BLOCK"], 16384, c["num_warps"]) for c in lines]
    for n, count in product((4096, 16384, 65536), ("few", "many")):
        tuned = chosen(BEST, f"512 of {n}, {count} rows", TUNED_FOR)
        if tuned["LINES"]:
            sizes.append((min(tuned["BLOCK"], n), n, tuned["num_warps"]))
    for block, n in sorted({(block, n) for block, n, _ in sizes}):
        for is_final in (True, False):
            yield Launch(
                address="kernels.topk.triton_lines:best_lines_kernel",
                types=typed("index held", "*i32")
                | {"scores": "*fp32", "best": "*u32", "out": "*i64" if is_final else "*i32"}
                | typed("table lines", "*i64")
                | typed("n k shared span parts table_stride index_stride", "i32"),
                constants={
                    "NAMES": 0, "BLOCK_ROWS": 0, "IS_FINAL": is_final, "PER_BLOCK": 128,
                    "LANES": 1024, "ROOM": 2048, "BLOCK": block, "MOST": n // LINE.value,
                    "UNROLL": 8,
                },
                warps=min(w for *one, w in sizes if tuple(one) == (block, n)),
                even=("n", "k", "span"),
            )  # fmt: skip


def _packed_products() -> Iterator[Launch]:
    """In the place of the products of few rows, whose launches these are but for their shapes."""
    for one in product_launches():
        name = one.address.rpartition(":")[2]
        if name in ("gate_up_packed_kernel", "down_packed_kernel") and one.constants["TILE"] != 128:
            yield from _shaped(one, PACKED, ("COLUMNS", "BLOCK"), {"IN_ASSEMBLY": 2})
            if one.constants["TILE"] == PACKED.default["FEW_TILE"]:
                yield from _tiled(one)
        if name == "few_rows_kernel" and one.constants["ROWS"] in (16, 32, 128):
            yield from _shaped(one, FEW, ("OUT", "BLOCK"), {})


def _tiled(one: Launch) -> Iterator[Launch]:
    """A launch of few pairs in each larger tile that no other has."""
    for config in PACKED.candidates:
        if config["FEW_TILE"] > SOME_TILE:
            sizes = {name: config[name] for name in ("COLUMNS", "BLOCK")}
            tile = {"TILE": config["FEW_TILE"], "IN_ASSEMBLY": config["DECODE"]}
            yield replace(
                one, constants={**one.constants, **tile, **sizes},
                warps=config["num_warps"], stages=config["num_stages"],
            )  # fmt: skip


def _shaped(
    one: Launch, tunable: Tunable, names: tuple[str, ...], constants: Mapping[str, int]
) -> Iterator[Launch]:
    """A launch in each shape but the first, the default; of those alike, with most stages."""
    alike: dict[tuple[int, ...], list[Config]] = {}
    for config in tunable.candidates[1:]:
        alike.setdefault(tuple(config[n] for n in names), []).append(config)
    for shape, configs in alike.items():
        config = max(configs, key=lambda c: c["num_stages"])
        chosen = {**one.constants, **constants, **dict(zip(names, shape, strict=True))}
        if chosen != one.constants:
            yield replace(
                one, constants=chosen, warps=config["num_warps"], stages=config["num_stages"]
            )
