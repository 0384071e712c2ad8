import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import CheckpointError
from engine.make_checkpoint import make_checkpoint
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.contract import parameters, vision_parameters
from engine.models.deepseek_v41.weights import fingerprint, load_weights
from kernels.quantize.reference import dequantise_fp8_blocks, dequantise_mxfp4

LINEAR = "layers.0.attn.wq_a.weight"
EXPERT = "layers.3.ffn.experts.5.w2.weight"
TABLE = "layers.1.engram.embed.weight"


@pytest.fixture(scope="module")
def toy_source(tmp_path_factory):
    return make_checkpoint("toy", seed=0, directory=tmp_path_factory.mktemp("made") / "toy")


@pytest.fixture
def toy(toy_source, tmp_path):
    return Path(shutil.copytree(toy_source, tmp_path / "toy"))


def load(model_dir, dtype=torch.float32):
    return load_weights(model_dir, DeepseekV41Config.load(model_dir), dtype=dtype, device="cpu")


def rewrite(model_dir, change):
    path = model_dir / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)


def split(model_dir):
    """Turn the single file into two shards with an index; return the index."""
    tensors = load_file(model_dir / "model.safetensors")
    names = sorted(tensors)
    halves = {"model-1.safetensors": names[:300], "model-2.safetensors": names[300:]}
    for shard, part in halves.items():
        save_file({name: tensors[name] for name in part}, model_dir / shard)
    (model_dir / "model.safetensors").unlink()
    index = {"weight_map": {name: shard for shard, part in halves.items() for name in part}}
    write_index(model_dir, index)
    return index


def write_index(model_dir, index):
    (model_dir / "model.safetensors.index.json").write_text(json.dumps(index))


def test_every_parameter_loads_with_its_shape_and_type(toy_source):
    table = parameters(DeepseekV41Config.load(toy_source))
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        weights = load(toy_source, dtype)
        assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == {
            name: parameter.shape for name, parameter in table.items()
        }
        kept = torch.promote_types(dtype, torch.float32)
        for name, parameter in table.items():
            assert weights[name].dtype == (kept if parameter.storage == "f32" else dtype), name
            assert bool(weights[name].isfinite().all()), name


def test_quantised_tensors_are_dequantised_by_their_scales(toy_source):
    stored, weights = load_file(toy_source / "model.safetensors"), load(toy_source)
    linear = dequantise_fp8_blocks(
        stored[LINEAR], stored[LINEAR.replace("weight", "scale")], (32, 32)
    )
    table = dequantise_fp8_blocks(stored[TABLE], stored[TABLE.replace("weight", "scale")], (1, 32))
    expert = dequantise_mxfp4(stored[EXPERT], stored[EXPERT.replace("weight", "scale")])
    assert torch.equal(weights[LINEAR], linear)
    assert torch.equal(weights[TABLE], table)
    assert torch.equal(weights[EXPERT], expert)


def test_wider_types_hold_the_same_values(toy_source):
    narrow, wide = load(toy_source), load(toy_source, torch.float64)
    assert all(torch.equal(wide[name], narrow[name].double()) for name in narrow)


@pytest.mark.parametrize("rows", [16, 50])
def test_tables_longer_than_one_slice_load_whole(toy_source, monkeypatch, rows):
    whole = load(toy_source)
    monkeypatch.setattr("engine.models.deepseek_v41.weights._ROWS_AT_ONCE", rows)
    sliced = load(toy_source)
    assert all(torch.equal(sliced[name], whole[name]) for name in whole)


