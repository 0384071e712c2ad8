"""Norms, gates and hyper-connections as their launchers start them. See `kernels.launches`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernels.activation.triton_cuda import SWIGLU
from kernels.hyper_connection import triton_cuda_narrow as narrow
from kernels.hyper_connection.triton_cuda import COLLAPSE
from kernels.launches import Launch
from kernels.norm.triton_cuda import RMS_NORM, warps
from kernels.tuning import Config, Tunable, chosen

TUNED_FOR = 90  # the architecture whose tables these are
HYPER = "kernels.hyper_connection.triton_cuda"
NARROW = "kernels.hyper_connection.triton_cuda_narrow"


def elementwise_launches() -> Iterator[Launch]:
    """Each kernel with the configuration that its table has for Hopper."""
    norm = _tuned(RMS_NORM, "width 5120")
    yield _launch(
        "kernels.norm.triton_cuda:rms_norm_kernel",
        _typed("x out", "*bf16")
        | {"weight": "*fp32", "row_stride": "i32", "width": "i32", "eps": "fp32"},
        {"EARLY": True, "CHUNKS": -(-5120 // norm["CHUNK"])},
        norm,
        even=("row_stride", "width"),
    )
    yield _launch(
        "kernels.activation.triton_cuda:swiglu_kernel",
        _typed("gate_up out", "*bf16")
        | {"weight": "*fp32", "width": "i32", "blocks": "i32", "limit": "fp32"},
        {"EARLY": True, "HAS_WEIGHT": True},
        _tuned(SWIGLU, "any"),
    )
    yield from _wide()
    yield from _narrow()


def _wide() -> Iterator[Launch]:
    """What serves float32 streams, or 3 or 5 of them, and single steps."""
    yield Launch(
        address=f"{HYPER}:partial_kernel",
        types=_typed("streams fn partial", "*fp32") | _typed("rows columns outputs", "i32"),
        constants={"NARROW": False, "GROUP": 8, "OUT": 32, "ROWS": 64, "SLICE": 320, "BLOCK": 32},
        warps=8,
    )
    yield Launch(
        address=f"{HYPER}:finish_kernel",
        types=_typed("partial base scale pre post matrix", "*fp32")
        | _typed("rows columns groups iterations", "i32")
        | _typed("norm_eps eps", "fp32"),
        constants={"MEMBERS": 8, "N": 4, "N2": 4, "OUT": 32},
        warps=1,
    )
    yield Launch(
        address=f"{HYPER}:collapse_norm_kernel",
        types=_typed("streams out", "*bf16")
        | _typed("pre weight", "*fp32")
        | {"width": "i32", "eps": "fp32"},
        constants={"EARLY": True, "N": 4, "BLOCK": 8192},
        warps=warps(8192, _tuned(COLLAPSE, "block 8192")["most_warps"]),
    )
    yield Launch(
        address=f"{HYPER}:expand_kernel",
        types=_typed("y streams out", "*bf16")
        | _typed("post matrix", "*fp32")
        | _typed("width blocks", "i32"),
        constants={"N": 4, "BLOCK": 1024},
    )


def _narrow() -> Iterator[Launch]:
    """What serves 2 or 4 bfloat16 streams; tiles of each height as those take most memory."""
    expand = _tuned(narrow.EXPAND, "width 5120")
    yield _launch(
        f"{NARROW}:expand_norm_kernel",
        _typed("y streams out x", "*bf16")
        | _typed("pre post matrix weight squares", "*fp32")
        | {"width": "i32", "eps": "fp32"},
        {"EARLY": True, "N": 4, "CHUNKS": -(-5120 // expand["CHUNK"])},
        expand,
        even=("width",),
    )
    yield Launch(
        address=f"{NARROW}:squares_kernel",
        types={"streams": "*bf16", "sizes": "*fp32", "columns": "i32"},
        constants={"EARLY": True, "BLOCK": 4096},
        warps=8,
        even=("columns",),
    )
    most = sorted(narrow.PRODUCT.candidates, key=lambda c: (c["num_stages"], -c["num_warps"]))
    for config in {c["ROWS"]: c for c in most}.values():
        yield _launch(
            f"{NARROW}:product_kernel",
            _typed("streams halves", "*bf16")
            | {"partial": "*fp32"}
            | _typed("rows columns parts groups", "i32"),
            {"EARLY": True, "OUT": 32, "USED": 24, "SLICE": narrow.SLICE},
            {name: value for name, value in config.items() if name != "GROUPS"},
            even=("columns",),
        )
    for mixed, at_once in ((1, narrow.FEW_AT_ONCE), (narrow.MIXED, narrow.AT_ONCE)):
        yield mix_norm_launch({"PARTS": 0, "MIXED": mixed, "AT_ONCE": at_once}, has_norms=False)


def mix_norm_launch(shape: Mapping[str, int], *, has_norms: bool) -> Launch:
    """What ends the way between two sublayers."""
    pointers = "pre post matrix partial sums base scale"
    blocks = {"BLOCK": 1024, "BLOCKS": 5} if has_norms else {"BLOCK": 0, "BLOCKS": 0}
    others = {} if has_norms else {"weight": None, "x": None}
    return Launch(
        address="kernels.hyper_connection.triton_finish:mix_norm_kernel",
        types=({"x": "*bf16", "weight": "*fp32"} if has_norms else {})
        | _typed(pointers, "*fp32")
        | _typed("rows mixers width parts iterations", "i32")
        | _typed("norm_eps eps x_eps", "fp32"),
        constants={
            "EARLY": True, "IN_ASSEMBLY": True, "N": 4, "OUT": 32, **shape, **blocks, **others,
        },
        warps=1,
        even=("width",),
    )  # fmt: skip


def _typed(names: str, kind: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), kind)


def _tuned(tunable: Tunable, shapes: str) -> Config:
    return chosen(tunable, shapes, TUNED_FOR)


def _launch(
    address: str,
    types: Mapping[str, str],
    constants: Mapping[str, object],
    config: Config,
    even: tuple[str, ...] = (),
) -> Launch:
    """With the constants, warps and stages of a configuration."""
    own = {name: value for name, value in config.items() if name.isupper()}
    return Launch(
        address=address,
        types=types,
        constants={**constants, **own},
        warps=config["num_warps"],
        stages=config.get("num_stages"),
        registers=config.get("maxnreg"),
        even=even,
    )
