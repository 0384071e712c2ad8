"""Steps with chunks of prompts that are recorded once and replayed, beside what decodes."""

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.core import Engine
from engine.mixed_inputs import MOST_ROWS, chunk_bucket, decode_bucket, row_bucket
from engine.request import FinishReason, Request, SamplingParams
from kernels.ops import REFERENCE
from tests.fakes.causal import DOCUMENTS
from tests.fakes.causal_source import SmallCausalSource
from tests.fakes.late_device import late_engine
from tests.fakes.null_device import erratic_engine
from tests.fakes.recorder import FakeRecorder
from tests.fakes.serving import run, text

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
ROOM = {"model": "small", "dtype": "float64", "max_model_len": 256, "block_tokens": 4}


def config_of(**values):
    return EngineConfig(**{**ROOM, "max_num_seqs": 4, "cache_tokens": 1024, **values})


def ask(name, prompt=(5, 6, 7), **params):
    sampling = replace(GREEDY, **params)
    return Request(request_id=name, prompt_token_ids=tuple(prompt), sampling=sampling)


@lru_cache
def alone(source, prompt, params):
    """What a request says alone, operation by operation."""
    target = Engine(config_of(max_num_seqs=1), source=source)
    target.add_request(Request(request_id="a", prompt_token_ids=prompt, sampling=params))
    return text(run(target))


def expected(request, name="llama"):
    return alone(SmallCausalSource(name), request.prompt_token_ids, request.sampling)


rules = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.0, 0.8]),
    top_k=st.sampled_from([None, 5]),
    max_tokens=st.integers(1, 12),
    min_tokens=st.sampled_from([0, 0, 0, 1]),
    logprobs=st.sampled_from([None, None, None, 1]),
    prompt_logprobs=st.sampled_from([False, False, False, True]),
    ignore_eos=st.booleans(),
    seq_seed=st.integers(0, 9),
)
arrivals = st.lists(
    st.tuples(
        st.lists(st.integers(0, 96), min_size=1, max_size=60).map(tuple),
        rules,
        st.integers(0, 12),  # the step before which it comes
        st.sampled_from([None, None, None, 3]),  # steps after which it is aborted
    ),
    min_size=1,
    max_size=6,
)
schedules = st.fixed_dictionaries(
    {
        "max_num_seqs": st.integers(1, 6),
        "max_num_batched_tokens": st.integers(6, 64),
        "prefill_chunk_tokens": st.sampled_from([None, 3, 5]),
        "block_tokens": st.sampled_from([2, 8]),
        "cache_tokens": st.sampled_from([96, 400]),
        "swap_tokens": st.sampled_from([0, 64]),
        "overlap": st.sampled_from([True, True, False]),
    }
)


def serve(target, arriving):
    """Outputs by request, of requests that come and go at their steps."""
    requests = {
        str(n): Request(request_id=str(n), prompt_token_ids=prompt, sampling=params)
        for n, (prompt, params, _, _) in enumerate(arriving)
    }
    heard = {name: [] for name in requests}
    for step in range(2000):
        for (name, request), (_, _, arrives, aborted) in zip(
            requests.items(), arriving, strict=True
        ):
            if step == arrives:
                target.add_request(request)
            if aborted is not None and step == arrives + aborted:
                target.abort(name)
        for output in target.step():
            heard[output.request_id].append(output)
        target.check_integrity()
        if step > 12 and not target.has_unfinished():
            return requests, heard
    raise AssertionError("the engine does not get done")


def assert_said(requests, heard, name):
    for key, outputs in heard.items():
        assert outputs[-1].error is None
        said = [token for output in outputs for token in output.token_ids]
        whole = expected(requests[key], name)
        is_cut = outputs[-1].finish_reason is FinishReason.ABORT
        assert said == (whole[: len(said)] if is_cut else whole)