def test_weights_outlive_their_file(toy):
    weights = load(toy)
    before = weights["norm.weight"].clone()
    rewrite(toy, lambda tensors: tensors["norm.weight"].zero_())
    assert torch.equal(weights["norm.weight"], before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_plain_tensor_may_stand_for_a_quantised_one(toy, dtype):
    plain = {name: load(toy)[name].to(dtype) for name in (LINEAR, EXPERT, TABLE)}

    def change(tensors):
        tensors |= plain
        for name in plain:
            del tensors[name.replace("weight", "scale")]

    rewrite(toy, change)
    weights = load(toy, torch.float64)
    assert all(torch.equal(weights[name], plain[name].double()) for name in plain)


def test_packed_experts_may_be_stored_as_uint8(toy):
    before = load(toy)[EXPERT]
    rewrite(toy, lambda tensors: tensors.update({EXPERT: tensors[EXPERT].view(torch.uint8)}))
    assert torch.equal(load(toy)[EXPERT], before)


def test_a_plain_tensor_beside_a_scale_makes_the_scale_extra(toy):
    rewrite(toy, lambda tensors: tensors.update({LINEAR: torch.zeros(32, 64)}))
    with pytest.raises(CheckpointError, match=r"wq_a\.scale is not part of this model"):
        load(toy)


@pytest.mark.parametrize(
    "name", ["norm.weight", LINEAR, EXPERT, "mtp.2.markov_head.head.weight", "layers.4.hc_ffn_fn"]
)
def test_a_missing_tensor_is_named(toy, name):
    rewrite(toy, lambda tensors: tensors.pop(name))
    with pytest.raises(CheckpointError, match=f"{name} is missing") as caught:
        load(toy)
    assert caught.value.where == str(toy)


def test_a_missing_scale_is_named(toy):
    rewrite(toy, lambda tensors: tensors.pop("layers.0.attn.wq_a.scale"))
    with pytest.raises(CheckpointError, match=r"layers\.0\.attn\.wq_a\.scale is missing"):
        load(toy)


def test_an_extra_tensor_is_named(toy):
    rewrite(toy, lambda tensors: tensors.update({"layers.99.surprise": torch.zeros(1)}))
    with pytest.raises(CheckpointError, match=r"layers\.99\.surprise is not part of this model"):
        load(toy)


def test_a_misshapen_tensor_is_named_with_both_shapes(toy):
    rewrite(toy, lambda tensors: tensors.update({"norm.weight": torch.zeros(65)}))
    with pytest.raises(CheckpointError, match=r"norm\.weight has shape \[65\], not \[64\]"):
        load(toy)


def test_a_tensor_of_the_wrong_type_is_named_with_both_types(toy):
    rewrite(toy, lambda tensors: tensors.update({"norm.weight": torch.zeros(64).to(torch.int32)}))
    with pytest.raises(CheckpointError, match=r"norm\.weight is stored as I32, not BF16"):
        load(toy)


def test_many_faults_are_listed_up_to_ten_and_counted(toy):
    def change(tensors):
        for name in [name for name in tensors if name.startswith("layers.9.ffn.experts.")]:
            del tensors[name]

    rewrite(toy, change)
    with pytest.raises(CheckpointError) as caught:
        load(toy)
    assert caught.value.what.count("is missing") == 10
    assert "and 38 more (48 in all)" in caught.value.what


def test_headers_are_checked_before_any_data_is_read(toy, monkeypatch):
    def refuse(self):
        raise AssertionError("read data before the headers were checked")

    monkeypatch.setattr("engine.models.shards.StoredTensor.read", refuse)
    rewrite(toy, lambda tensors: tensors.pop("norm.weight"))
    with pytest.raises(CheckpointError, match=r"norm\.weight is missing"):
        load(toy)


def test_image_tensors_are_checked_and_skipped_by_list(toy):
    config_path = toy / "config.json"
    document = json.loads(config_path.read_text())
    document["vision_config"] = {
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "intermediate_size": 64,
        "patch_size": 2,
        "downsample_ratio": 1,
    }
    config_path.write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match=r"gate\.bias_vl is missing"):
        load(toy)
    config = DeepseekV41Config.load(toy)
    shapes = {name: part.shape for name, part in vision_parameters(config).items()}
    rewrite(toy, lambda tensors: tensors.update({n: torch.zeros(s) for n, s in shapes.items()}))
    assert load(toy).keys() == parameters(config).keys()


