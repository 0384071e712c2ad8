"""A model that keeps its weights as the release stores them."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.checkpoint_directory import resolve_model_dir
from engine.choices import AcceleratorKind
from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.llm import LLM
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.dummy_weights import dummy_weights
from engine.models.deepseek_v41.facts import facts_of
from engine.models.deepseek_v41.model import DeepseekV41Model
from engine.models.deepseek_v41.weights import load_packed_weights, load_weights
from engine.models.single import SingleSequence
from engine.request import SamplingParams
from engine.resolution import resolve
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


@pytest.mark.parametrize(("weights", "same"), [("packed", True), ("released", False)])
def test_an_engine_serves_packed_weights(weights, same):
    def answer(weights):
        with LLM("nano", weights=weights, draft_length=0, cache_tokens=512, max_num_seqs=1) as llm:
            done = llm.generate([PROMPT], SamplingParams(temperature=0.0, max_tokens=8))
            return done[0].token_ids

    assert len(answer(weights)) == 8
    if same:
        assert answer(weights) == answer("dequantised")


def test_weights_are_kept_as_released_where_kernels_read_them_so():
    facts = facts_of(DeepseekV41Config.load(resolve_model_dir("nano")))
    on_cuda = resolve(EngineConfig(model="nano", kernels="triton"), facts, AcceleratorKind.CUDA)
    assert on_cuda.weights == "released"
    for config, device in (
        (EngineConfig(model="nano"), AcceleratorKind.CPU),
        (EngineConfig(model="nano", kernels="reference"), AcceleratorKind.CUDA),
        (EngineConfig(model="nano", dtype="float32", kernels="triton"), AcceleratorKind.CUDA),
    ):
        assert resolve(config, facts, device).weights == "dequantised"


def test_a_plain_checkpoint_stays_plain():
    folder = Path("tests/data/golden/v41-c")
    config = DeepseekV41Config.load(folder)
    found = load_packed_weights(
        folder, config, dtype=torch.float32, device="cpu", rounds_inputs=True
    )
    for name, weight in load_weights(folder, config, dtype=torch.float32, device="cpu").items():
        assert torch.equal(found[name], weight), name


def test_a_packed_matrix_that_holds_a_nan_is_refused_by_name(tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(resolve_model_dir("nano"), folder)
    held = load_file(folder / "model.safetensors")
    held["layers.3.attn.wq_b.weight"].view(torch.uint8)[2, 5] = 0xFF
    save_file(held, folder / "model.safetensors")
    config = DeepseekV41Config.load(folder)
    with pytest.raises(CheckpointError, match=r"layers\.3\.attn\.wq_b\.weight holds NaN"):
        load_packed_weights(folder, config, dtype=torch.float32, device="cpu", rounds_inputs=True)
