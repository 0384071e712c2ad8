"""A config.json that cannot be: one error that names the field, what it is and what it must be."""

import json
from pathlib import Path

import pytest

from engine.errors import CheckpointError
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.facts import facts_of

RELEASED = Path(__file__).parents[2] / "data" / "v41_flash_config.json"


def load(tmp_path, document):
    (tmp_path / "config.json").write_text(json.dumps(document))
    return DeepseekV41Config.load(tmp_path)


def changed(place, value):
    document = json.loads(RELEASED.read_text())
    *folders, name = place.split(".")
    inner = document
    for folder in folders:
        inner = inner[folder]
    inner[name] = value
    return document


def test_the_released_config_is_accepted(tmp_path):
    config = load(tmp_path, json.loads(RELEASED.read_text()))
    assert config.weight_block_size == (32, 32)
    assert config.decoder_layer == 20


@pytest.mark.parametrize("document", [[], None, 5, "text", {}, {"model_type": "deepseek_v41"}])
def test_what_is_no_v41_document_is_refused(tmp_path, document):
    with pytest.raises(CheckpointError, match=r"JSON object|not a DeepSeek-V4\.1 config"):
        load(tmp_path, document)


def test_a_document_nested_without_end_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("[" * 10**5)
    with pytest.raises(CheckpointError, match="cannot be read"):
        DeepseekV41Config.load(tmp_path)


TEXT = "text_config."


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("text_config", None, "text_config is None, expected a JSON object"),
        (TEXT + "rope_scaling", [], r"rope_scaling is \[\], expected a JSON object"),
        ("quantization_config", "fp8", "quantization_config is 'fp8', expected a JSON object"),
        (TEXT + "hidden_size", "64", "hidden_size is '64', expected a whole number"),
        (TEXT + "head_dim", None, "head_dim is None, expected a whole number"),
        (TEXT + "num_hidden_layers", 10.5, "num_hidden_layers is 10.5"),
        (TEXT + "num_hidden_layers", True, "num_hidden_layers is True"),
        (TEXT + "o_groups", 0, "o_groups is 0, expected a whole number of at least 1"),
        (TEXT + "sliding_window", -1, "sliding_window is -1"),
        (TEXT + "norm_topk_prob", 1, "norm_topk_prob is 1, expected true or false"),
        (TEXT + "rope_theta", float("nan"), "rope_theta is nan, expected a finite number above 0"),
        (TEXT + "rms_norm_eps", "1e-6", "rms_norm_eps is '1e-6', expected a finite number of at"),
        (TEXT + "rope_scaling.factor", "16", r"rope_scaling\.factor is '16'"),
        (TEXT + "compress_ratios", 2, "compress_ratios is 2, expected a list of whole numbers"),
        (TEXT + "compress_ratios", [0, 2], "compress_ratios must have one entry per layer"),
        (TEXT + "compress_ratios", [0] * 42 + [1], "compress_ratios needs a ratio-1 layer"),
        (TEXT + "kv_source_layer_ids", [2, 99], "kv_source_layer_ids is .*from 0 to 39"),
        (TEXT + "kv_source_layer_ids", [2, -1], "kv_source_layer_ids is"),
        (TEXT + "kv_source_layer_ids", [], "candidate_source_layer_id must be"),
        (TEXT + "index_source_layer_ids", [1, 2, 8, 14, 20], "every index_source layer must"),
        (TEXT + "engram_layer_ids", [14, 1], "engram_layer_ids is .*rising layers"),
        (TEXT + "engram_layer_ids", [1, 30], "Engram layers must lie in the encoder half"),
        (TEXT + "engram_pad_token_id", 129_280, "engram_pad_token_id is 129280, expected a token"),
        (TEXT + "dspark_noise_token_id", 129_280, "dspark_noise_token_id is 129280"),
        (TEXT + "dspark_target_layer_ids", [38, 40], "dspark_target_layer_ids is .*0 to 39"),
        (TEXT + "dspark_target_layer_ids", [], "dspark_target_layer_ids must name a tap"),
        (TEXT + "num_experts_per_tok", 385, "num_experts_per_tok is 385, expected at most n_rou"),
        (TEXT + "engram_max_ngram_size", 1, "engram_max_ngram_size is 1, expected at least 2"),
        ("eos_token_id", [1, 2], "eos_token_id is .*expected a whole number"),
        ("eos_token_id", None, "eos_token_id is None"),
        ("eos_token_id", 129_280, "eos_token_id is 129280, expected a token id from 0 to 129279"),
        ("bos_token_id", "<s>", "bos_token_id is '<s>', expected a whole number .* or null"),
        ("vision_config", "yes", "vision_config is 'yes', expected a JSON object or null"),
        ("quantization_config.weight_block_size", [32], r"weight_block_size is \(32,\)"),
        ("quantization_config.weight_block_size", [32, 0], r"weight_block_size is \(32, 0\)"),
        ("quantization_config.expert_dtype", "int4", "expert_dtype is 'int4', expected fp4"),
    ],
)
def test_a_wrong_field_is_named_with_what_it_is_and_must_be(tmp_path, place, value, words):
    with pytest.raises(CheckpointError, match=words) as refusal:
        load(tmp_path, changed(place, value))
    assert refusal.value.where == str(tmp_path / "config.json")


def test_every_field_may_be_anything_and_is_refused_or_read():
    document = json.loads(RELEASED.read_text())
    for name in document["text_config"]:
        for value in (None, "64", [], {}, -1, 0, 10.5, 10**30, [[1]], [None]):
            try:
                found = DeepseekV41Config.from_document(changed(TEXT + name, value), where="here")
            except CheckpointError:
                continue
            assert len(found.layers) == 40
            assert facts_of(found).can_truncate
