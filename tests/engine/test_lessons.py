"""What went wrong in other engines must not go wrong here: one test, or pointer, a lesson.

Leaks on an abort in mid-prefill, wasted steps and pages that were freed twice:
`test_overlap`. Preparations that block or outlive an abort: `test_service_order`. Ties of greedy:
`test_sampling`. Drafts that are verified but were never proposed, replays that change a text:
`test_engine_property`. Of captured steps, padding that leaks, a short context replayed long,
rows of no length, host memory that a copy still reads: `test_graphs`.
"""

from dataclasses import replace

import pytest

from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import PromptTooLongError, RequestError
from engine.llm import LLM
from engine.request import FinishReason, Request, SamplingParams
from tests.fakes.hash_model import HashSource
from tests.fakes.null_device import erratic_engine
from tests.fakes.scheduling import add, scheduler, step
from tests.fakes.sequential import expected_text
from tests.fakes.serving import run, text

GREEDY = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
CONFIG = {"dtype": "float64", "block_tokens": 4, "replay_mode": "off", "overlap": True}


def engine(**values):
    return erratic_engine(EngineConfig(model="hash", **CONFIG, **values), HashSource(), delays=1)


def ask(name="a", prompt=(5, 6, 7), **params):
    sampling = replace(GREEDY, **params)
    return Request(request_id=name, prompt_token_ids=tuple(prompt), sampling=sampling)


def test_an_abort_in_mid_prefill_gives_every_block_back():
    target = engine(max_num_batched_tokens=4, max_num_seqs=1)
    target.add_request(ask(prompt=range(2, 20)))
    target.step()
    target.step()
    assert target.stats().blocks_used > 0
    target.abort("a")
    run(target)
    assert (target.stats().blocks_used, target.stats().running) == (0, 0)


def test_an_aborted_running_request_says_so_in_a_last_output():
    target = engine()
    target.add_request(ask())
    target.step()
    target.step()
    target.abort("a")
    outputs = run(target)
    assert outputs[-1].finish_reason == FinishReason.ABORT
    assert outputs[-1].token_ids == ()


def test_a_bad_prompt_among_good_ones_is_named_and_no_result_shifts():
    prompts = [[5, 6], [5, 99], [7]]
    with LLM("hash", source=HashSource(), **CONFIG) as model:
        with pytest.raises(RequestError, match="vocabulary") as refusal:
            model.generate(prompts, GREEDY)
        assert refusal.value.where.endswith("1")
        found = model.generate([prompts[0], prompts[2]], GREEDY)
    assert [list(c.token_ids) for c in found] == [
        expected_text(prompt, GREEDY)[0] for prompt in (prompts[0], prompts[2])
    ]


def test_a_prompt_that_can_never_fit_is_refused_and_generates_nothing():
    target = engine(cache_tokens=16)
    with pytest.raises(PromptTooLongError, match="at most 15 tokens"):
        target.add_request(ask(prompt=range(2, 18)))
    assert not target.has_unfinished()
    assert target.step() == []
    assert target.stats().output_tokens == 0


def test_a_preempted_request_says_every_token_once():
    target = engine(cache_tokens=24, max_num_seqs=2, admission="greedy", max_model_len=24)
    prompts = {"a": (5, 6, 7), "b": (8, 9, 3)}
    for name, prompt in prompts.items():
        target.add_request(ask(name, prompt, max_tokens=18))
    outputs = run(target)
    assert target.stats().preemptions > 0
    for name, prompt in prompts.items():
        expected, _ = expected_text(prompt, replace(GREEDY, max_tokens=18), longest=24)
        assert text(outputs, name) == expected


def test_an_idle_engine_prefills_at_once_and_a_busy_one_beside_its_decodes():
    s = scheduler(blocks=32)
    add(s, "a", 4)
    assert step(s)[0] == [("a", 0, 4, 0)]
    step(s)
    add(s, "b", 4)
    assert step(s)[0] == [("a", 5, 1, 0), ("b", 0, 4, 0)]


def test_the_youngest_is_preempted_and_not_the_one_with_most_to_lose():
    s = scheduler(blocks=5, max_model_len=20)
    old = add(s, "old", 8, max_tokens=12)
    young = add(s, "young", 4, max_tokens=12)
    while not s.counts.preemptions:
        step(s)
    assert (old.preemptions, young.preemptions) == (0, 1)


def test_two_engines_of_one_process_share_nothing():
    small, large = engine(max_num_seqs=1, cache_tokens=16), engine(max_num_seqs=8)
    for target in (small, large):
        target.add_request(ask("a", max_tokens=8))
        target.add_request(ask("b", (8, 9), max_tokens=8))
    outputs = {small: [], large: []}
    while small.has_unfinished() or large.has_unfinished():
        for target, heard in outputs.items():
            heard += target.step()
            target.check_integrity()
    for heard in outputs.values():
        assert text(heard) == expected_text((5, 6, 7), replace(GREEDY, max_tokens=8))[0]
        assert text(heard, "b") == expected_text((8, 9), replace(GREEDY, max_tokens=8))[0]


def test_more_than_ten_thousand_outputs_fit_in_one_step():
    target = Engine(EngineConfig(model="hash", **CONFIG), source=HashSource())
    count = 12_000
    for i in range(count):
        target.add_request(ask(str(i)))
    for i in range(count):
        target.abort(str(i))
    outputs = target.step()
    assert len({o.request_id for o in outputs}) == count
    assert not target.has_unfinished()


def test_counters_never_go_back():
    target = engine(draft_length=3, max_num_seqs=2)
    for i in range(4):
        target.add_request(ask(str(i), max_tokens=6))
    before = target.stats()
    while target.has_unfinished():
        target.step()
        now = target.stats()
        for name in ("steps", "output_tokens", "prompt_tokens", "proposed_tokens", "plan_s"):
            assert getattr(now, name) >= getattr(before, name)
        before = now
    assert before.output_tokens == 24
