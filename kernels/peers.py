"""What others offer for the same operation: timed beside ours where they are installed.

A peer binds the arguments of a case and gives what to run, or None where it cannot do that case.
Nothing here is needed to run the engine, and no peer is a requirement of this distribution.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kernels import peers_attention
from kernels.case import Arguments
from kernels.matmul.weights import Fp8Weight
from kernels.sampling.reference import GREEDY_BELOW, SamplingRules
from kernels.stopwatch import Work


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another implementation of an operation; it may do less than ours, never more."""

    op: str
    name: str
    module: str  # that must be installed
    bind: Callable[[Arguments], Work | None]


def peers_of(op: str) -> Iterator[Peer]:
    """Those that are installed."""
    for peer in PEERS:
        if peer.op == op and importlib.util.find_spec(peer.module) is not None:
            yield peer


def _torch_rms_norm(arguments: Arguments) -> Work:
    x, weight, eps = arguments
    assert isinstance(x, Tensor)
    assert isinstance(weight, Tensor)
    assert isinstance(eps, float)
    narrow = weight.to(x.dtype)
    return lambda: functional.rms_norm(x, (x.shape[-1],), narrow, eps)


def _flashinfer_rms_norm(arguments: Arguments) -> Work:
    x, weight, eps = arguments
    assert isinstance(x, Tensor)
    assert isinstance(weight, Tensor)
    norm = importlib.import_module("flashinfer.norm").rmsnorm
    narrow, out = weight.to(x.dtype), torch.empty_like(x)
    return lambda: norm(x, narrow, eps, out=out)


def _flashinfer_swiglu(arguments: Arguments) -> Work:
    gate_up = arguments[0]
    assert isinstance(gate_up, Tensor)
    act = importlib.import_module("flashinfer.activation").silu_and_mul
    return lambda: act(gate_up)


def _torch_top_k(arguments: Arguments) -> Work | None:
    scores, k, *_ = arguments
    assert isinstance(scores, Tensor)
    assert isinstance(k, int)
    return (lambda: torch.topk(scores, k)) if k <= scores.shape[-1] else None


def _flashinfer_top_k(arguments: Arguments) -> Work | None:
    scores, k, *_ = arguments
    assert isinstance(scores, Tensor)
    assert isinstance(k, int)
    top_k = importlib.import_module("flashinfer").top_k
    return (lambda: top_k(scores, k)) if k <= scores.shape[-1] else None


def _torch_linear(arguments: Arguments) -> Work | None:
    x, weight = arguments[:2]
    assert isinstance(x, Tensor)
    if not isinstance(weight, Fp8Weight):
        return None
    plain = weight.dequantised().to(x.dtype)
    return lambda: functional.linear(x, plain)


def _torch_fp8_linear(arguments: Arguments) -> Work | None:
    """With one scale for each side, which are given: no activation is rounded on the way."""
    x, weight = arguments[:2]
    assert isinstance(x, Tensor)
    if not isinstance(weight, Fp8Weight):
        return None
    values = x.new_zeros(max(16, -(-len(x) // 16) * 16), x.shape[-1]).to(torch.float8_e4m3fn)
    one = torch.ones((), device=x.device)
    product = torch._scaled_mm
    return lambda: product(values, weight.values.T, one, one, out_dtype=x.dtype)


def _flashinfer_choose(arguments: Arguments) -> Work | None:
    """From float32 logits that temperatures have divided beforehand; no least probability.

    Rows without a temperature draw from their best token alone.
    """
    logits, _, rules = arguments
    assert isinstance(logits, Tensor)
    assert isinstance(rules, SamplingRules)
    if rules.narrowing is None:
        return None
    sample = importlib.import_module("flashinfer.sampling").top_k_top_p_sampling_from_logits
    is_warm = rules.temperatures >= GREEDY_BELOW
    divided = logits.float() / torch.where(is_warm, rules.temperatures, 1.0).float().unsqueeze(-1)
    most = logits.shape[-1] - 1  # it takes fewer than all
    top_k = torch.where(is_warm, rules.narrowing.top_k.clamp(max=most), 1).int()
    top_p = rules.narrowing.top_p.float()
    # On the device: one drawn on the host could not be captured.
    seed, offset = (torch.zeros(1, dtype=torch.int64, device=logits.device) for _ in range(2))
    return lambda: sample(divided, top_k, top_p, seed=seed, offset=offset)


PEERS = (
    Peer(op="linear", name="torch bf16", module="torch", bind=_torch_linear),
    Peer(op="linear", name="torch fp8 per tensor", module="torch", bind=_torch_fp8_linear),
    Peer(op="rms_norm", name="torch", module="torch", bind=_torch_rms_norm),
    Peer(op="rms_norm", name="flashinfer", module="flashinfer", bind=_flashinfer_rms_norm),
    Peer(op="swiglu", name="flashinfer", module="flashinfer", bind=_flashinfer_swiglu),
    Peer(op="best_rows", name="torch", module="torch", bind=_torch_top_k),
    Peer(op="best_rows", name="flashinfer", module="flashinfer", bind=_flashinfer_top_k),
    Peer(op="choose_tokens", name="flashinfer", module="flashinfer", bind=_flashinfer_choose),
    *(
        Peer(op="attend_turned", name=f"sgl-flash-mla{kind}", module="flash_mla", bind=bind)
        for kind, bind in (
            ("", peers_attention.decode),
            (f", {peers_attention.DRAFTED} a sequence", peers_attention.decode_drafted),
            (", prefill", peers_attention.prefill),
        )
    ),
)
