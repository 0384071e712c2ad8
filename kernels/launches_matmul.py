"""Products with packed weights, and those that leave rows alone. See `kernels.launches`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from kernels.grouped_matmul import triton_hopper
from kernels.grouped_matmul.triton_fp8 import fp8_sizes
from kernels.grouped_matmul.triton_packed import packed_sizes
from kernels.launches import Launch, typed
from kernels.matmul.triton_invariant import ROWS, WIDE_ROWS, Cut, packed_cut
from kernels.matmul.triton_packed import FewRows

MATMUL = "kernels.matmul.triton_packed"


def product_launches() -> Iterator[Launch]:
    """Each kernel at the sizes of DeepSeek-V4.1-Flash, or of DeepSeek-V4-Flash."""
    yield from _mxfp4_experts()
    yield from _hopper_experts()
    for group in (32, 128):
        yield from _fp8_experts(group)
    yield from _dense()
    yield from _hopper()
    yield from _invariant()


def _mxfp4_experts() -> Iterator[Launch]:
    """mxfp4 of DeepSeek-V4.1, for few, some and many pairs."""
    grouped = "kernels.grouped_matmul.triton_packed"
    tables = typed("order tiles tile_expert tile_start tile_end", "*i32")
    for pairs in (192, 3072, 49152):
        for address, sizes in (
            (f"{grouped}:gate_up_packed_kernel", packed_sizes(pairs, 384)),
            (f"{grouped}:down_packed_kernel", packed_sizes(pairs, 384)),
        ):
            is_up = "gate_up" in address
            yield Launch(
                address=address,
                types=typed("x out", "*bf16")
                | tables
                | typed("gate_up down", "*u16")
                | typed("per_row width inner blocks", "i32")
                | {"scales": "*u8", "weights": "*fp32", "limit": "fp32"},
                constants={"EVEN": True, "IN_ASSEMBLY": True, **sizes.constants}
                | ({"GROUP": 32} if is_up else {}),
                warps=sizes.warps,
                stages=sizes.stages,
                even=("width", "inner"),
            )


def _hopper_experts() -> Iterator[Launch]:
    """The same in order of their experts, of any pairs."""
    rows, words = triton_hopper.ROWS_LAYOUT, triton_hopper.WORDS_LAYOUT
    for width, outputs, is_up in ((5120, 2304, True), (2304, 5120, False)):
        yield Launch(
            address="kernels.grouped_matmul.triton_hopper:experts_kernel",
            types={
                "many": f"tensordesc<bf16[{triton_hopper.MANY_ROWS}, 64],{rows!r}>",
                "few": f"tensordesc<bf16[{triton_hopper.FEW_ROWS}, 64],{rows!r}>",
                "weight": f"tensordesc<u16[128, 32],{words!r}>",
            }
            | typed("order tiles tile_expert tile_start tile_end", "*i32")
            | {"scales": "*u8", "shares": "*fp32", "out": "*bf16", "limit": "fp32"},
            constants={
                "WIDTH": width,
                "OUTPUTS": outputs,
                "IS_UP": is_up,
                "GROUP": 32 if is_up else 0,
                "STAGES": triton_hopper.STAGES,
                "REGISTERS": triton_hopper.REGISTERS,
                "COPY_REGISTERS": triton_hopper.COPY_REGISTERS,
                "EARLY": True,
            },
            architectures=(90,),
        )
    spread = "kernels.grouped_matmul.triton_spread"
    common = {"EARLY": True, "TOP": 6, "SLOTS": 8, "GROUP": 32, "BLOCK": 1024}
    values = typed("x out", "*bf16") | typed("weights shares", "*fp32") | {"chosen": "*i64"}
    yield Launch(
        address=f"{spread}:spread_kernel",
        types=values | {"places": "*i32"} | typed("width blocks", "i32"),
        constants=common,
        even=("width",),
    )
    yield Launch(
        address=f"{spread}:group_and_spread_kernel",
        types=values
        | typed("order places tiles tile_expert tile_start tile_end", "*i32")
        | typed("pairs experts chunks width blocks", "i32"),
        constants={
            "COUNTED": False, "TILE": 128, "BINS": 512, "CHUNK": 64, "STEP": 1024, **common,
        },
        even=("width", "experts"),
    )  # fmt: skip


def _fp8_experts(group: int) -> Iterator[Launch]:
    """Tiles as large as the groups of their inputs, for few, some and many pairs."""
    grouped = "kernels.grouped_matmul.triton_fp8"
    tables = typed("order tiles tile_expert tile_start tile_end", "*i32")
    for pairs in (192, 3072, 49152):
        sizes = fp8_sizes(pairs, 256, group)
        for name, own in (("gate_up_fp8_kernel", {"GROUP": group}), ("down_fp8_kernel", {})):
            yield Launch(
                address=f"{grouped}:{name}",
                types=typed("x out", "*bf16")
                | tables
                | typed("gate_up down", "*u16")
                | typed("per_row width inner blocks scale_rows scale_stride", "i32")
                | {"scales": "*u8", "weights": "*fp32", "limit": "fp32"},
                constants={"HIGH": group, "WIDE": group, "EVEN": True, "IN_ASSEMBLY": True}
                | own
                | sizes.constants,
                warps=sizes.warps,
                stages=sizes.stages,
                even=("width", "inner"),
            )


def _dense() -> Iterator[Launch]:
    groups, matmul = "kernels.quantize.triton_groups", MATMUL
    cuts = [(rows, FewRows.of(rows, 32768, 1280, 1)) for rows in (16, 32, 128)]
    for rows, cut in (*cuts, (ROWS, packed_cut(32768, 1280, 1))):
        yield Launch(
            address=f"{matmul}:few_rows_kernel",
            types=typed("x out", "*bf16")
            | {"weight": "*u16", "scales": "*u8"}
            | typed("rows groups outputs inputs scale_stride slice_blocks", "i32"),
            constants={"HIGH": 32, "WIDE": 32, "EVEN": True, "IN_ASSEMBLY": True}
            | {"OUT": cut.outputs, "ROWS": rows, "BLOCK": cut.block},
            warps=cut.warps,
            stages=cut.stages,
            even=("outputs", "inputs"),
        )
    yield Launch(
        address=f"{matmul}:add_slices_kernel",
        types={"parts": "*fp32", "out": "*bf16", "size": "i32"},
        constants={"SLICES": 4, "BLOCK": 1024},
    )
    yield Launch(
        address=f"{matmul}:dequantise_kernel",
        types={"out": "*bf16"}
        | typed("weight scales", "*u8")
        | typed("rows inputs blocks scale_stride", "i32"),
        constants={"TILE_ROWS": 32, "TILE_COLUMNS": 32, "HIGH": 32, "WIDE": 128},
        even=("inputs",),
    )
    for side in (32, 128):
        yield Launch(
            address=f"{matmul}:widen_kernel",
            types=typed("weight scales out", "*u8")
            | {"tiles": "*fp32"}
            | typed("inputs padded blocks scale_stride", "i32"),
            constants={"SIDE": side, "HARDWARE": True},
            even=("inputs", "padded"),
        )
    for planes in (1, 2, 4):
        yield Launch(
            address=f"{groups}:arrange_kernel",
            types=typed("x out", "*bf16") | typed("width blocks", "i32"),
            constants={"PLANES": planes, "GROUP": 32, "BLOCK": 1024}
            | {"HARDWARE": True, "EARLY": True},
            even=("width",),
        )
    for group in (32, 128):
        for block in (1024, 4096):
            yield Launch(
                address=f"{groups}:quantise_kernel",
                types={"x": "*bf16", "values": "*u8", "factors": "*fp32"}
                | typed("size inputs padded groups held", "i32"),
                constants={"GROUP": group, "SHARED": 128, "BLOCK": block}
                | {"HARDWARE": True, "EARLY": True},
                even=("size", "inputs", "padded", "held"),
            )


def _hopper() -> Iterator[Launch]:
    """For one row, few and some of them; inputs that are not rounded are two planes."""
    kernels = "kernels.matmul.triton_hopper_kernels"
    about: dict[str, Any] = {
        "types": {"x_scales": "*fp32", "out": "*bf16", "parts": "*fp32", "ended": "*i32"}
        | typed("x weight scales", "*u8")
        | typed("rows groups outputs inputs scale_stride held slice_steps steps_all", "i32"),
        "even": ("outputs", "inputs", "held"),
        "architectures": (90,),
    }
    for side, group, planes, rows, slices in (
        (32, 32, 1, 1, 4), (32, 32, 2, 1, 2), (128, 128, 1, 1, 4), (32, 128, 1, 8, 4),
        (32, 128, 1, 16, 4), (32, 128, 1, 32, 4), (128, 128, 1, 32, 4),
    ):  # fmt: skip
        is_one = rows == 1
        more = {"types": about["types"] | {"x": "*bf16"}, "even": ("outputs", "inputs")}
        yield Launch(
            address=f"{kernels}:few_rows_fp8_kernel",
            constants={"SIDE": side, "GROUP": group, "PLANES": planes, "SLICES": slices}
            | {"STEPS": 16 if is_one else 0, "ROWS": max(rows, 8)}
            | {"STAGES": 6},
            **(about | more if is_one else about),
        )
    for rows, slices in ((64, 4), (128, 1), (128, 4)):
        yield Launch(
            address=f"{kernels}:some_rows_fp8_kernel",
            constants={"SLICES": slices, "ROWS": rows, "STAGES": 4},
            warps=rows // 16,
            **about,
        )


def _invariant() -> Iterator[Launch]:
    for dtype in ("*bf16", "*fp32"):
        cut = Cut.of(5120, 8192, 1, torch.bfloat16 if dtype == "*bf16" else torch.float32)
        yield Launch(
            address="kernels.matmul.triton_invariant:invariant_kernel",
            types=typed("x weight out", dtype)
            | typed("rows groups outputs inputs slice_blocks", "i32"),
            constants={"EVEN": True, "ROWS": ROWS, "OUT": cut.outputs, "BLOCK": cut.block},
            warps=cut.warps,
            stages=cut.stages,
            even=("outputs", "inputs"),
        )
    cut = Cut.of(5120, 8192, 1, torch.bfloat16)
    yield Launch(
        address="kernels.matmul.triton_invariant:invariant_kernel",
        types=typed("x weight out", "*bf16")
        | typed("rows groups outputs inputs slice_blocks", "i32"),
        constants={"EVEN": True, "ROWS": WIDE_ROWS, "OUT": cut.outputs, "BLOCK": cut.block},
        warps=cut.warps,
        stages=cut.stages - 1,
        even=("outputs", "inputs"),
    )
