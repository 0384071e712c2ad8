import dataclasses
import json
from pathlib import Path

import pytest
from safetensors import safe_open

from engine.errors import CheckpointError
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.contract import (
    TensorSpec,
    expected_tensors,
    parameters,
    vision_parameters,
)

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def released():
    document = json.loads((DATA / "v41_flash_config.json").read_text())
    return DeepseekV41Config.from_document(document, where="v41_flash_config.json")


@pytest.fixture(scope="module")
def released_tensors(released):
    return expected_tensors(released)


def test_released_config_gives_the_released_tensors(released_tensors):
    assert len(released_tensors) == 96_085
    assert sum(spec.size_bytes for spec in released_tensors.values()) == 510_286_023_000


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("embed.weight", (129280, 5120), "BF16"),
        ("layers.0.hc_attn_fn", (24, 20480), "F32"),
        ("layers.39.attn.wq_b.weight", (32768, 1280), "F8_E4M3"),
        ("layers.39.attn.wq_b.scale", (1024, 40), "F8_E8M0"),
        ("layers.3.attn.wo_a.weight", (8192, 4096), "F8_E4M3"),
        ("layers.14.attn.compressor.wgate.weight", (512, 5120), "BF16"),
        ("layers.20.attn.indexer.wk.weight", (128, 512), "BF16"),
        ("layers.36.attn.indexer.weights_proj.weight", (32, 5120), "BF16"),
        ("layers.7.ffn.experts.383.w1.weight", (2304, 2560), "I8"),
        ("layers.7.ffn.experts.383.w2.scale", (5120, 72), "F8_E8M0"),
        ("layers.7.ffn.gate.bias_vl", (384,), "F32"),
        ("layers.14.engram.embed.scale", (384016682, 8), "F8_E8M0"),
        ("layers.1.engram.wkv.weight", (25600, 6144), "F8_E4M3"),
        ("mtp.0.main_proj.weight", (5120, 15360), "F8_E4M3"),
        ("mtp.1.ffn.gate.bias_vl", (128,), "F32"),
        ("mtp.2.confidence_head.proj.weight", (1, 5376), "BF16"),
        ("vision.blocks.31.mlp.w1.weight", (5632, 1024), "BF16"),
        ("aligner.w1.weight", (5120, 9216), "BF16"),
        ("image_newline", (5120,), "BF16"),
    ],
)
def test_released_tensors_have_their_published_shape_and_type(released_tensors, name, shape, dtype):
    assert released_tensors[name] == TensorSpec(shape, dtype)


@pytest.mark.parametrize(
    "name",
    [
        "layers.20.attn.compressor.wgate.weight",  # ratio 1 has no gate
        "layers.24.attn.indexer.wk.weight",  # reindexes by the owner's keys
        "layers.3.attn.indexer.wq_b.weight",  # reuses
        "layers.2.engram.embed.weight",
        "mtp.0.attn.compressor.wkv.weight",
        "mtp.2.embed.weight",  # shared with the target
        "mtp.1.norm.weight",
    ],
)
def test_layers_carry_nothing_that_their_role_does_not_need(released_tensors, name):
    assert name not in released_tensors


def test_vision_tensors_are_expected_only_with_a_vision_config(released, released_tensors):
    text_only = dataclasses.replace(released, vision_config=None)
    skipped = released_tensors.keys() - expected_tensors(text_only).keys()
    assert skipped == vision_parameters(released).keys()
    assert {name.split(".")[0] for name in skipped} == {
        *("layers", "mtp", "vision", "aligner"),
        *("image_start", "image_end", "image_newline"),
    }
    assert vision_parameters(text_only) == {}
    assert expected_tensors(released, include_vision=False) == expected_tensors(text_only)


def test_no_draft_stage_means_no_draft_tensor(released):
    plain = dataclasses.replace(
        released, num_nextn_predict_layers=0, compress_ratios=released.compress_ratios[:40]
    )
    assert not [name for name in expected_tensors(plain) if name.startswith("mtp.")]


def test_unquantised_config_expects_no_scale(released):
    plain = dataclasses.replace(released, weight_block_size=None, expert_dtype=None)
    tensors = expected_tensors(plain)
    assert tensors.keys() == (parameters(plain) | vision_parameters(plain)).keys()
    assert {spec.dtype for spec in tensors.values()} == {"BF16", "F32"}


def test_experts_without_fp4_are_fp8_blocks(released):
    tensors = expected_tensors(dataclasses.replace(released, expert_dtype=None))
    assert tensors["layers.0.ffn.experts.0.w1.weight"] == TensorSpec((2304, 5120), "F8_E4M3")
    assert tensors["layers.0.ffn.experts.0.w1.scale"] == TensorSpec((72, 160), "F8_E8M0")


def test_vision_config_without_a_size_is_refused_by_field(released):
    broken = dataclasses.replace(released, vision_config={"hidden_size": 1024})
    with pytest.raises(CheckpointError, match="vision_config: intermediate_size"):
        expected_tensors(broken)


@pytest.mark.parametrize("golden", ["v41-a", "v41-c"])
def test_golden_checkpoints_hold_exactly_the_contract(golden):
    directory = DATA / "golden" / golden
    expected = expected_tensors(DeepseekV41Config.load(directory))
    with safe_open(directory / "model.safetensors", "pt") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    assert shapes == {name: spec.shape for name, spec in expected.items()}
