"""The implementations of each operation, what each suits, and on what it has been seen to work.

The definitions, `kernels.ops.REFERENCE`, are not listed. A new implementation has run nowhere: it
gets `checked_on` where `python -m kernels.checked` says so of what `kernels.check` found.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from kernels.target import Target

WIDEST_ROW = 16384  # values of one row that a program holds in registers
MOST_STREAMS = 5
MOST_EXPERTS = 4095
WIDEST_CACHED = 512
NARROWEST_HEAD = 16  # of a matrix instruction
WIDEST_FLOAT32_HEAD = 128
WIDEST_PAGED = 128
FP8_EXPERTS = "experts of fp8 tiles"
MXFP4_EXPERTS = "mxfp4 experts"


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """What of a model decides whether an implementation suits it."""

    dtype: str  # of activations: "float32", "bfloat16", "float64"
    width: int  # of the residual
    head_dim: int
    streams: int  # of the residual; 1 without hyper-connections
    experts: int = 0  # that a row chooses from; 0 without a mixture
    index_dim: int = 0  # of an index key; 0 without an indexer


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What an implementation is written for; None = anything."""

    arch: int | None = None
    dtype: str | None = None
    head_dim: int | None = None
    weights: str | None = None

    def lacking(
        self, arch: int | None, dtype: str, head_dim: int | None, weights: str | None
    ) -> str | None:
        """What of it is not there, in words."""
        if self.arch not in (None, arch):
            return f"it is written for sm_{self.arch}"
        if self.dtype not in (None, dtype):
            return f"it is written for {self.dtype}"
        if self.head_dim not in (None, head_dim):
            return f"it is written for heads of {self.head_dim}"
        if self.weights not in (None, weights):
            return f"it is written for {self.weights}"
        return None