def test_an_image_tensor_in_a_text_only_checkpoint_is_extra(toy):
    rewrite(toy, lambda tensors: tensors.update({"image_start": torch.zeros(64)}))
    with pytest.raises(CheckpointError, match="image_start is not part of this model"):
        load(toy)


def test_unquantised_checkpoints_load_as_they_are(toy):
    plain = load(toy)
    document = json.loads((toy / "config.json").read_text())
    del document["quantization_config"]
    (toy / "config.json").write_text(json.dumps(document))
    save_file(plain, toy / "model.safetensors")
    weights = load(toy)
    assert all(torch.equal(weights[name], plain[name]) for name in plain)


def test_quantised_tensors_under_an_unquantised_config_are_refused(toy):
    document = json.loads((toy / "config.json").read_text())
    del document["quantization_config"]
    (toy / "config.json").write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match="stored as F8_E4M3, not BF16"):
        load(toy)


def test_shards_with_an_index_give_the_same_weights(toy):
    whole = load(toy)
    split(toy)
    shards = load(toy)
    assert all(torch.equal(shards[name], whole[name]) for name in whole)


def test_an_absent_file_is_named(toy):
    (toy / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"there is no model\.safetensors"):
        load(toy)


def test_an_absent_shard_is_named(toy):
    split(toy)
    (toy / "model-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"there is no model-2\.safetensors, which"):
        load(toy)


def test_an_index_that_points_to_the_wrong_shard_is_refused(toy):
    index = split(toy)
    index["weight_map"]["embed.weight"] = "model-2.safetensors"
    write_index(toy, index)
    with pytest.raises(CheckpointError, match=r"embed\.weight, against .*index") as caught:
        load(toy)
    assert caught.value.where.endswith("model-1.safetensors")


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weight_map": 3}'])
def test_a_broken_index_is_named(toy, content):
    (toy / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CheckpointError, match="is not a safetensors index"):
        load(toy)


def test_an_index_may_not_lead_out_of_the_directory(toy):
    write_index(toy, {"weight_map": {"norm.weight": "../other/model.safetensors"}})
    with pytest.raises(CheckpointError, match="which is no shard name"):
        load(toy)


@pytest.mark.parametrize("kept", [0, 4, 500, -100])
def test_a_truncated_file_is_named(toy, kept):
    path = toy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match="cut short or corrupt") as caught:
        load(toy)
    assert caught.value.where == str(path)


def test_a_corrupt_header_is_named(toy):
    path = toy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:8] + b"\xff" * 40 + path.read_bytes()[48:])
    with pytest.raises(CheckpointError, match="cut short or corrupt"):
        load(toy)


def test_fingerprint_follows_the_content_and_not_the_place(toy, toy_source):
    assert fingerprint(toy) == fingerprint(toy_source)
    before = fingerprint(toy)
    rewrite(toy, lambda tensors: tensors["norm.weight"].fill_(2))
    after_weights = fingerprint(toy)
    (toy / "config.json").write_text((toy / "config.json").read_text() + "\n")
    after_config = fingerprint(toy)
    split(toy)
    assert len({before, after_weights, after_config, fingerprint(toy)}) == 4


def test_fingerprint_samples_large_files(toy, monkeypatch):
    monkeypatch.setattr("engine.models.shards._WHOLE_BELOW_BYTES", 1)
    before = fingerprint(toy)
    rewrite(toy, lambda tensors: tensors["embed.weight"].fill_(2))
    assert fingerprint(toy) != before


def test_draft_stages_that_the_config_does_not_have_are_extra(toy):
    config = DeepseekV41Config.load(toy)
    fewer = dataclasses.replace(
        config, num_nextn_predict_layers=0, compress_ratios=config.compress_ratios[:10]
    )
    with pytest.raises(CheckpointError, match=r"mtp\.0\..* is not part of this model"):
        load_weights(toy, fewer, dtype=torch.float32, device="cpu")
