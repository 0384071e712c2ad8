"""Timing steps with rows of a prompt, on a small model."""

import json

import pytest

from engine import prompt_bench, step_bench
from engine.prompt_bench import VARIANTS, PromptLoad, main, measure
from tests.fakes.causal_source import SmallCausalSource
from tests.fakes.recorder import FakeRecorder

VALUES = {"model": "small", "accelerator": "cpu", "dtype": "float32", "block_tokens": 4}


@pytest.mark.parametrize("decoding", [0, 3])
def test_each_counted_step_runs_one_prompt_with_graphs_and_without(decoding, monkeypatch):
    class Watched(prompt_bench.Watched):
        def __init__(self, kind):
            super().__init__(kind)
            self.recorder = FakeRecorder()

    monkeypatch.setattr(prompt_bench, "Watched", Watched)
    load = PromptLoad(decoding=decoding, prompt_tokens=20, steps=3, rounds=2)
    found = list(measure(SmallCausalSource("llama"), VALUES, load))
    assert [one.variant for one in found] == list(VARIANTS)
    assert [(one.steps, one.replayed_steps) for one in found] == [(6, 6), (6, 0)]
    assert all(one.repeats and not one.other_texts for one in found)
    for one in found:
        assert 0 < one.p50_s["busy"] <= one.p50_s["step"] <= one.p99_s["step"]


def test_the_command_writes_what_it_found(monkeypatch, tmp_path, capsys):
    path = tmp_path / "prompts.json"
    monkeypatch.setattr(step_bench, "CheckpointSource", lambda: SmallCausalSource("qwen3"))
    told = [word for name, value in VALUES.items() for word in ("--set", f"{name}={value}")]
    small = [
        "--decoding",
        "2",
        "--prompt-tokens",
        "9",
        "--steps",
        "2",
        "--rounds",
        "1",
        "--profile",
        "7",
    ]
    assert main([*told, *small, "--json", str(path)]) == 0
    (row,) = json.loads(path.read_text())["prompted"]
    assert row["load"] == {"decoding": 2, "prompt_tokens": 9, "steps": 2, "rounds": 1}
    assert [one["variant"] for one in row["variants"]] == list(VARIANTS)
    told = capsys.readouterr().out
    assert "one prompt of 9 beside 2 that decode" in told
    assert "due to restriction <7>" in told
