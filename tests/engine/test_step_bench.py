"""Timing decode steps where they are served, on a small model."""

import json

import pytest

from engine import step_bench
from engine.step_bench import VARIANTS, Found, Load, main, measure
from tests.fakes.small_source import SmallSource


def test_every_variant_is_timed_over_as_many_steps_and_says_the_same():
    values = {"model": "small", "accelerator": "cpu", "draft_length": 1, "block_tokens": 4}
    load = Load(requests=2, prompt_tokens=5, steps=3, rounds=2)
    found = list(measure(SmallSource(encoder=(1,), decoder=(1, 1)), values, load))
    assert [one.variant for one in found] == list(VARIANTS)
    assert len({one.text for one in found}) == 1
    assert all(one.repeats and not one.other_texts for one in found)
    for one in found:
        assert (one.steps, one.replayed_steps) == (6, 0)
        assert one.tokens_per_s > 0
        assert 0 <= one.idle_share < 1
        inner = sum(one.p50_s[stage] for stage in ("plan", "launch", "wait", "settle"))
        assert inner > 0
        assert one.p50_s["busy"] < one.p99_s["step"]
        assert set(one.p50_s) == set(one.p99_s)


def found(**changes):
    plain = {"variant": "overlap=on graphs=auto", "steps": 1, "replayed_steps": 0, "text": "abc",
             "tokens_per_s": 1.0, "repeats": True, "other_texts": 0, "p50_s": {"step": 1e-3},
             "p99_s": {"step": 1e-3}, "idle_share": 0.0}  # fmt: skip
    return Found(**{**plain, **changes})


@pytest.fixture
def measured(monkeypatch):
    """Notes which loads are measured; a load of 3 requests is cut short."""
    loads = []

    def fake(source, engine, load, variants):
        if load.requests == 3:
            raise KeyboardInterrupt
        loads.append((engine["draft_length"], load.requests))
        yield found()

    monkeypatch.setattr(step_bench, "measure", fake)
    return loads


def arguments(path, *requests):
    asked = [word for count in requests for word in ("--requests", str(count))]
    return ["--set", "accelerator=cpu", "--draft-length", "0", *asked, "--json", str(path)]


def test_a_bench_that_is_cut_short_leaves_the_loads_that_it_ended(measured, tmp_path):
    path = tmp_path / "steps.json"
    with pytest.raises(KeyboardInterrupt):
        main(arguments(path, 1, 2, 3))
    served = json.loads(path.read_text())["served"]
    assert [row["load"]["requests"] for row in served] == [1, 2]
    assert served[0]["engine"] == {"model": "nano", "accelerator": "cpu", "draft_length": 0}


def test_loads_of_an_earlier_document_are_left_out(measured, tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    assert main(arguments(first, 1, 2)) == 0
    assert main([*arguments(second, 1, 2, 4), "--beside", str(first)]) == 0
    assert measured == [(0, 1), (0, 2), (0, 4)]
    assert [row["load"]["requests"] for row in json.loads(second.read_text())["served"]] == [4]


@pytest.mark.parametrize(
    ("changes", "options", "code"),
    [
        ({}, [], 0),
        ({"other_texts": 1}, [], 1),
        ({"other_texts": 1}, ["--may-turn"], 0),
        ({"repeats": False}, ["--may-turn"], 1),
    ],
)
def test_the_exit_code_says_whether_the_texts_agree(monkeypatch, tmp_path, changes, options, code):
    monkeypatch.setattr(step_bench, "measure", lambda *_: iter([found(**changes)]))
    path = tmp_path / "a.json"
    assert main([*arguments(path, 1), *options]) == code
    beside = [*arguments(tmp_path / "b.json", 1), *options, "--beside", str(path)]
    assert main(beside) == code
