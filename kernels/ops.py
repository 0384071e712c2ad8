"""The operations that a model calls, each by the name of its definition.

`REFERENCE` is the definition itself; `kernels.plan` puts faster implementations in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels import formats
from kernels.activation import reference as activation
from kernels.attention import reference as attention
from kernels.attention.reference import ChosenRows, OwnRows
from kernels.cache_ops import reference as cache_ops
from kernels.cache_ops.reference import CachedRows, Pages, RowNorm
from kernels.compressor import reference as compressor
from kernels.compressor.reference import GlobalRows, Pairs
from kernels.decoder import reference as decoder
from kernels.decoder.reference import Layers
from kernels.engram import reference as engram
from kernels.engram.reference import HashConstants
from kernels.fused_linear import reference as fused_linear
from kernels.fused_linear.reference import Norm
from kernels.grouped_matmul import reference as grouped_matmul
from kernels.grouped_matmul.reference import Experts, Shared
from kernels.hyper_connection import reference as hyper_connection
from kernels.hyper_connection.reference import Between, Mixes, Mixing
from kernels.indexer import reference as indexer
from kernels.logprobs import reference as logprobs
from kernels.logprobs.reference import LogprobRows
from kernels.matmul import reference as matmul
from kernels.matmul.weights import Weight
from kernels.norm import reference as norm
from kernels.paged_attention import reference as paged_attention
from kernels.paged_attention.reference import Context, Heads
from kernels.rotary import reference as rotary
from kernels.rotary.reference import Rotation
from kernels.routing import reference as routing
from kernels.routing.reference import Router
from kernels.sampling import reference as sampling
from kernels.sampling.reference import Choice, SamplingRules
from kernels.topk import reference as topk
from kernels.topk.reference import Blocks
from kernels.verification import reference as verification
from kernels.verification.reference import Drafts, Rings, Verdict


@dataclass(frozen=True, kw_only=True)
class Ops:
    """One implementation of each operation; signatures and results are the definition's."""

    linear: Callable[[Tensor, Weight], Tensor] = matmul.linear
    grouped_linear: Callable[[Tensor, Weight], Tensor] = matmul.grouped_linear
    wide_linear: Callable[[Tensor, Tensor], Tensor] = matmul.wide_linear
    rms_norm: Callable[[Tensor, Tensor, float], Tensor] = norm.rms_norm
    rotation: Callable[[Tensor, Tensor], Rotation] = rotary.rotation
    rotate: Callable[[Tensor, Rotation], Tensor] = rotary.rotate
    swiglu: Callable[[Tensor, float, Tensor | None], Tensor] = activation.swiglu
    route: Callable[[Tensor, Router, Tensor | None], tuple[Tensor, Tensor]] = routing.route
    route_by_softmax: Callable[[Tensor, Router, Tensor | None], tuple[Tensor, Tensor]] = (
        routing.route_by_softmax
    )
    laid_out: Callable[[Tensor], Tensor] = fused_linear.laid_out
    norm_linear: Callable[[Tensor, Norm, Tensor], Tensor] = fused_linear.norm_linear
    norm_swiglu: Callable[[Tensor, Norm, Tensor], Tensor] = fused_linear.norm_swiglu
    norm_logits: Callable[[Tensor, Norm, Tensor], Tensor] = fused_linear.norm_logits
    add_linear: Callable[[Tensor, Tensor, Tensor], Tensor] = fused_linear.add_linear
    attend_fresh: Callable[[Tensor, Heads, Rotation, Tensor, Context], Tensor] = (
        paged_attention.attend_fresh
    )
    run_layers: Callable[[Tensor, Layers, Rotation, Sequence[Tensor], Context], Tensor] = (
        decoder.run_layers
    )
    run_experts: Callable[[Tensor, Experts, Tensor, Tensor, Shared], Tensor] = (
        grouped_matmul.run_experts
    )
    insert_rows: Callable[[CachedRows, Tensor, Tensor, RowNorm | None, Rotation], None] = (
        cache_ops.insert_rows
    )
    write_latents: Callable[[Tensor, Pairs | None, RowNorm, GlobalRows, torch.dtype], Tensor] = (
        compressor.write_latents
    )
    attend_turned: Callable[
        [Tensor, OwnRows, ChosenRows | None, Tensor, float, Rotation], Tensor
    ] = attention.attend_turned
    score_rows: Callable[[Tensor, Tensor, CachedRows, Pages, Tensor, int], Tensor] = (
        indexer.score_rows
    )
    best_rows: Callable[[Tensor, int, Pages], Tensor] = topk.best_rows
    candidate_blocks: Callable[[Tensor, Tensor, int, int], Tensor] = indexer.candidate_blocks
    score_blocks: Callable[[Tensor, Tensor, CachedRows, Pages, Tensor, Blocks], Tensor] = (
        indexer.score_blocks
    )
    best_of_blocks: Callable[[Tensor, int, Pages, Blocks], Tensor] = topk.best_of_blocks
    choose_highest: Callable[[Tensor], Choice] = sampling.choose_highest
    choose_tokens: Callable[[Tensor, Tensor, SamplingRules], Choice] = sampling.choose_tokens
    verify: Callable[[Tensor, Drafts, Tensor, SamplingRules | None], Verdict] = verification.verify
    keep_tokens: Callable[[Rings, Tensor, Tensor, Tensor, Tensor, int], None] = (
        verification.keep_tokens
    )
    log_probabilities: Callable[[Tensor, Tensor, Tensor, int], LogprobRows] = (
        logprobs.log_probabilities
    )
    quantise_dequantise: Callable[[Tensor, str], Tensor] = formats.quantise_dequantise
    look_up: Callable[[Tensor, HashConstants, Tensor], Tensor] = engram.look_up
    gated_add: Callable[[Tensor, Tensor, Tensor, float], Tensor] = engram.gated_add
    mixes: Callable[[Tensor, Mixing], Mixes] = hyper_connection.mixes
    collapse_norm: Callable[[Tensor, Tensor, Tensor, float], Tensor] = (
        hyper_connection.collapse_norm
    )
    expand: Callable[[Tensor, Tensor, Mixes], Tensor] = hyper_connection.expand
    between_sublayers: Callable[[Tensor, Tensor, Mixes, Tensor, float, Mixing], Between] = (
        hyper_connection.between_sublayers
    )

    @property
    def reads_caches(self) -> bool:
        """Whether attention reads cache rows where they lie, rather than a copy of them."""
        return self.attend_turned is not attention.attend_turned


REFERENCE = Ops()
