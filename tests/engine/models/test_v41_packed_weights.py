"""A model that keeps its weights as the release stores them."""

import pytest
import torch

from engine.checkpoint_directory import resolve_model_dir
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.dummy_weights import dummy_weights
from engine.models.deepseek_v41.model import DeepseekV41Model
from engine.models.deepseek_v41.weights import load_packed_weights, load_weights
from engine.models.single import SingleSequence
from engine.tokenizer import engram_token_map
from kernels.matmul.weights import Fp8Weight, Mxfp4Weight

PROMPT = [10 + 3 * i for i in range(60)]


@pytest.fixture(scope="module")
def nano():
    folder = resolve_model_dir("nano")
    return folder, DeepseekV41Config.load(folder)


def logits(nano, weights, dtype=torch.float32):
    folder, config = nano
    model = DeepseekV41Model(
        config,
        weights,
        dtype=dtype,
        released_caches=False,
        engram_token_map=engram_token_map(folder, config),
    )
    return SingleSequence(model, capacity=128, dtype=dtype).run(PROMPT)


def packed(nano, *, rounds_inputs):
    return load_packed_weights(
        *nano, dtype=torch.float32, device="cpu", rounds_inputs=rounds_inputs
    )


def test_packed_weights_give_the_logits_of_dequantised_ones(nano):
    found = packed(nano, rounds_inputs=False)
    kinds = {type(w) for w in found.values()}
    assert kinds == {torch.Tensor, Fp8Weight, Mxfp4Weight}
    exact = logits(nano, load_weights(*nano, dtype=torch.float32, device="cpu"))
    torch.testing.assert_close(logits(nano, found), exact, rtol=0, atol=2e-4)


def test_rounded_inputs_move_the_logits_but_not_far(nano):
    found = packed(nano, rounds_inputs=True)
    groups = {w.input_group for n, w in found.items() if not isinstance(w, torch.Tensor)
              and not n.endswith("wo_a.weight")}  # fmt: skip
    assert groups == {32}
    assert found["layers.0.attn.wo_a.weight"].input_group is None
    exact, rounded = logits(nano, packed(nano, rounds_inputs=False)), logits(nano, found)
    off = (rounded - exact).norm() / exact.norm()
    assert 1e-3 < off < 0.2


def test_dummy_weights_are_those_of_a_checkpoint_in_all_but_their_values(nano):
    real = packed(nano, rounds_inputs=True)
    made = dummy_weights(nano[1], dtype=torch.float32, device="cpu", seed=1)
    assert list(made) == list(real)
    for name, weight in real.items():
        drawn = made[name]
        assert type(drawn) is type(weight), name
        assert drawn.shape == weight.shape, name
        if isinstance(weight, torch.Tensor):
            assert drawn.dtype == weight.dtype, name
        else:
            assert (drawn.tile, drawn.input_group) == (weight.tile, weight.input_group), name
            assert drawn.scales.shape == weight.scales.shape, name


def test_dummy_weights_make_a_model_of_finite_logits_the_same_for_a_seed(nano):
    first, again, other = (
        logits(nano, dummy_weights(nano[1], dtype=torch.float32, device="cpu", seed=seed))
        for seed in (1, 1, 2)
    )
    assert first.isfinite().all()
    assert first.std() > 0.1
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