@settings(max_examples=max(6, settings().max_examples // 4))
@given(
    name=st.sampled_from(sorted(DOCUMENTS)),
    arriving=arrivals,
    schedule=schedules,
    delays=st.integers(0, 99),
)
def test_replayed_steps_say_what_each_request_says_alone_whatever_the_schedule(
    name, arriving, schedule, delays
):
    recorder = FakeRecorder()
    target = erratic_engine(config_of(**schedule), SmallCausalSource(name), delays, recorder)
    assert_said(*serve(target, arriving), name)
    assert target.stats().blocks_used == 0


@settings(max_examples=max(3, settings().max_examples // 16))
@given(arriving=arrivals, schedule=schedules, delays=st.integers(0, 99))
def test_steps_read_nothing_that_the_host_has_changed_since_it_submitted_them(
    arriving, schedule, delays
):
    config = config_of(**{**schedule, "overlap": True})
    target, _ = late_engine(config, SmallCausalSource("llama"), delays)
    assert_said(*serve(target, arriving), "llama")


def mixed_graphs(recorder, target):
    """Shapes of the recorded steps that have chunks."""
    programs = target._runner._recorded._graphs._programs
    return [key.shape for key, p in programs.items() if p.graph is not None and key.shape.chunks]


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_short_prompts_are_replayed_alone_and_beside_what_decodes(name):
    recorder = FakeRecorder()
    config = config_of(max_num_seqs=12, overlap=False)
    target = erratic_engine(config, SmallCausalSource(name), 0, recorder)
    requests = [ask(str(n), range(3, 9 + 2 * n), max_tokens=24) for n in range(9)]
    outputs, before = [], []
    for request in requests:  # one prompt a step, each beside those that decode
        target.add_request(request)
        before.append(target.stats().replayed_steps)
        outputs += target.step()
    outputs += run(target)
    for request in requests:
        assert text(outputs, request.request_id) == expected(request, name)
    shapes = mixed_graphs(recorder, target)
    assert [(s.sequences, s.chunks, s.chunk_rows, s.context) for s in shapes] == [(8, 2, 32, 256)]
    replayed = [b - a for a, b in pairwise(before)]
    assert replayed == [0, 0, 1, 1, 1, 1, 1, 1]  # alone, once as it is, then recorded


def test_chunks_of_one_prompt_are_replayed_and_padding_is_not_noticed():
    """Chunks of 5 rows in steps of 32, beside one that decodes in a step of 8."""
    recorder = FakeRecorder()
    config = config_of(prefill_chunk_tokens=5, max_num_batched_tokens=6)
    target = erratic_engine(config, SmallCausalSource("qwen3_moe"), 0, recorder)
    caches = target._runner._caches
    for tensor in caches.device.tensors.values():  # whatever padding reads is no number
        tensor[-config.block_tokens :] = float("nan")
    requests = [ask("a", (4, 2), max_tokens=40), ask("b", range(3, 63))]
    for request in requests:
        target.add_request(request)
    outputs = run(target)
    for request in requests:
        assert text(outputs, request.request_id) == expected(request, "qwen3_moe")
    assert mixed_graphs(recorder, target)
    stats = target.stats()
    assert stats.replayed_steps >= stats.steps - 6
    assert stats.prompt_tokens == 62
    assert stats.decoder_rows_run == stats.scheduled_tokens


@pytest.mark.parametrize(
    "params",
    [
        {"logprobs": 2},
        {"prompt_logprobs": True},
        {"golden_token_ids": tuple(range(2, 14))},
        {"min_tokens": 6, "ignore_eos": False},
    ],
)
def test_a_prompt_that_wants_more_than_tokens_is_run_as_it_is(params):
    recorder = FakeRecorder()
    target = erratic_engine(config_of(), SmallCausalSource("llama"), 0, recorder)
    for turn in range(4):
        request = ask(str(turn), **params)
        target.add_request(request)
        assert text(run(target), str(turn)) == expected(request)
    assert mixed_graphs(recorder, target) == []


def test_chunks_too_long_or_too_many_are_run_as_they_are():
    long = [t % 90 for t in range(MOST_ROWS // 2 + 1)]
    room = {"max_model_len": 300, "max_num_batched_tokens": 700, "max_num_seqs": 17}
    for prompts in ([long, long], [(7, n) for n in range(17)]):
        recorder = FakeRecorder()
        target = erratic_engine(config_of(**room), SmallCausalSource("llama"), 0, recorder)
        said = []
        for _ in range(3):
            for number, prompt in enumerate(prompts):
                target.add_request(ask(str(number), prompt, max_tokens=2))
            outputs = run(target)
            said.append([text(outputs, str(number)) for number in range(len(prompts))])
        assert said[0] == said[1] == said[2]
        assert mixed_graphs(recorder, target) == []


def test_a_model_that_cannot_share_out_rows_is_given_no_chunks():
    recorder = FakeRecorder()
    # The definition counts the rows of each expert on the host.
    source = SmallCausalSource("qwen3_moe", ops=REFERENCE)
    target = erratic_engine(config_of(), source, 0, recorder)
    for turn in range(3):
        target.add_request(ask(str(turn)))
        assert text(run(target), str(turn)) == expected(ask(str(turn)), "qwen3_moe")
    assert recorder.recorded == 0


class Refusing(FakeRecorder):
    """A device that can record nothing."""

    def record(self, work):
        self.recorded += 1
        raise RuntimeError("operation not permitted when stream is capturing")


def test_where_recording_fails_steps_run_as_they_are_and_say_the_same():
    recorder = Refusing()
    target = erratic_engine(config_of(), SmallCausalSource("llama"), 0, recorder)
    for turn in range(4):
        target.add_request(ask(str(turn)))
        assert text(run(target), str(turn)) == expected(ask(str(turn)))
    assert recorder.recorded == 2  # one prompt alone, and decoding: not tried again
    assert target.stats().replayed_steps == 0


def test_shapes_are_few():
    assert {chunk_bucket(n) for n in range(1, 17)} == {2, 5, 17}
    assert all(n < chunk_bucket(n) for n in range(1, 17))
    assert {row_bucket(n) for n in range(1, MOST_ROWS + 1)} == {32, 64, 128, 256, 512}
    assert all(n <= row_bucket(n) for n in range(1, MOST_ROWS + 1))
    assert {decode_bucket(n, 256) for n in range(257)} == {0, 8, 32, 128, 256}
    assert all(n <= decode_bucket(n, 256) for n in range(257))
    assert decode_bucket(3, 4) == 4
