import dataclasses

import pytest

from engine.choices import AcceleratorKind, CacheFormat, Precision, ReplayMode
from engine.config import EngineConfig, configure, describe_fields
from engine.errors import ConfigError
from engine.models.protocol import ModelFacts
from engine.resolution import resolve

V41 = ModelFacts(
    vocab_size=129_280,
    max_positions=1_048_576,
    eos_token_id=1,
    window=128,
    draft_block=5,
    ngram=4,
    can_truncate=True,
)


def config(**values):
    return EngineConfig(model="somewhere", **values)


def test_a_model_whose_release_has_plain_rows_is_told_to_have_them():
    packed, plain = V41, dataclasses.replace(V41, packs_rows=False)
    for asked in CacheFormat:
        found = resolve(config(cache_format=asked), plain, AcceleratorKind.CUDA)
        assert found.cache_format is CacheFormat.PLAIN
    assert resolve(config(), packed, AcceleratorKind.CUDA).cache_format is CacheFormat.RELEASED
    assert resolve(config(), packed).cache_format is CacheFormat.PLAIN


def test_defaults_of_v41_are_those_of_the_release():
    resolved = resolve(config(), V41)
    assert resolved.draft_length == 5
    assert resolved.replay_mode is ReplayMode.COMPACT
    assert resolved.replay_keep_tokens == 140
    assert resolved.ring_slack == 6
    assert resolved.max_model_len == 1_048_576


def test_auto_is_exact_on_a_cpu_and_released_on_an_accelerator():
    on_cpu = resolve(config(), V41)
    assert (on_cpu.dtype, on_cpu.cache_format) == (Precision.FLOAT32, CacheFormat.PLAIN)
    on_cuda = resolve(config(), V41, AcceleratorKind.CUDA)
    assert (on_cuda.dtype, on_cuda.cache_format) == (Precision.BFLOAT16, CacheFormat.RELEASED)
    forced = resolve(config(accelerator="cpu"), V41, AcceleratorKind.CUDA)
    assert forced.accelerator is AcceleratorKind.CPU


@pytest.mark.parametrize(
    ("draft_length", "backtrack", "least"), [(5, 0, 134), (0, 0, 129), (5, 12, 140), (2, 3, 131)]
)
def test_too_few_keep_tokens_are_refused_with_the_least_that_is_enough(
    draft_length, backtrack, least
):
    values = {"draft_length": draft_length, "max_backtrack_tokens": backtrack}
    assert resolve(config(replay_keep_tokens=least, **values), V41).replay_keep_tokens == least
    with pytest.raises(ConfigError, match=f"replay_keep_tokens.*at least {least}"):
        resolve(config(replay_keep_tokens=least - 1, **values), V41)


def test_keep_tokens_do_not_matter_when_nothing_is_truncated():
    off = config(replay_mode="off", replay_keep_tokens=1)
    assert resolve(off, V41).replay_mode is ReplayMode.OFF


def test_a_draft_longer_than_the_block_is_refused():
    with pytest.raises(ConfigError, match=r"draft_length: 6 is longer.*Use 0 to 5"):
        resolve(config(draft_length=6), V41)
    without = dataclasses.replace(V41, draft_block=0)
    with pytest.raises(ConfigError, match=r"draft_length: 5 is longer.*It has none: use 0"):
        resolve(config(draft_length=5), without)


def test_triton_kernels_are_refused_on_a_cpu_and_auto_means_the_definitions():
    with pytest.raises(ConfigError, match="kernels: Triton kernels do not run on a CPU"):
        resolve(config(kernels="triton"), V41)
    assert resolve(config(), V41).kernels == "reference"
    assert resolve(config(dtype="bfloat16"), V41).kernels == "auto"  # the plan's to say


