"""Inputs on which operations are checked and timed, and the least bytes that each must move.

The sizes are those of DeepSeek-V4.1-Flash unless the name says otherwise.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernels import formats
from kernels.case import Arguments, Case, Make, normal
from kernels.cases_attention import attend_case, far_case
from kernels.cases_cache import insert_case, round_case
from kernels.cases_causal import paged_case, product_case
from kernels.cases_compressor import latents_case
from kernels.cases_engram import gated_add_case, look_up_case
from kernels.cases_logprobs import logprobs_case
from kernels.cases_matmul import grouped_linear_case, linear_case, plain_case
from kernels.cases_moe import (
    experts_case,
    few_experts_case,
    fp8_experts_case,
    packed_experts_case,
    route_case,
)
from kernels.cases_selection import (
    best_case,
    best_of_blocks_case,
    candidate_case,
    causal_score_case,
    choose_case,
    distant_score_case,
    far_score_case,
    highest_case,
    score_blocks_case,
    score_case,
)
from kernels.cases_verification import FEWER_ROWS, keep_case, verify_case
from kernels.formats import FP8_GROUP64_TAIL, FP8_GROUP128, PACKED_FORMATS
from kernels.hyper_connection.reference import Mixes, Mixing
from kernels.rotary.reference import frequencies, rotation


def _norm(width: int) -> Case:
    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        weight = torch.rand(width, device=device) + 0.5
        return normal((rows, width), dtype, device), weight, 1e-6

    return Case(
        op="rms_norm",
        name=f"width {width}",
        make=make,
        bytes_per_row=lambda size: 2 * width * size,
        fixed_bytes=4 * width,
    )


def _rotate(heads: int, dim: int, width: int) -> Case:
    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        freqs = frequencies(width, 1e4).float().to(device)
        positions = torch.randint(0, 100_000, (rows,), device=device)
        return normal((rows, heads, dim), dtype, device), rotation(positions, freqs)

    return Case(
        op="rotate",
        name=f"{heads} heads of {dim}, {width} turned",
        make=make,
        bytes_per_row=lambda size: 2 * heads * dim * size + 8 * width,
    )


def _rotation(width: int) -> Case:
    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        freqs = frequencies(width, 1e4).float().to(device)
        return torch.randint(0, 1_000_000, (rows,), device=device), freqs

    return Case(
        op="rotation",
        name=f"width {width}",
        make=make,
        bytes_per_row=lambda size: 8 * width + 8,
        is_rounding=True,
    )


def _swiglu(width: int) -> Case:
    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        weight = torch.rand(rows, device=device)
        return 5 * normal((rows, 2 * width), dtype, device), 7.0, weight

    return Case(
        op="swiglu",
        name=f"width {width}",
        make=make,
        bytes_per_row=lambda size: 3 * width * size + 4,
    )


def _streams(op: str, n: int, width: int) -> Case:
    outputs = (2 + n) * n

    def mixes(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        fn = torch.randn(outputs, n * width, device=device) / (n * width) ** 0.5
        mixing = Mixing(
            fn=fn,
            base=torch.randn(outputs, device=device),
            scale=torch.rand(outputs, device=device) + 0.5,
            sinkhorn_iterations=20,
            norm_eps=1e-6,
            eps=1e-6,
        )
        return normal((rows, n, width), dtype, device), mixing

    def collapse(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        pre = torch.rand(rows, n, device=device)
        return normal((rows, n, width), dtype, device), pre, torch.rand(width, device=device), 1e-6

    def expand(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        mixed = Mixes(
            pre=torch.rand(rows, n, device=device),
            post=torch.rand(rows, n, device=device),
            matrix=torch.rand(rows, n, n, device=device),
        )
        y = normal((rows, width), dtype, device)
        return y, normal((rows, n, width), dtype, device), mixed

    def between(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        mixing, weight = mixes(rows, dtype, device)[1], torch.rand(width, device=device)
        return *expand(rows, dtype, device), weight, 1e-6, mixing

    makers: dict[str, Make] = {
        "mixes": mixes, "collapse_norm": collapse, "expand": expand, "between_sublayers": between
    }  # fmt: skip
    streams = {"mixes": n, "collapse_norm": n + 1, "expand": 2 * n + 1}
    gates = {"mixes": outputs, "collapse_norm": n, "expand": n + n * n}
    activations = streams.get(op, 2 * n + 2) * width
    weights = gates.get(op, 2 * outputs)
    products = outputs * n * width if op in ("mixes", "between_sublayers") else 0
    return Case(
        op=op,
        name=f"{n} streams of {width}",
        make=makers[op],
        bytes_per_row=lambda size: activations * size + 4 * weights,
        fixed_bytes=4 * products,
        flops=lambda rows: 2 * rows * products,
    )


STREAM_OPS = ("mixes", "collapse_norm", "expand", "between_sublayers")
CAUSAL_CASES = (  # Qwen3-0.6B
    product_case("norm_linear", 1024, 4096),
    product_case("norm_swiglu", 1024, 3072),
    product_case("norm_logits", 1024, 151_936),
    product_case("add_linear", 2048, 1024),
    product_case("add_linear", 3072, 1024),
    paged_case((16, 8, 128), 256, has_norm=True, chunk=1),
    paged_case((16, 8, 128), 2048, has_norm=True, chunk=512),
)
KEPT = keep_case(6, 6, 10)
PAGED_KEYS = insert_case(128, 64, FP8_GROUP128, has_norm=True, has_pages=True)
PRODUCTS = ((32768, 1280), (5120, 8192), (1792, 5120), (4608, 5120), (5120, 2304))
"""Queries, output, query latent and key, shared expert up and down: [outputs, inputs]."""
RELEASE_CASES = (
    _norm(5120),
    _norm(1280),
    _rotate(64, 512, 64),
    _rotation(64),
    _swiglu(2048),
    *(_streams(op, 4, 5120) for op in STREAM_OPS),
    route_case(384, 5120, 6),
    route_case(384, 5120, 6, is_narrow=True),
    replace(  # Qwen3-30B-A3B; not as many rows as experts: a few rows alone keep all experts
        route_case(128, 2048, 8, by_softmax=True), checked_rows=(0, 1, 3, 17, 129, 257, 600)
    ),
    *(linear_case(o, i, (32, 32), 32) for o, i in PRODUCTS),
    *(linear_case(o, i, (128, 128), 128) for o, i in PRODUCTS[:2]),
    grouped_linear_case(8, 1024, 4096, (32, 32), None),
    plain_case("linear", 5120, 8192),
    plain_case("wide_linear", 129_280, 5120),
    insert_case(512, 64, formats.FP8_GROUP32, has_norm=True),
    latents_case(512, 64, formats.FP4_GROUP16, has_pairs=True),
    latents_case(512, 64, formats.FP4_GROUP16, has_pairs=False),
    attend_case(64, 512, 128, 512, (formats.FP8_GROUP32, formats.FP4_GROUP16)),
    attend_case(64, 512, 128, 512, (FP8_GROUP64_TAIL, FP8_GROUP64_TAIL), has_pages=True),
    score_case(32, 128, 4096, formats.FP4_GROUP32),
    score_case(32, 128, 4096, formats.FP4_GROUP32, is_shared=True),
    PAGED_KEYS,
    score_case(64, 128, 4096, FP8_GROUP128, has_pages=True),
    score_case(64, 128, 4096, FP8_GROUP128, is_shared=True, has_pages=True),
    best_case(4096, 512),
    best_case(16_384, 512),
    candidate_case(32_768, 8, 2048),
    score_blocks_case(32, 128, 32_768, formats.FP4_GROUP32, 8, 2048),
    best_of_blocks_case(32_768, 8, 2048, 512),
    highest_case(129_280, padding=128),  # of rows that vectors can read
    choose_case(129_280, is_narrow=False),
    choose_case(129_280, is_narrow=True),
    verify_case(129_280, 5, "greedy"),
    KEPT,
    *(replace(verify_case(129_280, 5, w), checked_rows=FEWER_ROWS) for w in ("seeded", "narrowed")),
    logprobs_case(129_280, 0),
    logprobs_case(129_280, 20),
    look_up_case(4, 8, 64),
    gated_add_case(4, 5120),
    *CAUSAL_CASES,
)
CHECKED_CASES = (
    experts_case(64, 5120, 2048, 6),  # as float64 they fit a device
    *(packed_experts_case(24, 5120, 2304, 6, group) for group in (None, 32)),
    *(fp8_experts_case(24, 4096, 2048, 6, side, side) for side in (32, 128)),
    fp8_experts_case(24, 4096, 2048, 6, 32, None),
    replace(packed_experts_case(384, 5120, 2304, 6, 32), checked_rows=(60,)),  # 2^31 words and more
    replace(fp8_experts_case(256, 4096, 2304, 6, 128, 128), checked_rows=(60,)),
    replace(fp8_experts_case(8, 5120, 32, 6, 32, 32), checked_rows=(70_000,)),
    replace(plain_case("linear", 32_768, 128), checked_rows=(70_000,)),
    replace(packed_experts_case(8, 5120, 32, 6, 32), checked_rows=(70_000,)),  # and values
    replace(linear_case(32_768, 128, (32, 32), 32), checked_rows=(70_000,)),
    linear_case(5120, 8192, (32, 32), None),
    *(insert_case(512, 64, p, has_norm=True) for p in (None, *PACKED_FORMATS[1:])),
    *(insert_case(512, 64, p, has_norm=False) for p in (None, *PACKED_FORMATS)),
    insert_case(512, 64, FP8_GROUP64_TAIL, has_norm=True, has_pages=True),
    insert_case(512, 64, FP8_GROUP64_TAIL, has_norm=False),
    insert_case(128, 64, FP8_GROUP128, has_norm=False),
    insert_case(512, 64, FP8_GROUP128, has_norm=True),
    latents_case(128, 64, FP8_GROUP128, has_pairs=True),
    score_case(64, 128, 1000, FP8_GROUP128),
    score_case(64, 128, 1000, FP8_GROUP128, is_shared=True),
    score_case(64, 128, 1000, None, is_shared=True),
    score_blocks_case(64, 128, 8192, FP8_GROUP128, 8, 256),
    distant_score_case(64, 128, FP8_GROUP128),
    distant_score_case(32, 128, formats.FP4_GROUP32),
    score_case(64, 128, 1000, formats.FP4_GROUP32),
    score_case(64, 128, 1000, formats.FP4_GROUP32, is_shared=True),
    round_case(128, FP8_GROUP128),
    attend_case(64, 512, 128, 512, (None, None)),
    attend_case(128, 512, 128, 500, (FP8_GROUP64_TAIL, FP8_GROUP64_TAIL)),
    attend_case(8, 512, 128, 0, (formats.FP8_GROUP32, None)),  # a share of the heads
    attend_case(64, 512, 128, 512, (None, formats.FP4_GROUP16)),
    far_case(formats.FP8_GROUP32),
    far_case(None),
    replace(  # more than fits a grid's second dimension
        attend_case(4, 64, 26, 20, (formats.FP8_GROUP32, formats.FP4_GROUP16)),
        checked_rows=(70_000,),
    ),
)
TIMED_CASES = (
    experts_case(384, 5120, 2048, 6),
    packed_experts_case(384, 5120, 2304, 6, 32),
    few_experts_case(384, 32, 5120, 2304, 6, 32),
    fp8_experts_case(256, 4096, 2048, 6, 128, 128),
    paged_case((16, 8, 128), 4096, has_norm=True, chunk=1),
    far_score_case(32, 128, 16_384, formats.FP4_GROUP32),
    causal_score_case(32, 128, 4096, formats.FP4_GROUP32),
    replace(best_case(65_536, 512), timed_rows=(1, 32, 128)),
)
SMALL_CASES = (
    _norm(64),
    _norm(100),  # no power of two
    _rotate(4, 64, 16),
    _rotate(1, 48, 16),
    _rotation(16),
    _rotation(20),
    _swiglu(300),
    *(_streams(op, n, width) for op in STREAM_OPS for n, width in ((4, 320), (2, 1100), (3, 64))),
    route_case(8, 192, 2),
    route_case(33, 100, 3),
    route_case(70, 600, 3, is_narrow=True),
    route_case(40, 700, 2, by_softmax=True),  # slices of the product
    route_case(8, 50, 8, by_softmax=True),
    experts_case(8, 192, 96, 2),
    experts_case(6, 40, 24, 3),
    packed_experts_case(8, 192, 96, 2, 32),
    packed_experts_case(6, 64, 32, 3, None),  # fewer words than a block has
    fp8_experts_case(8, 192, 96, 2, 32, 32),
    fp8_experts_case(4, 256, 128, 2, 128, 128),
    fp8_experts_case(6, 64, 32, 3, 32, None),
    plain_case("linear", 70, 100),
    plain_case("wide_linear", 130, 72),
    linear_case(96, 160, (32, 32), 32),
    linear_case(136, 256, (128, 128), 128),
    linear_case(208, 384, (32, 32), 32),  # a part of a block of outputs, as are the next
    linear_case(208, 640, (128, 128), 128),
    linear_case(176, 384, (32, 32), None),
    linear_case(256, 384, (32, 32), 32),  # whole tiles of a library
    linear_case(40, 64, (32, 32), None),
    linear_case(30, 48, (16, 16), 16),  # by the definition
    grouped_linear_case(3, 64, 96, (32, 32), None),
    grouped_linear_case(2, 96, 256, (32, 32), None),
    *(insert_case(64, 16, p, has_norm=n) for p in (None, *PACKED_FORMATS) for n in (True, False)),
    attend_case(4, 64, 26, 20, (formats.FP8_GROUP32, formats.FP4_GROUP16)),
    attend_case(6, 64, 64, 100, (None, None)),  # more than one split
    *(
        latents_case(64, 16, p, has_pairs=b)
        for p in (None, PACKED_FORMATS[1])
        for b in (True, False)
    ),
    attend_case(20, 32, 40, 0, (None, None)),
    attend_case(3, 128, 26, 20, (FP8_GROUP64_TAIL, FP8_GROUP64_TAIL), has_pages=True),
    insert_case(128, 64, FP8_GROUP64_TAIL, has_norm=True, has_pages=True),
    insert_case(128, 64, FP8_GROUP64_TAIL, has_norm=False),
    score_case(4, 32, 100, formats.FP4_GROUP32),
    score_case(20, 64, 60, None),
    score_case(4, 32, 100, formats.FP4_GROUP32, is_shared=True),
    far_score_case(4, 32, 100, formats.FP4_GROUP32),
    score_case(4, 128, 100, formats.FP4_GROUP32),  # of the width that is read ahead
    score_case(16, 128, 100, formats.FP4_GROUP32, is_shared=True),
    best_case(300, 24),
    best_case(40, 64),  # fewer than are asked for
    candidate_case(100, 3, 50),
    score_blocks_case(4, 32, 100, formats.FP4_GROUP32, 4, 7),
    best_of_blocks_case(90, 3, 12, 10),
    highest_case(300, padding=8),
    choose_case(4500, is_narrow=False),
    choose_case(300, is_narrow=True, short=2),
    KEPT,
    keep_case(5, 2, 16),
    keep_case(1, 1, 3),
    verify_case(300, 3, "greedy"),
    verify_case(4500, 2, "greedy"),
    verify_case(300, 0, "greedy"),
    verify_case(4500, 2, "seeded"),
    verify_case(300, 0, "seeded"),
    verify_case(300, 2, "narrowed"),
    logprobs_case(300, 0),
    logprobs_case(300, 20),
    logprobs_case(5, 9),
    logprobs_case(8200, 3),
    logprobs_case(50, 40),  # by the definition
    *(round_case(64, p) for p in PACKED_FORMATS),
    round_case(256, FP8_GROUP128),
    PAGED_KEYS,
    insert_case(128, 64, FP8_GROUP128, has_norm=False, has_pages=True),
    insert_case(256, 64, FP8_GROUP128, has_norm=False),
    score_case(4, 128, 100, FP8_GROUP128, has_pages=True),
    score_case(20, 128, 150, FP8_GROUP128, is_shared=True, has_pages=True),
    score_case(4, 256, 60, FP8_GROUP128),  # two scales a key
    score_blocks_case(4, 128, 100, FP8_GROUP128, 4, 7),
    look_up_case(4, 2, 32),
    look_up_case(3, 3, 20),
    gated_add_case(2, 192),
    gated_add_case(3, 100),
    product_case("norm_linear", 100, 72),
    product_case("norm_swiglu", 192, 40),
    product_case("norm_logits", 40, 130),
    product_case("add_linear", 300, 48),
    paged_case((6, 2, 32), 40, has_norm=False, chunk=1, block_tokens=16),
    paged_case((2, 1, 16), 300, has_norm=True, chunk=1),  # more than one split
    paged_case((4, 2, 16), 70, has_norm=True, chunk=3),
)
"""Widths of the tiny checkpoints, and some that fit no block."""
