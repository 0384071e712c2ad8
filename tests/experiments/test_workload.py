"""What is asked: reproducible, of the lengths stated, and never the same twice."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from experiments.arrival import Horizon, Share
from experiments.errors import WorkloadError
from experiments.feed import feed_of
from tests.fakes.loads import trials
from tests.fakes.workloads import FACTS, items, workload, written


def test_the_same_seed_gives_the_same_prompts_and_another_gives_others():
    # vllm-project/vllm 9080, 10753
    source = workload(kind="synthetic", prompt_tokens=20, output_tokens=3)
    assert items(source, 50) == items(source, 50)
    prompts = {item.prompt_token_ids for salt in "ab" for item in items(source, 50, salt)}
    assert len(prompts) == 100
    assert len({item.seed for salt in "ab" for item in items(source, 50, salt)}) == 100


def test_prompts_have_the_length_asked_for_and_no_reserved_id():
    # sgl-project/sglang 15732: 92 % of random prompts had a wrong length.
    for item in items(workload(kind="synthetic", prompt_tokens=200, output_tokens=3), 20):
        assert len(item.prompt_token_ids) == 200
        assert item.output_tokens == 3
        assert min(item.prompt_token_ids) >= 2
        assert max(item.prompt_token_ids) < 512


def test_lengths_spread_within_bounds_and_do_not_depend_on_the_salt():
    source = workload(kind="synthetic", prompt_tokens=100, output_tokens=10, spread=0.5)
    lengths = [len(item.prompt_token_ids) for item in items(source, 200)]
    assert 50 <= min(lengths) < 60
    assert 140 < max(lengths) <= 150
    assert lengths == [len(item.prompt_token_ids) for item in items(source, 200, "other")]


def test_what_does_not_fit_the_context_is_refused_with_the_remedy():
    with pytest.raises(WorkloadError, match="2050 tokens and the context holds 2048"):
        workload(kind="synthetic", prompt_tokens=2000, output_tokens=50)
    with pytest.raises(WorkloadError, match="Lower scale, or use auto"):
        workload(kind="trace", path="sample:azure", scale=1.0)
    with pytest.raises(WorkloadError, match="not above 0"):
        workload(kind="trace", path="sample:azure", scale=0.0)


@pytest.mark.parametrize("hit", [0.0, 0.5, 0.9])
def test_an_ideal_prefix_cache_hits_the_share_that_was_asked_for(hit):
    # sgl-project/sglang 37359: a controlled hit rate, here by a cache that keeps every prefix.
    source = workload(kind="synthetic", prompt_tokens=100, output_tokens=2, prefix_hit=hit)
    warm = [source.warm_up_item(i, "trial").prompt_token_ids for i in range(2)]
    seen = {prompt[:n] for prompt in warm for n in range(1, 101)}
    hits = total = 0
    for item in items(source, 50, "trial"):
        prompt = item.prompt_token_ids
        known = max((n for n in range(101) if prompt[:n] in seen), default=0)
        hits, total = hits + known, total + len(prompt)
        seen |= {prompt[:n] for n in range(1, 101)}
    assert hits / total == pytest.approx(hit, abs=0.01)
    said = source.description()
    assert said["expected_hit_rate"] == pytest.approx(hit)
    assert said["shared_prefixes"] == (hit > 0)
    assert len({item.prompt_token_ids for item in items(source, 50, "trial")}) == 50
    other = source.item(0, "another trial").prompt_token_ids
    assert other[:5] != source.item(0, "trial").prompt_token_ids[:5]


def test_a_workload_without_a_hit_rate_shares_nothing_and_promises_none():
    source = workload(kind="synthetic", prompt_tokens=100, output_tokens=2)
    assert "expected_hit_rate" not in source.description()
    one, two = (source.item(i, "s").prompt_token_ids for i in range(2))
    assert one[:4] != two[:4]
    assert source.warm_up_item(0, "s").prompt_token_ids != one  # LMCache/LMBenchmark 35
    short = workload(kind="synthetic", prompt_tokens=1, output_tokens=2, prefix_hit=0.9)
    assert short.description()["expected_hit_rate"] == 0.0  # one token is the prompt's own
    with pytest.raises(ValidationError, match="prefix_hit"):
        workload(kind="synthetic", prefix_hit=1.0)


def test_stated_lengths_can_be_filled_with_text(tmp_path):
    path = written(tmp_path, "t.txt", "".join(f"{i:04d}," for i in range(1000)))
    source = workload(kind="synthetic", prompt_tokens=40, output_tokens=3, content=path)
    whole = (tmp_path / "t.txt").read_bytes() * 2
    for item in items(source, 20):
        assert len(item.prompt_token_ids) == 40
        assert bytes(item.prompt_token_ids) in whole
    assert len({item.prompt_token_ids for item in everything(source, 2000)}) == 4000
    assert source.description()["content"] == "text"
    plain = workload(kind="synthetic", prompt_tokens=40, output_tokens=3)
    assert plain.content_hash != source.content_hash


def everything(source, count):
    """What a trial asks, warm-up and all."""
    return [
        item
        for index in range(count)
        for item in (source.item(index, "s"), source.warm_up_item(index, "s"))
    ]


def test_the_warm_up_asks_what_is_not_asked_again_and_keeps_its_place(tmp_path):
    # LMCache/LMBenchmark 35
    rows = "".join(f'{{"prompt": "p{i}"}}\n' for i in range(40))
    path = written(tmp_path, "rows.jsonl", rows)
    for source in (
        workload(kind="text", path=path),
        workload(kind="trace", path="sample:azure"),
        workload(kind="trace", path="sample:mooncake", content="sample:texts", scale=0.016),
    ):
        found = everything(source, 20)
        assert len({item.prompt_token_ids for item in found}) == 40
        assert [item.index for item in found[1::2]] == list(range(20))
        assert len({item.seed for item in found}) == 40


def test_a_grammar_travels_with_every_request_and_is_refused_where_there_is_none():
    fields = {"kind": "synthetic", "prompt_tokens": 4, "output_tokens": 2}
    schema = {"type": "object"}
    for given, so_args in (
        ({"json_schema": schema}, {"schema_type": "json", "schema": '{"type": "object"}'}),
        (
            {"json_schema": '{"type":"object"}'},
            {"schema_type": "json", "schema": '{"type": "object"}'},
        ),
        ({"grammar": 'root ::= "a"'}, {"schema_type": "ebnf", "schema": 'root ::= "a"'}),
    ):
        with pytest.raises(WorkloadError, match="does not have yet") as caught:
            workload(**fields, **given)
        assert next(iter(given)) in caught.value.where
        source = workload(facts=replace(FACTS, takes_grammars=True), **fields, **given)
        assert source.item(3, "s").so_args == so_args
    for given in (
        {"json_schema": "{"},
        {"json_schema": "[]"},
        {"json_schema": 5},
        {"grammar": "x", "json_schema": schema},
    ):
        with pytest.raises(ValidationError):
            workload(**fields, **given)


def test_seeds_and_prompts_do_not_depend_on_who_sends_them():
    # kubernetes-sigs/inference-perf 340: workers shared a seed, and 90 % of prompts were hits.
    (trial,) = trials(load={"kind": "closed", "batch_size": 6})
    whole = asked_by(trial, 1)
    for workers in (2, 3):
        assert asked_by(trial, workers) == whole
    assert len({prompt for prompt, _ in whole.values()}) == len(whole)
    assert len({seed for _, seed in whole.values()}) == len(whole)


def test_the_order_of_a_sweep_changes_nothing_that_is_asked():
    # pegainfer-project/pegainfer 697
    blocks = [{"product": {"batch_size": [1, 2, 4], "draft_length": [0, 5]}}]
    orders = [
        {
            t.trial_id: t.workload.item(7, t.salt)
            for t in trials(axes=blocks, repeats=2, order=order)
        }
        for order in ("blocked", "as_written")
    ]
    assert orders[0] == orders[1]
    assert list(orders[0]) != list(orders[1])


def asked_by(trial, workers):
    found = {}
    for number in range(workers):
        feed = feed_of(
            trial.load,
            trial.workload,
            horizon=Horizon(requests=60),
            salt=trial.salt,
            share=Share(index=number, of=workers),
        )
        for _ in range(60 // workers):
            item = feed.take()
            found[item.index] = (item.prompt_token_ids, item.seed)
    return found


def test_two_workers_trials_and_repeats_never_share_a_prompt():
    # vllm-project/vllm 54227: a fixed seed and a warm cache bent the curve by 2.32.
    found = trials(axes=[{"product": {"batch_size": [1, 2, 4]}}], repeats=2)
    prompts = [
        item.prompt_token_ids
        for trial in found
        for index in range(20)
        for item in (
            trial.workload.item(index, trial.salt),
            trial.workload.warm_up_item(index, trial.salt),
        )
    ]
    assert len(set(prompts)) == len(prompts) == 6 * 40
