"""What a Hugging Face directory may hold, and what is refused by name."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import CheckpointError
from engine.llm import LLM
from engine.models.causal_lm.config import CausalConfig
from engine.models.causal_lm.weights import expected_shapes
from engine.models.dummy_causal import DummyWeights
from engine.models.registry import open_checkpoint
from engine.request import SamplingParams
from engine.tokenizer import Tokenizer
from experiments.targets.checkpoint import read_checkpoint
from tests.fakes.causal import DOCUMENTS, LLAMA, QWEN3, QWEN3_MOE


@pytest.fixture
def directory(tmp_path):
    """A whole checkpoint of one file."""
    return written(tmp_path, LLAMA)


def written(path, document):
    config = CausalConfig.from_document(document, where="test")
    weights = DummyWeights(expected_shapes(config), torch.float32, torch.Generator().manual_seed(0))
    tensors = {name: weights.read(name) for name in weights.shapes}
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(document))
    return path


def rewritten(directory, change):
    path = directory / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_facts_come_from_the_configuration_alone(tmp_path, name):
    (tmp_path / "config.json").write_text(json.dumps(DOCUMENTS[name]))
    facts = open_checkpoint(tmp_path).facts
    assert (facts.vocab_size, facts.max_positions, facts.draft_block) == (97, 512, 0)
    assert (facts.ngram, facts.can_truncate, facts.hidden_size) == (1, False, 32)


def test_a_target_reads_a_checkpoint_as_one_of_the_released_model(tmp_path):
    found = read_checkpoint(str(written(tmp_path, {**LLAMA, "vocab_size": 300})))
    assert found.facts.vocab_size == 300
    assert found.reserved_token_ids == (2,)
    assert not found.random_weights


def test_a_vocabulary_too_small_for_bytes_needs_a_tokenizer(directory):
    with pytest.raises(CheckpointError, match="97 ids are too few for bytes"):
        Tokenizer.load(directory)


@pytest.mark.parametrize(
    ("document", "change", "said"),
    [
        (LLAMA, {"hidden_act": "gelu"}, "hidden_act"),
        (LLAMA, {"mlp_bias": True}, "mlp_bias"),
        (LLAMA, {"num_key_value_heads": 3}, "num_key_value_heads must divide 4"),
        (LLAMA, {"num_hidden_layers": "3"}, "num_hidden_layers"),
        (LLAMA, {"vocab_size": 0}, "vocab_size"),
        (LLAMA, {"eos_token_id": None}, "eos_token_ids.0 is None"),
        (LLAMA, {"eos_token_id": []}, "eos_token_ids"),
        (LLAMA, {"eos_token_id": 97}, "eos_token_id is not below vocab_size"),
        (LLAMA, {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        (LLAMA, {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope.rope_type"),
        (LLAMA, {"rope_scaling": {"type": "longrope"}}, "rope.rope_type"),
        (LLAMA, {"rope_scaling": "linear"}, "rope is 'linear'"),
        (LLAMA, {"rope_scaling": {"type": "linear"}}, "rope of type linear needs factor"),
        (LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "original_max_pos"),
        (LLAMA, {"rope_parameters": {"rope_type": "yarn", "mscale": 1.0}}, "rope.mscale"),
        (QWEN3, {"use_sliding_window": True}, "use_sliding_window"),
        (QWEN3, {"layer_types": ["sliding_attention"] * 3}, "layer_types.0"),
        (QWEN3_MOE, {"num_experts": None}, "a mixture of experts needs num_experts"),
        (QWEN3_MOE, {"num_experts_per_tok": 7}, "more than num_experts"),
    ],
)
def test_what_is_not_served_is_refused_by_the_name_of_its_field(tmp_path, document, change, said):
    (tmp_path / "config.json").write_text(json.dumps({**document, **change}))
    with pytest.raises(CheckpointError, match=said) as caught:
        _ = open_checkpoint(tmp_path).facts
    assert str(tmp_path) in str(caught.value)


def test_an_unknown_architecture_is_told_what_is_served(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "architectures": ["GptOss"]}))
    with pytest.raises(CheckpointError, match="Qwen3MoeForCausalLM"):
        _ = open_checkpoint(tmp_path).facts


def generated(directory, prompts, params):
    with LLM(str(directory)) as llm:  # a fresh engine draws the same seeds
        return llm.generate(prompts, params)


def test_every_end_token_of_a_list_ends_a_sequence(tmp_path):
    directory = written(tmp_path, {**LLAMA, "eos_token_id": [2, 5]})
    assert open_checkpoint(directory).facts.other_eos_token_ids == (5,)
    assert open_checkpoint(directory).reserved_token_ids == (2, 5)
    prompts = [[i, i + 1] for i in range(10, 90)]
    free, ended = (
        generated(directory, prompts, SamplingParams(temperature=2.0, max_tokens=40, ignore_eos=i))
        for i in (True, False)
    )
    lasts = set()
    for whole, cut in zip(free, ended, strict=True):
        text = list(whole.token_ids)
        end = next((i + 1 for i, token in enumerate(text) if token in (2, 5)), 40)
        assert list(cut.token_ids) == text[:end]
        lasts.add(text[end - 1])
    assert {2, 5} <= lasts


@pytest.mark.parametrize("text", ["[]", "{", "3"])
def test_a_configuration_that_is_no_object_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_checkpoint(tmp_path)


def test_older_names_mean_the_same(tmp_path):
    old = {**LLAMA, "rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    found = CausalConfig.from_document(old, where="test").rope
    assert (found.rope_type, found.factor, found.rope_theta) == ("linear", 2.0, 500.0)
    named = {**QWEN3_MOE, "num_experts": None, "num_local_experts": 6, "head_dim": None}
    config = CausalConfig.from_document(named, where="test")
    assert (config.num_experts, config.head_dim) == (6, 128)
    assert CausalConfig.from_document(LLAMA, where="test").head_dim == 8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("model.norm.weight"), "model.norm.weight is missing"),
        (lambda t: t.update(stray=torch.zeros(1)), "stray is not part of this model"),
        (
            lambda t: t.update({"model.norm.weight": torch.zeros(31)}),
            r"model.norm.weight has shape \[31\], not \[32\]",
        ),
        (
            lambda t: t.update({"model.norm.weight": torch.zeros(32, dtype=torch.int8)}),
            "model.norm.weight is stored as I8",
        ),
    ],
)
def test_every_tensor_that_does_not_fit_is_named_before_anything_is_loaded(directory, change, said):
    rewritten(directory, change)
    for load in (open_checkpoint(directory).check_headers, lambda: engine_of(directory)):
        with pytest.raises(CheckpointError, match=said):
            load()


def engine_of(directory):
    return Engine(EngineConfig(model=str(directory)))


def test_tensors_that_follow_from_the_configuration_may_be_there(tmp_path):
    directory = written(tmp_path, QWEN3)
    rewritten(
        directory,
        lambda t: t.update(
            {"lm_head.weight": torch.zeros(97, 32), "model.rotary_emb.inv_freq": torch.zeros(8)}
        ),
    )
    engine_of(directory)


def test_a_file_that_is_cut_short_is_named(directory):
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        engine_of(directory)
