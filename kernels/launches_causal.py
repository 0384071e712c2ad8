"""Kernels of layers of one residual stream as their launchers start them, at Qwen3-0.6B."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.launches import Launch, typed


def causal_launches() -> Iterator[Launch]:
    """Fused products of one row and of a few, and attention of one row and of many."""
    yield from _products()
    yield from _attention()


def _products() -> Iterator[Launch]:
    types = typed("x weight out", "*bf16") | {"gain": "*fp32", "eps": "fp32"}
    flags = {"HAS_NORM": True, "IS_GATED": True, "ADDS": False, "IS_EARLY": True}
    for columns, block, warps in ((8, 512, 8), (4, 2048, 8)):
        yield Launch(
            address="kernels.fused_linear.triton_cuda:row_kernel",
            types=types | typed("width outputs", "i32"),
            constants=flags | {"COLUMNS": columns, "BLOCK": block},
            warps=warps,
            even=("width", "outputs"),
        )


def _attention() -> Iterator[Launch]:
    family = "kernels.paged_attention.triton_cuda"
    gains = typed("query_gain key_gain cos sin", "*fp32")
    norms = typed("query_eps key_eps", "fp32")
    sizes: dict[str, object] = {"QUERIES": 16, "HEADS": 8, "BLOCK_TOKENS": 64, "DIM": 128}
    yield Launch(
        address=f"{family}:decode_kernel",
        types=typed("qkv cache", "*bf16")
        | gains
        | norms
        | typed("table positions", "*i64")
        | typed("out tops", "*fp32")
        | typed("table_stride row_stride splits", "i32")
        | {"factor": "fp32"},
        constants=sizes
        | {"HAS_NORM": True, "IS_WHOLE": False, "IS_EARLY": True}
        | {"GROUP": 16, "KEYS": 64, "SPLIT": 8},
        warps=2,
        stages=2,
        even=("row_stride",),
    )
    yield Launch(
        address=f"{family}:join_kernel",
        types=typed("parts tops", "*fp32")
        | {"positions": "*i64", "out": "*bf16"}
        | typed("splits span", "i32"),
        constants={"IS_EARLY": True, "QUERIES": 16, "DIM": 128},
        warps=1,
    )
    yield Launch(
        address=f"{family}:insert_kernel",
        types=typed("qkv cache queries", "*bf16")
        | gains
        | norms
        | typed("table owner positions", "*i64")
        | typed("table_stride row_stride", "i32"),
        constants=sizes | {"HAS_NORM": True, "CHUNK": 8},
        warps=2,
        even=("row_stride",),
    )
    yield Launch(
        address=f"{family}:extend_kernel",
        types=typed("queries cache out", "*bf16")
        | typed("table positions first_rows", "*i64")
        | typed("table_stride tiles", "i32")
        | {"factor": "fp32"},
        constants=sizes | {"GROUP": 2, "KEYS": 64, "ROWS": 32},
        stages=2,
    )
