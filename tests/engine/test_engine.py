import itertools
import math
from dataclasses import replace

import pytest

from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import (
    CapacityError,
    CheckpointError,
    ConfigError,
    PromptTooLongError,
    RequestError,
)
from engine.request import FinishReason, Request, SamplingParams
from tests.fakes.hash_model import FACTS, HashSource, expected_logits
from tests.fakes.sequential import expected_text
from tests.fakes.serving import run, text

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


def engine(source=None, **config):
    defaults = {"model": "hash", "dtype": "float64", "block_tokens": 4, "replay_keep_tokens": 8}
    return Engine(
        EngineConfig(**{**defaults, **config}),
        source=source or HashSource(),
        clock_ns=itertools.count().__next__,
    )


def ask(name="a", prompt=(5, 6, 7), **params):
    return Request(
        request_id=name, prompt_token_ids=tuple(prompt), sampling=replace(GREEDY, **params)
    )


def test_an_idle_engine_has_nothing_to_do():
    target = engine()
    assert not target.has_unfinished()
    assert target.step() == []


def test_drafts_are_accepted_and_counted_and_change_nothing():
    plain, drafted = engine(draft_length=0), engine(draft_length=3)
    for target in (plain, drafted):
        target.add_request(ask(max_tokens=40))
    expected, outputs = run(plain), run(drafted)
    assert text(outputs) == text(expected)
    stats = drafted.stats()
    assert 0 < stats.accepted_tokens < stats.proposed_tokens
    assert stats.proposed_tokens == sum(o.proposed for o in outputs)
    assert all(len(o.token_ids) == o.accepted + 1 for o in outputs)
    assert all(o.bonus == o.verify_steps for o in outputs)
    assert stats.steps < plain.stats().steps == 40


def test_outputs_carry_times_and_counts():
    target = engine(draft_length=0)
    target.add_request(ask(max_tokens=3))
    outputs = run(target)
    times = [o.time_ns for o in outputs]
    assert times == sorted(set(times))
    assert outputs[0].arrived_ns < outputs[0].first_scheduled_ns < outputs[0].time_ns
    stats = target.stats()
    assert (stats.prompt_tokens, stats.output_tokens, stats.steps) == (3, 3, 3)


def test_compact_runs_only_the_kept_rows_of_a_prompt_and_says_what_mask_says():
    prompt = [n % 20 + 2 for n in range(30)]
    compact = engine(replay_mode="compact", max_num_batched_tokens=7)
    mask = engine(replay_mode="mask", max_num_batched_tokens=64)
    off = engine(replay_mode="off")
    for target in (compact, mask, off):
        target.add_request(ask(prompt=prompt))
    texts = [text(run(target)) for target in (compact, mask, off)]
    assert texts[0] == texts[1] == expected_text(prompt, GREEDY, keep=8)[0]
    assert texts[2] == expected_text(prompt, GREEDY)[0]
    assert compact.stats().decoder_rows_skipped == 22
    assert mask.stats().decoder_rows_skipped == off.stats().decoder_rows_skipped == 0


def test_kept_rows_are_those_of_the_original_prompt_after_a_preemption():
    target = engine(cache_tokens=32, max_num_seqs=2, admission="greedy")
    prompts = {"a": [n % 20 + 2 for n in range(14)], "b": [n % 7 + 3 for n in range(12)]}
    for name, prompt in prompts.items():
        target.add_request(ask(name, prompt, max_tokens=16))
    outputs = run(target)
    assert target.stats().preemptions > 0
    assert max(o.preemptions for o in outputs if o.request_id == "b") > 0
    for name, prompt in prompts.items():
        expected = expected_text(prompt, replace(GREEDY, max_tokens=16), keep=8, longest=32)[0]
        assert text(outputs, name) == expected


def test_log_probabilities_are_the_model_s_own():
    target = engine()
    target.add_request(ask(max_tokens=5, logprobs=2, temperature=2.0, top_k=3, seq_seed=4))
    outputs = run(target)
    found = [p for o in outputs for p in o.logprobs]
    tokens = [5, 6, 7, *text(outputs)]
    assert [p.token_id for p in found] == tokens[3:]
    for index, entry in enumerate(found):
        logits = expected_logits(tokens[: 3 + index], 0)
        logprobs = logits - _log_sum(logits)
        assert entry.logprob == pytest.approx(logprobs[entry.token_id])
        best = sorted(range(FACTS.vocab_size), key=lambda v: (-logprobs[v], v))[:2]
        assert [token_id for token_id, _ in entry.top] == best


def _log_sum(logits):
    peak = logits.max()
    return peak + math.log(sum(math.exp(value - peak) for value in logits))


@pytest.mark.parametrize("budget", [3, 64])
def test_prompt_log_probabilities_come_once_with_every_row_run(budget):
    prompt = [n % 20 + 2 for n in range(12)]
    target = engine(max_num_batched_tokens=budget)
    target.add_request(ask(prompt=prompt, max_tokens=4, prompt_logprobs=True))
    outputs = run(target)
    assert [o.prompt_logprobs is None for o in outputs] == [False] + [True] * (len(outputs) - 1)
    found = outputs[0].prompt_logprobs
    assert len(found) == 12
    assert found[0] is None
    for position in range(1, 12):
        logits = expected_logits(prompt[:position], 0)
        assert found[position].token_id == prompt[position]
        expected = logits[prompt[position]] - _log_sum(logits)
        assert found[position].logprob == pytest.approx(expected)
    assert text(outputs) == expected_text(prompt, replace(GREEDY, max_tokens=4))[0]


