"""Dense models whose steps of few rows run through all layers in one operation."""

from dataclasses import replace

import pytest
import torch

from engine.accelerator.cpu import CpuAccelerator
from engine.batch import Capture
from engine.models.causal_lm.model import CausalModel
from engine.models.causal_lm.weights import expected_shapes
from engine.models.dummy_causal import DummyWeights
from engine.models.single import SingleSequence
from kernels.ops import REFERENCE
from kernels.plan import resolve
from kernels.registry import ModelShape
from kernels.target import KernelChoice
from tests.fakes.causal import DOCUMENTS, causal_config

WIDE = {"hidden_size": 128, "intermediate_size": 192, "head_dim": 32}
DENSE = {
    "llama": {**DOCUMENTS["llama"], **WIDE, "attention_bias": False},
    "qwen3": {**DOCUMENTS["qwen3"], **WIDE},
}
OTHERS = {name: {**DOCUMENTS[name], **WIDE} for name in ("llama", "qwen3_moe")}


def ops_here():
    shape = ModelShape(dtype="bfloat16", width=128, head_dim=32, streams=1)
    ops = resolve(CpuAccelerator().target(), shape, KernelChoice.AUTO).ops
    if ops.run_layers is REFERENCE.run_layers:
        pytest.skip("no bfloat16 products of oneDNN, or no numba here")
    return ops


def counted(ops, ran):
    def run_layers(x, *rest):
        ran.append(len(x))
        return ops.run_layers(x, *rest)

    return run_layers


def model_of(document, dtype, ops=REFERENCE):
    """Its weights are what bfloat16 can hold, in any dtype."""
    config = causal_config(document)
    draw = torch.Generator().manual_seed(0)
    weights = DummyWeights(expected_shapes(config), torch.bfloat16, draw)
    if dtype is not torch.bfloat16:
        weights = _Widened(weights, dtype)
    return CausalModel(config, weights, dtype=dtype, ops=ops)


class _Widened:
    def __init__(self, weights, dtype):
        self._weights, self._dtype = weights, dtype

    def read(self, name):
        return self._weights.read(name).to(self._dtype)

    def read_wide(self, name):
        return self._weights.read_wide(name).to(self._dtype)


@pytest.mark.parametrize("name", DENSE)
def test_tokens_one_by_one_have_the_logits_of_the_definition(name):
    ops, ran = ops_here(), []
    ops = replace(ops, run_layers=counted(ops, ran))
    narrow, wide = model_of(DENSE[name], torch.bfloat16, ops), model_of(DENSE[name], torch.float32)
    ids = torch.randint(0, 97, (80,), generator=torch.Generator().manual_seed(3)).tolist()
    pieces = [ids[:60], *([one] for one in ids[60:])]
    found, exact = (
        torch.cat([sequence.run(piece) for piece in pieces])
        for sequence in (
            SingleSequence(narrow, capacity=128, dtype=torch.bfloat16),
            SingleSequence(wide, capacity=128, dtype=torch.float32),
        )
    )
    assert ran == [60, *[1] * 20]
    for part in (slice(0, 60), slice(60, 80)):
        off = (found[part].float() - exact[part]).norm() / exact[part].norm()
        assert off <= 0.02


def test_layers_that_are_captured_or_are_not_dense_run_one_by_one():
    ops, ran = ops_here(), []
    ops = replace(ops, run_layers=counted(ops, ran))
    for document in OTHERS.values():
        model = model_of(document, torch.bfloat16, ops)
        SingleSequence(model, capacity=64, dtype=torch.bfloat16).run([5])
    capture = Capture()
    model = model_of(DENSE["llama"], torch.bfloat16, ops)
    SingleSequence(model, capacity=64, dtype=torch.bfloat16).run([5], capture)
    assert ran == []
    assert set(capture.values) == {"hidden.0", "hidden.1", "hidden.2"}
