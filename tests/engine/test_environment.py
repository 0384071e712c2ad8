import logging

import pytest

from engine import environment
from engine.config import configure
from engine.environment import read_fields
from engine.errors import ConfigError


@pytest.fixture(autouse=True)
def _nothing_warned_of_yet():
    environment._warn_once.cache_clear()


def test_aliases_are_read_by_type():
    found = read_fields(
        {
            "DEEPINFER_HF_MODEL_DIR": "/checkpoints/flash",
            "DEEPINFER_ACCELERATOR": "nvidia",
            "DEEPINFER_USE_NEXTN_DECODE": "0",
            "DEEPINFER_MAX_BACKTRACKING_TOKENS": "12",
            "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE": "mask",
            "DEEPINFER_YOCO_PREFILL_KEEP_TOKENS": "160",
            "PATH": "/bin",
        }
    )
    assert found.values == {
        "model": "/checkpoints/flash",
        "accelerator": "cuda",
        "draft_length": 0,
        "max_backtrack_tokens": 12,
        "replay_mode": "mask",
        "replay_keep_tokens": 160,
    }


def test_empty_values_and_deepinfer_s_zero_keep_count_as_not_set():
    environ = {"DEEPINFER_USE_NEXTN_DECODE": "", "DEEPINFER_YOCO_PREFILL_KEEP_TOKENS": "0"}
    assert read_fields(environ).values == {}


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError) as refusal:
        read_fields({"DEEPINFER_USE_NEXTN_DECOD": "3"})
    assert refusal.value.where == "DEEPINFER_USE_NEXTN_DECOD"
    assert "DEEPINFER_USE_NEXTN_DECODE" in refusal.value.remedy


@pytest.mark.parametrize(
    ("variable", "value"),
    [("DEEPINFER_USE_NEXTN_DECODE", "five"), ("DEEPINFER_ACCELERATOR", "ascend")],
)
def test_a_bad_value_names_its_variable(variable, value):
    with pytest.raises(ConfigError, match=variable):
        read_fields({variable: value})


def test_a_known_name_without_counterpart_warns_and_is_named(caplog):
    with caplog.at_level(logging.WARNING):
        configure({"model": "m"}, {"DEEPINFER_BATCH_INVARIANT": "1"})
    assert "DEEPINFER_BATCH_INVARIANT" in caplog.text


def test_each_name_without_counterpart_is_warned_of_once_a_process(caplog):
    names = [f"DEEPINFER_{name}" for name in ("GC_INTERVAL_STEP", "CPP_LOG_LEVEL")]
    with caplog.at_level(logging.WARNING):
        for environ in ({names[0]: "1"}, {names[0]: "1"}, dict.fromkeys(names, "1")):
            configure({"model": "m"}, environ)
    warned = [record.args[0] for record in caplog.records]
    assert warned == names


def test_the_process_environment_is_read_at_the_call(monkeypatch):
    monkeypatch.setenv("DEEPINFER_USE_NEXTN_DECODE", "3")
    assert configure({"model": "m"}).draft_length == 3
    monkeypatch.delenv("DEEPINFER_USE_NEXTN_DECODE")
    assert configure({"model": "m"}).draft_length is None


@pytest.mark.parametrize(("text", "overlap"), [("0", False), ("False", False), ("1", True)])
def test_zero_overhead_scheduling_is_our_overlap(text, overlap):
    environ = {"DEEPINFER_ZERO_OVERHEAD_SCHEDULING": text}
    assert configure({"model": "m"}, environ).overlap is overlap