def test_golden_tokens_are_delivered_with_their_log_probabilities():
    target = engine()
    golden = (4, 4, 9, 2, 8)
    target.add_request(ask(max_tokens=5, golden_token_ids=golden, logprobs=0))
    outputs = run(target)
    assert text(outputs) == list(golden)
    found = [p for o in outputs for p in o.logprobs]
    logits = expected_logits([5, 6, 7, 4, 4], 0)
    assert found[2].logprob == pytest.approx(logits[9] - _log_sum(logits))


def test_a_seedless_request_draws_its_seed_from_the_engine_s():
    texts = []
    for seed in (0, 0, 1):
        target = engine(seed=seed)
        for name in "ab":
            target.add_request(ask(name, temperature=5.0))
        outputs = run(target)
        texts.append((text(outputs, "a"), text(outputs, "b")))
    assert texts[0] == texts[1] != texts[2]
    assert texts[0][0] != texts[0][1]


def test_the_context_ends_a_sequence():
    target = engine(max_model_len=9, replay_keep_tokens=None)
    target.add_request(ask(max_tokens=50))
    outputs = run(target)
    assert len(text(outputs)) == 6
    assert outputs[-1].finish_reason == FinishReason.LENGTH


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (ask(prompt=()), RequestError, "empty"),
        (ask(prompt=(3, 23)), RequestError, "0 to 22"),
        (ask(prompt=(-1,)), RequestError, "0 to 22"),
        (ask(prompt=(2,) * 64), PromptTooLongError, "at most 63"),
        (ask(temperature=-1.0), RequestError, "temperature"),
        (ask(stop_token_ids=5), RequestError, "stop_token_ids 5"),
        (ask(prompt=(2.0,)), RequestError, "prompt_token_ids"),
        (ask(prompt=(True,)), RequestError, "prompt_token_ids"),
        (ask(stop_strings=("",)), RequestError, "none empty"),
        (ask(stop_strings="end"), RequestError, "stop_strings"),
        (replace(ask(), priority=1.5), RequestError, "priority 1.5"),
        (replace(ask(), priority=1001), RequestError, "from -1000 to 1000"),
        (replace(ask(), timeout_s=0), RequestError, "timeout_s 0"),
        (replace(ask(), timeout_s=math.inf), RequestError, "timeout_s inf"),
        (replace(ask(), prompt_token_ids=5), RequestError, "prompt_token_ids is 5"),
        (replace(ask(), prompt_token_ids="ab"), RequestError, "prompt_token_ids is 'ab'"),
        (replace(ask(), sampling={}), RequestError, "sampling is {}"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_at_once(request_, error, words):
    target = engine()
    with pytest.raises(error, match=words) as refusal:
        target.add_request(request_)
    assert refusal.value.where == "request a"
    assert not target.has_unfinished()


def test_a_device_failure_ends_the_requests_of_the_step_and_no_others():
    target = engine(HashSource(fail_on=22), max_num_seqs=1, draft_length=0)
    target.add_request(ask("bad", (3, 22)))
    target.add_request(ask("good", golden_token_ids=(4,) * 12))
    outputs = run(target)
    (bad,) = [o for o in outputs if o.request_id == "bad"]
    assert bad.finish_reason == FinishReason.ERROR
    assert "the device fell over" in bad.error
    assert len(text(outputs, "good")) == 12
    assert target.stats().blocks_used == 0


def test_logits_that_are_not_finite_end_their_request_only():
    target = engine(HashSource(nan_on=22))
    target.add_request(ask("bad", (3, 22)))
    target.add_request(ask("good", golden_token_ids=(4,) * 12))
    outputs = run(target)
    (bad,) = [o for o in outputs if o.request_id == "bad"]
    assert bad.finish_reason == FinishReason.ERROR
    assert "not finite" in bad.error
    assert len(text(outputs, "good")) == 12


@pytest.mark.parametrize("field", ["cache_tokens", "max_num_seqs"])
def test_more_memory_than_there_is_is_refused_before_it_is_taken(field):
    with pytest.raises(CapacityError, match=field):
        engine(**{field: 10**13})


def test_start_up_errors_are_typed():
    with pytest.raises(CheckpointError):
        engine(HashSource(refuse=True))
    with pytest.raises(ConfigError, match="draft_length"):
        engine(draft_length=4)
    with pytest.raises(ConfigError, match="block_tokens"):
        engine(block_tokens=3)
    with pytest.raises(ConfigError, match="prefill_chunk_tokens"):
        engine(prefill_chunk_tokens=65, max_num_batched_tokens=64)
    with pytest.raises(ConfigError, match="overlap"):
        engine(overlap=1)
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        Engine(EngineConfig(model="/no/such/place"))
