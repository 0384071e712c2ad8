"""What the V4.1 model refuses, declares, and leaves to `capture`."""

import pytest
import torch

from engine.batch import Capture
from engine.cache.groups import PagedGroup, RowFormat
from engine.errors import CheckpointError
from engine.models.deepseek_v41.model import DeepseekV41Model
from tests.fakes.models import VOCAB, Chunk, Harness, random_weights, small_config, small_model

IDS = [5, 9, 11, 3, 40, 8, 21, 2, 2, 17, 30, 6]


def build(config, weights, token_map=tuple(range(VOCAB))):
    return DeepseekV41Model(
        config,
        weights,
        dtype=torch.float32,
        released_caches=False,
        engram_token_map=[t // 2 for t in token_map],
    )


def test_a_missing_tensor_is_named():
    config = small_config()
    weights = random_weights(config, seed=0)
    del weights["layers.3.ffn.experts.1.w3.weight"]
    with pytest.raises(CheckpointError, match=r"lacks the tensor layers\.3\.ffn\.experts\.1\.w3"):
        build(config, weights)


def test_a_token_map_that_does_not_cover_the_vocabulary_is_refused():
    config = small_config()
    with pytest.raises(CheckpointError, match="47 entries for 48 ids"):
        build(config, random_weights(config, seed=0), range(VOCAB - 1))


def test_an_engram_table_of_another_size_is_refused():
    config = small_config()
    weights = random_weights(config, seed=0)
    weights["layers.1.engram.embed.weight"] = weights["layers.1.engram.embed.weight"][:-1]
    with pytest.raises(CheckpointError, match=r"layers\.1\.engram\.embed\.weight: has"):
        build(config, weights)


def test_released_caches_declare_the_packed_formats():
    model = small_model(small_config(), released_caches=True, dtype=torch.float32)
    groups = {group.name: group for group in model.cache_groups(max_backtrack=6)}
    assert groups["window.0"].row_format == RowFormat.FP8_GROUP32
    assert groups["window.0"].rows == 5 + 6
    assert groups["dspark.2"].row_format == RowFormat.FP8_GROUP32
    assert groups["tail.2"].row_format == RowFormat.FLOAT32
    assert groups["tail.2"].rows == 6 + 2
    paged = {name: g for name, g in groups.items() if isinstance(g, PagedGroup)}
    assert {name: (g.tokens_per_row, g.row_format) for name, g in paged.items()} == {
        "global.2": (2, RowFormat.FP4_GROUP16),
        "index.2": (2, RowFormat.FP4_GROUP32),
        "global.4": (1, RowFormat.FP4_GROUP16),
        "index.4": (1, RowFormat.FP4_GROUP32),
    }


def test_a_model_without_draft_stages_proposes_none():
    model = small_model(small_config(stages=0, dspark_target_layer_ids=[]))
    assert model.facts.draft_block == 0
    assert Harness(model).run([Chunk(0, IDS, 0, len(IDS))])[0].shape == (len(IDS), VOCAB)


def test_capture_holds_the_rows_that_each_half_ran():
    model, capture = small_model(small_config()), Capture()
    Harness(model).run([Chunk(0, IDS, 0, 12, decoder_start=8)], compact=True, capture=capture)
    rows = {key: len(value) for key, value in capture.values.items()}
    encoder, decoder = range(4), range(4, 7)
    assert {rows[f"{key}.{n}"] for key in ("stream_mean", "premix") for n in encoder} == {12}
    assert {rows[f"{key}.{n}"] for key in ("stream_mean", "premix") for n in decoder} == {4}
    assert rows["taps"] == 4


def test_truncation_changes_logits_only_past_the_window():
    model = small_model(small_config(window=4, encoder=(), decoder=(2,)))
    whole = Harness(model).run([Chunk(0, IDS, 0, 12)])[0]
    kept = Harness(model).run([Chunk(0, IDS, 0, 12, decoder_start=3)], compact=True)[0]
    assert not torch.allclose(whole[3:], kept)
    exact = Harness(model).run([Chunk(0, IDS, 0, 12, decoder_start=0)], compact=True)[0]
    torch.testing.assert_close(exact, whole, rtol=0, atol=1e-12)


def test_drafting_leaves_the_caches_as_they_were():
    harness = Harness(small_model(small_config()))
    harness.run([Chunk(1, IDS, 0, 12)])
    before = {name: tensor.clone() for name, tensor in harness.caches.tensors.items()}
    harness.draft([Chunk(1, IDS, 0, 12)], [7])
    assert all(torch.equal(harness.caches.tensors[name], rows) for name, rows in before.items())
