"""Timing decode steps where they are served, on a small model."""

from engine.step_bench import VARIANTS, Load, measure
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
