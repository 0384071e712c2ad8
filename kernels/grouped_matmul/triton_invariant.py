"""Experts in tiles of one size, however many rows choose them: a row comes out the same."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.beside import ready
from kernels.grouped_matmul import triton_cuda, triton_fp8
from kernels.grouped_matmul.reference import Experts, Shared
from kernels.matmul.weights import Mxfp4Weight
from kernels.quantize.reference import FormatError

PAIRS = 8  # of an expert: what tiles are cut for


def run_experts(
    x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor, shared: Shared
) -> Tensor:
    """See kernels.grouped_matmul.reference; x bfloat16. FormatError where the experts are packed
    as no kernel reads them.
    """
    pairs = PAIRS * experts.down.shape[0]
    if not chosen.numel():
        return torch.empty_like(x).copy_(ready(shared))
    if triton_fp8.suits(experts, x):
        return triton_fp8.in_tiles(x, experts, chosen, weights, shared, pairs=pairs)
    both = (experts.gate_up, experts.down)
    if not any(all(isinstance(w, kind) for w in both) for kind in (Tensor, Mxfp4Weight)):
        raise FormatError(
            "no product of such packed experts leaves a row alone.",
            where="run_experts",
            remedy="Load the weights dequantised.",
        )
    return triton_cuda.in_tiles(x, experts, chosen, weights, shared, pairs=pairs)
