"""The definitions, in forms that a graph can hold: what the kernels of a device do as well."""

import dataclasses

import torch

from kernels import formats
from kernels.activation.reference import swiglu
from kernels.attention.reference import attend_turned
from kernels.beside import ready
from kernels.compressor.reference import pool_pairs
from kernels.norm.reference import rms_norm
from kernels.ops import REFERENCE
from kernels.precision import at_least_float32
from kernels.rotary.reference import rotate


def insert_rows(cache, where, x, norm, turn):
    """See kernels.cache_ops.reference; places may be negative, or equal."""
    values = x if norm is None else rms_norm(x, norm.weight, norm.eps)
    values = rotate(values, turn)
    if cache.packing is not None:
        values = formats.pack(values, cache.packing)
    values, is_one = values.to(cache.tensor.dtype), where >= 0
    if len(where):  # a row that goes nowhere is written as one that does, or as the first one is
        other = is_one.long().argmax()[None]
        place = where.clamp(min=0)
        held = torch.where(is_one[other, None], values[other], cache.tensor[:1])
        values = torch.where(is_one[:, None], values, held)
        cache.tensor.index_copy_(0, torch.where(is_one, place, place[other]), values)


def write_latents(x, pairs, norm, into, dtype):
    """See kernels.compressor.reference; places may be negative, or equal."""
    pooled = x
    if pairs is not None:
        pooled = pool_pairs(torch.cat((pairs.tails[pairs.old], x))[pairs.previous], x)
        pairs.tails.index_copy_(0, pairs.keep, x)
    latents = rms_norm(pooled.to(dtype), norm.weight, norm.eps)
    latents = torch.where((into.where < 0)[:, None], 0, latents)
    insert_rows(into.cache, into.where, latents, None, into.turn)
    return latents


def run_experts(x, experts, chosen, weights, shared):
    """See kernels.grouped_matmul.reference; pair by pair."""
    rows, k = chosen.shape
    expert = chosen.flatten().clamp(min=0)
    pairs = x.unsqueeze(1).expand(-1, k, -1).flatten(0, 1)
    gate_up = torch.bmm(experts.gate_up[expert], pairs.unsqueeze(-1)).squeeze(-1)
    inner = swiglu(gate_up, experts.limit, weights.flatten())
    parts = torch.bmm(experts.down[expert], inner.unsqueeze(-1)).squeeze(-1)
    parts = torch.where((chosen.flatten() >= 0)[:, None], parts, 0)
    routed = parts.to(at_least_float32(x.dtype)).unflatten(0, (rows, k)).sum(1)
    return (routed + ready(shared)).to(x.dtype)


IN_PLACE = dataclasses.replace(
    REFERENCE,
    attend_turned=lambda *given: attend_turned(*given),
    insert_rows=insert_rows,
    write_latents=write_latents,
    run_experts=run_experts,
)