WhyNot = Callable[[Target, ModelShape], str | None]


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One way to run an operation. `unsuited` says why not, or None.

    `checked_on` and `used_on` name architectures as the compiler does: on the former its cases
    of `kernels.check` have all passed, as `kernels/configs/checked` has them; on the latter whole
    models have run with it, whose tokens were right, but not all of its cases have been seen to
    pass.
    """

    op: str
    name: str
    address: str  # module:function, imported when it is chosen
    unsuited: WhyNot
    needs: Needs = Needs()
    is_invariant: bool = True  # a row comes out the same, bit by bit, whatever runs beside it
    checked_on: tuple[str, ...] = ()
    used_on: tuple[str, ...] = ()
    leaves: str | None = None  # weights that it leaves to the definition

    @property
    def evidence(self) -> str | None:
        """Where it has been seen to work, in words; None of what no device has run."""
        if self.checked_on:
            return f"checked on {', '.join(self.checked_on)}"
        if self.used_on:
            return f"used by whole models on {', '.join(self.used_on)}"
        return None


def no_triton(target: Target, shape: ModelShape) -> str | None:
    """Why no Triton kernel runs, or None."""
    if target.device_type != "cuda":
        return f"Triton kernels do not run on {target.device_type}"
    if not target.has_triton:
        return "triton is not installed"
    if shape.dtype not in ("float32", "bfloat16"):
        return f"{shape.dtype} is computed by the definition alone"
    return None


def _wide_rows(target: Target, shape: ModelShape) -> str | None:
    if max(shape.width, shape.head_dim) > WIDEST_ROW:
        return f"rows are wider than {WIDEST_ROW}"
    return no_triton(target, shape)


def _streams(target: Target, shape: ModelShape) -> str | None:
    if not 2 <= shape.streams <= MOST_STREAMS:
        return f"{shape.streams} residual streams, 2 to {MOST_STREAMS} are supported"
    return _wide_rows(target, shape)


def _experts(target: Target, shape: ModelShape) -> str | None:
    if not 1 <= shape.experts <= MOST_EXPERTS:
        return f"{shape.experts} experts, 1 to {MOST_EXPERTS} are supported"
    return no_triton(target, shape)


def _cached(target: Target, shape: ModelShape) -> str | None:
    for width in (shape.head_dim, shape.index_dim):
        if width & (width - 1) or width > WIDEST_CACHED:
            return f"cached rows of {width} values, powers of two to {WIDEST_CACHED} are supported"
    return no_triton(target, shape)


def _paged(target: Target, shape: ModelShape) -> str | None:
    width = shape.head_dim
    if width & (width - 1) or not NARROWEST_HEAD <= width <= WIDEST_PAGED:
        return f"heads of {width}, powers of two from {NARROWEST_HEAD} to {WIDEST_PAGED} are served"
    return no_triton(target, shape)


def _attention(target: Target, shape: ModelShape) -> str | None:
    if not shape.head_dim >= NARROWEST_HEAD:
        return f"heads of {shape.head_dim}, {NARROWEST_HEAD} is the least"
    if shape.dtype == "float32" and shape.head_dim > WIDEST_FLOAT32_HEAD:
        return f"float32 heads wider than {WIDEST_FLOAT32_HEAD}"
    return _cached(target, shape)


HOPPER_HEADS = Needs(arch=90, dtype="bfloat16", head_dim=512)


def _hopper_attention(target: Target, shape: ModelShape) -> str | None:
    return _attention(target, shape) or HOPPER_HEADS.lacking(
        target.arch, shape.dtype, shape.head_dim, None
    )


HOPPER_KEYS = Needs(arch=90, dtype="bfloat16")
HOPPER_KEY = 128  # values of one


def _hopper_indexer(target: Target, shape: ModelShape) -> str | None:
    if shape.index_dim != HOPPER_KEY:
        return f"index keys of {shape.index_dim} values, it is written for {HOPPER_KEY}"
    return _cached(target, shape) or HOPPER_KEYS.lacking(
        target.arch, shape.dtype, shape.head_dim, None
    )


NARROW = Needs(dtype="bfloat16")
HOPPER_EXPERTS = Needs(arch=90, dtype="bfloat16")


def _narrow_experts(target: Target, shape: ModelShape) -> str | None:
    return _experts(target, shape) or NARROW.lacking(target.arch, shape.dtype, None, None)


def _hopper_experts(target: Target, shape: ModelShape) -> str | None:
    return _narrow_experts(target, shape) or HOPPER_EXPERTS.lacking(
        target.arch, shape.dtype, None, None
    )


HOPPER = ("sm_90",)
_TRITON = (
    ("linear", "matmul", no_triton),
    ("grouped_linear", "matmul", no_triton),
    ("wide_linear", "matmul", no_triton),
    ("norm_linear", "fused_linear", _wide_rows),
    ("norm_swiglu", "fused_linear", _wide_rows),
    ("norm_logits", "fused_linear", _wide_rows),
    ("add_linear", "fused_linear", no_triton),
    ("rms_norm", "norm", _wide_rows),
    ("rotation", "rotary", no_triton),
    ("rotate", "rotary", _wide_rows),
    ("swiglu", "activation", no_triton),
    ("route", "routing", _experts),
    ("route_by_softmax", "routing", _experts),
    ("run_experts", "grouped_matmul", _experts),
    ("quantise_dequantise", "quantize", _cached),
    ("look_up", "engram", no_triton),
    ("gated_add", "engram", _wide_rows),
    ("mixes", "hyper_connection", _streams),
    ("collapse_norm", "hyper_connection", _streams),
    ("expand", "hyper_connection", _streams),
    ("between_sublayers", "hyper_connection", _streams),
    ("attend_fresh", "paged_attention", _paged),
    ("insert_rows", "cache_ops", _cached),
    ("write_latents", "compressor", _cached),
    ("attend_turned", "attention", _attention),
    ("score_rows", "indexer", _cached),
    ("best_rows", "topk", no_triton),
    ("candidate_blocks", "indexer", no_triton),
    ("score_blocks", "indexer", _cached),
    ("best_of_blocks", "topk", no_triton),
    ("choose_highest", "sampling", no_triton),
    ("choose_tokens", "sampling", no_triton),
    ("verify", "verification", no_triton),
    ("keep_tokens", "verification", no_triton),
    ("log_probabilities", "logprobs", no_triton),
)
_INVARIANT = (
    ("linear", "matmul", no_triton),
    ("grouped_linear", "matmul", no_triton),
    ("wide_linear", "matmul", no_triton),
    ("norm_linear", "fused_linear", _wide_rows),
    ("norm_swiglu", "fused_linear", _wide_rows),
    ("norm_logits", "fused_linear", _wide_rows),
    ("add_linear", "fused_linear", no_triton),
    ("between_sublayers", "hyper_connection", _streams),
)
_VARYING = {
    *(op for op, *_ in _INVARIANT), "run_experts", "attend_fresh",
}  # fmt: skip
"""Cut or added up by the number of rows, or multiplied by the device's library."""


def _triton(op: str, family: str, unsuited: WhyNot) -> Implementation:
    return Implementation(
        op=op,
        name="triton",
        address=f"kernels.{family}.triton_cuda:{op}",
        unsuited=unsuited,
        is_invariant=op not in _VARYING,
        checked_on=HOPPER,
        leaves=FP8_EXPERTS if op == "run_experts" else None,
    )