def test_a_context_longer_than_the_model_s_is_refused():
    with pytest.raises(ConfigError, match=r"max_model_len.*at most 1048576"):
        resolve(config(max_model_len=1_048_577), V41)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dtype", "float8"),
        ("replay_mode", "half"),
        ("draft_length", -1),
        ("draft_length", 1.5),
        ("draft_length", True),
        ("max_num_seqs", 0),
        ("max_num_seqs", "8"),
        ("data_parallel_size", None),
        ("memory_fraction", 0),
        ("memory_fraction", float("nan")),
        ("memory_fraction", 1.1),
        ("seed", -1),
        ("max_model_len", 1),
        ("block_tokens", 0),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(field, value):
    with pytest.raises(ConfigError) as refusal:
        config(**{field: value})
    assert refusal.value.where == field
    assert refusal.value.remedy


def test_an_unknown_field_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"draft_lenght.*Did you mean draft_length\?"):
        EngineConfig.from_mapping({"model": "m", "draft_lenght": 3})


def test_a_name_that_is_near_to_none_is_refused_with_all_of_them():
    with pytest.raises(ConfigError, match=r"foo.*Known: accelerator, .*, weights\."):
        configure({"foo": 1})


def test_no_model_is_a_refusal():
    with pytest.raises(ConfigError, match="model: no model"):
        EngineConfig.from_mapping({"draft_length": 3})
    with pytest.raises(ConfigError, match="model"):
        EngineConfig(model="  ")


def test_a_mapping_comes_back_as_the_same_config():
    there = config(dtype="float64", draft_length=2, memory_fraction=0.5)
    assert EngineConfig.from_mapping(there.as_mapping()) == there
    assert there.as_mapping()["dtype"] == "float64"


def test_every_field_is_described():
    described = describe_fields()
    assert {d.name for d in described} == set(config().as_mapping())
    assert all(d.sentence.endswith(".") for d in described)
    modes = next(d for d in described if d.name == "replay_mode")
    assert (modes.default, modes.choices) == ("compact", ("off", "mask", "compact"))


def test_an_explicit_value_wins_over_the_environment():
    environ = {"DEEPINFER_USE_NEXTN_DECODE": "2", "DEEPINFER_HF_MODEL_DIR": "there"}
    assert configure({}, environ).draft_length == 2
    assert configure({}, environ).model == "there"
    assert configure({"draft_length": 4, "model": "here"}, environ).draft_length == 4
    assert configure({"draft_length": None}, environ).draft_length == 2


def test_a_value_out_of_range_names_the_variable_it_came_from():
    with pytest.raises(ConfigError) as refusal:
        configure({"model": "m"}, {"DEEPINFER_USE_NEXTN_DECODE": "-3"})
    assert refusal.value.where == "DEEPINFER_USE_NEXTN_DECODE"
    with pytest.raises(ConfigError) as refusal:
        configure({"model": "m", "draft_length": -3}, {"DEEPINFER_USE_NEXTN_DECODE": "-3"})
    assert refusal.value.where == "draft_length"


def test_a_chunk_leaves_room_for_a_row_of_every_sequence_but_is_half_a_step_at_least():
    assert resolve(config(), V41).prefill_chunk_tokens == 2048 - 256
    few = config(max_num_batched_tokens=100, max_num_seqs=80)
    assert resolve(few, V41).prefill_chunk_tokens == 50
    asked = config(prefill_chunk_tokens=64)
    assert resolve(asked, V41).prefill_chunk_tokens == 64


@pytest.mark.parametrize(
    ("values", "able", "decided", "reasons"),
    [
        ({}, True, (True, True), ("while the host plans", "read caches in place")),
        ({}, False, (False, False), ("the device does nothing", "cannot record")),
        ({"overlap": False, "graphs": "off"}, True, (False, False), ("asked for", "asked for")),
    ],
)
def test_overlap_and_graphs_follow_the_device_and_say_why(values, able, decided, reasons):
    kind = AcceleratorKind.CUDA if able else AcceleratorKind.CPU
    told = resolve(config(**values), V41, runs_ahead=able, can_record=able)
    for found in (told, resolve(config(**values), V41, kind)):
        assert (found.overlap, found.graphs) == decided
        for name, reason in zip(("overlap", "graphs"), reasons, strict=True):
            assert reason in found.reasons[name]
