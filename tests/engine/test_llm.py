from dataclasses import replace

import numpy as np
import pytest

from engine.errors import ConfigError, RequestError
from engine.llm import LLM
from engine.request import FinishReason, SamplingParams
from tests.fakes.hash_model import HashSource
from tests.fakes.sequential import expected_text

GREEDY = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
CONFIG = {"dtype": "float64", "block_tokens": 4, "replay_mode": "off"}


def llm(source=None, **config):
    return LLM("hash", source=source or HashSource(), **{**CONFIG, **config})


def test_every_prompt_gets_one_completion_in_order():
    prompts = [[5], [6, 7, 8], [9] * 20, [5]]
    with llm(max_num_seqs=2) as model:
        found = model.generate(prompts, GREEDY)
    for prompt, completion in zip(prompts, found, strict=True):
        assert list(completion.token_ids) == expected_text(prompt, GREEDY)[0]
        assert completion.prompt_tokens == len(prompt)
        assert completion.finish_reason == FinishReason.LENGTH
        times = completion.token_times_ns
        assert len(times) == 10
        assert list(times) == sorted(times)
        assert completion.arrived_ns <= completion.first_scheduled_ns <= times[0]
        assert times[-1] == completion.finished_ns
        assert completion.accepted_tokens <= completion.proposed_tokens
        assert completion.replica == 0


def test_no_prompts_give_no_completions():
    assert llm().generate([], GREEDY) == []


def test_each_prompt_may_have_its_own_parameters():
    params = [GREEDY, SamplingParams(temperature=0.9, seq_seed=3, max_tokens=4)]
    found = llm().generate([[5], [5]], params)
    assert [len(c.token_ids) for c in found] == [10, 4]
    with pytest.raises(RequestError, match="2 prompts and 1 sampling"):
        llm().generate([[5], [5]], [GREEDY])


def test_a_bad_prompt_is_refused_before_anything_runs():
    model = llm()
    with pytest.raises(RequestError, match="0 to 22"):
        model.generate([[5], [99]], GREEDY)
    assert model.stats().steps == 0
    assert len(model.generate([[5]], GREEDY)) == 1


def test_a_failed_request_keeps_its_place():
    model = llm(HashSource(nan_on=22))
    golden = SamplingParams(temperature=0.0, max_tokens=3, golden_token_ids=(4, 5, 6))
    found = model.generate([[5], [22], [6]], golden)
    assert [c.finish_reason for c in found] == [
        FinishReason.LENGTH,
        FinishReason.ERROR,
        FinishReason.LENGTH,
    ]
    assert "not finite" in found[1].error


class Interrupted:
    """A source whose model is interrupted in its third forward, once."""

    def __init__(self):
        self.forwards = 0

    def facts(self, config):
        return HashSource().facts(config)

    def load(self, resolved, accelerator):
        model = HashSource().load(resolved, accelerator)
        forward = model.forward

        def interrupt(*arguments):
            self.forwards += 1
            if self.forwards == 3:
                raise KeyboardInterrupt
            return forward(*arguments)

        model.forward = interrupt
        return model


def test_an_interrupted_call_leaves_nothing_running():
    model = llm(Interrupted())
    with pytest.raises(KeyboardInterrupt):
        model.generate([[5], [6, 7]], GREEDY)
    stats = model.stats()
    assert (stats.running, stats.waiting, stats.blocks_used) == (0, 0, 0)
    (found,) = model.generate([[6, 7]], GREEDY)
    assert list(found.token_ids) == expected_text([6, 7], GREEDY)[0]


def test_an_unknown_field_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="max_num_seqs"):
        llm(max_num_seq=3)


def test_the_model_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("DEEPINFER_HF_MODEL_DIR", "elsewhere")
    model = LLM(source=HashSource(), **CONFIG)
    assert model.config.model == "elsewhere"


@pytest.mark.parametrize(
    ("prompts", "where"),
    [
        (5, "prompts"),
        ("text", "prompts"),
        ([5], "prompt 0"),
        ([[5], "text"], "prompt 1"),
        ([[5], [1.5]], "prompt 1"),
        ([[True]], "prompt 0"),
        ([[[5]]], "prompt 0"),
    ],
)
def test_what_is_no_list_of_prompts_is_refused_by_its_place(prompts, where):
    with pytest.raises(RequestError) as refusal:
        llm().generate(prompts, GREEDY)
    assert refusal.value.where == where
    assert refusal.value.remedy


@pytest.mark.parametrize("sampling", [5, [5], [None], {"temperature": 1}])
def test_what_is_no_sampling_is_refused(sampling):
    with pytest.raises(RequestError, match="SamplingParams"):
        llm().generate([[5]], sampling)


def test_a_prompt_may_be_an_array():
    (found,) = llm().generate(np.array([[6, 7]], dtype=np.int32), GREEDY)
    assert list(found.token_ids) == expected_text([6, 7], GREEDY)[0]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_stop_string_ends_a_text_with_the_token_that_completes_it(replicas):
    with LLM("nano", max_model_len=256, data_parallel_size=replicas) as model:
        prompt = model.tokenizer.encode("Once upon a time")
        params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
        (whole,) = model.generate([prompt], params)
        pieces = [model.tokenizer.bytes_of(token_id) for token_id in whole.token_ids]
        wanted = (b"".join(pieces[5:9])[-3:]).decode()
        (found,) = model.generate([prompt], replace(params, stop_strings=("\x00", wanted)))
    said = [b"".join(pieces[:n]) for n in range(1, 25)]
    expected = next(n for n, text in enumerate(said, 1) if wanted.encode() in text)
    assert found.token_ids == whole.token_ids[:expected]
    assert found.finish_reason == FinishReason.STOP


def test_stop_strings_without_a_vocabulary_are_refused_by_name():
    params = replace(GREEDY, stop_strings=("x",))
    with llm() as model, pytest.raises(RequestError, match="Use stop_token_ids"):
        model.generate([[5]], params)