def _invariant(op: str, family: str, unsuited: WhyNot) -> Implementation:
    address = f"kernels.{family}.triton_invariant:{op}"
    return Implementation(op=op, name="invariant", address=address, unsuited=unsuited)


IMPLEMENTATIONS = (
    Implementation(
        op="attend_turned",
        name="gluon",
        address="kernels.attention.triton_hopper:attend_turned",
        unsuited=_hopper_attention,
        needs=HOPPER_HEADS,
        is_invariant=False,
        checked_on=HOPPER,
    ),
    Implementation(
        op="score_rows",
        name="gluon",
        address="kernels.indexer.triton_hopper:score_rows",
        unsuited=_hopper_indexer,
        needs=HOPPER_KEYS,
        is_invariant=False,
        checked_on=HOPPER,
    ),
    Implementation(
        op="run_experts",
        name="gluon",
        address="kernels.grouped_matmul.triton_hopper:run_experts",
        unsuited=_hopper_experts,
        needs=replace(HOPPER_EXPERTS, weights=MXFP4_EXPERTS),
        is_invariant=False,
        checked_on=HOPPER,
    ),
    Implementation(
        op="run_experts",
        name="triton fp8",
        address="kernels.grouped_matmul.triton_fp8:run_experts",
        unsuited=_narrow_experts,
        needs=replace(NARROW, weights=FP8_EXPERTS),
        is_invariant=False,
        checked_on=HOPPER,
    ),
    *(_triton(*row) for row in _TRITON),
    Implementation(
        op="verify",
        name="apart",
        address="kernels.verification.triton_cuda:verify_apart",
        unsuited=no_triton,
        checked_on=HOPPER,
    ),
    *(replace(_invariant(*row), checked_on=HOPPER) for row in _INVARIANT),
    Implementation(
        op="run_experts",
        name="gluon invariant",
        address="kernels.grouped_matmul.triton_hopper:run_experts_alone",
        unsuited=_hopper_experts,
        needs=replace(HOPPER_EXPERTS, weights=MXFP4_EXPERTS),
        checked_on=HOPPER,
    ),
    Implementation(
        op="run_experts",
        name="invariant",
        address="kernels.grouped_matmul.triton_invariant:run_experts",
        unsuited=_narrow_experts,
        needs=NARROW,
        checked_on=HOPPER,
    ),
)
"""In order of preference; an operation without one is served by its definition."""


_NO_NUMBA = "numba is not installed, does not import or is told not to compile (NUMBA_DISABLE_JIT)"


def _no_layout(target: Target, shape: ModelShape) -> str | None:
    if target.device_type != "cpu" or shape.dtype != "bfloat16":
        return f"{shape.dtype} on {target.device_type} is computed by the definition"
    if not target.has_laid_out_products:
        return "oneDNN has no products of bfloat16 for this processor"
    if not target.has_numba:
        return _NO_NUMBA
    return None


def _no_loops(target: Target, shape: ModelShape) -> str | None:
    if target.device_type != "cpu" or shape.dtype == "float64":
        return f"{shape.dtype} on {target.device_type} is computed by the definition"
    return None if target.has_numba else _NO_NUMBA


CPU_IMPLEMENTATIONS = (
    *(
        Implementation(
            op=op,
            name="torch",
            address=f"kernels.{family}.torch_cpu:{op}",
            unsuited=_no_layout,
            is_invariant=False,
        )
        for op, family in (
            ("laid_out", "fused_linear"),
            ("norm_linear", "fused_linear"),
            ("norm_swiglu", "fused_linear"),
            ("add_linear", "fused_linear"),
            ("attend_fresh", "paged_attention"),
        )
    ),
    *(
        Implementation(
            op=op,
            name="numba",
            address=f"kernels.{module}:{op}",
            unsuited=_no_layout,
            is_invariant=False,
        )
        for op, module in (
            ("norm_logits", "fused_linear.numba_logits"),
            ("run_layers", "decoder.numba_cpu"),
        )
    ),
    *(
        Implementation(
            op=op,
            name="numba",
            address=f"kernels.sampling.numba_cpu:{op}",
            unsuited=_no_loops,
        )
        for op in ("choose_highest", "choose_tokens")
    ),
)
"""The library's products with compiled loops between them, all of them or none; and the choice."""


def load(implementation: Implementation) -> Callable[..., object]:
    """The function itself."""
    module, _, function = implementation.address.partition(":")
    return getattr(importlib.import_module(module), function)
