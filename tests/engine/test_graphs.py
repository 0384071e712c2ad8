"""Decode steps that are recorded once and replayed: the text is that of every request alone."""

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batch import StepShape
from engine.config import EngineConfig
from engine.decode_inputs import DecodeInputs, StepKey
from engine.graphs import MOST_SHAPES, StepGraphs
from engine.request import FinishReason, Request, SamplingParams
from engine.sampling import ChoiceRule
from tests.engine.test_v41_property import EXACT, alone
from tests.fakes.in_place_ops import IN_PLACE
from tests.fakes.late_device import late_engine
from tests.fakes.null_device import erratic_engine
from tests.fakes.recorder import FakeRecorder, RecordingRefusedError
from tests.fakes.serving import run, text
from tests.fakes.small_source import SmallSource

PLAIN = SmallSource(encoder=(1,), decoder=(1, 1), topk=3)
IN_PLACE_SOURCE = replace(PLAIN, ops=IN_PLACE)
KEEP = PLAIN.window + 6
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


def config_of(**values):
    defaults = {"draft_length": 2, "max_num_seqs": 4, "block_tokens": 4, "cache_tokens": 400}
    return EngineConfig(**{**EXACT, "replay_keep_tokens": KEEP, **defaults, **values})


def engine(recorder, delays=0, **values):
    return erratic_engine(config_of(**values), IN_PLACE_SOURCE, delays, recorder)


def ask(name, prompt=(5, 6, 7), **params):
    sampling = replace(GREEDY, **params)
    return Request(request_id=name, prompt_token_ids=tuple(prompt), sampling=sampling)


def expected(request, keep=KEEP):
    return alone(PLAIN, request.prompt_token_ids, request.sampling, keep)


rules = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.0, 0.8]),
    top_p=st.sampled_from([1.0, 0.9]),
    top_k=st.sampled_from([None, 5]),
    max_tokens=st.integers(2, 30),
    ignore_eos=st.booleans(),
    seq_seed=st.integers(0, 9),
)
arrivals = st.lists(
    st.tuples(
        st.lists(st.integers(0, 46), min_size=1, max_size=20).map(tuple),
        rules,
        st.integers(0, 12),  # the step before which it comes
        st.sampled_from([None, None, None, 3, 9]),  # steps after which it is aborted
    ),
    min_size=1,
    max_size=5,
)
schedules = st.fixed_dictionaries(
    {
        "draft_length": st.sampled_from([0, 1, 3, 5]),
        "replay_mode": st.sampled_from(["off", "mask", "compact"]),
        "max_num_seqs": st.integers(1, 5),
        "max_num_batched_tokens": st.integers(4, 64),
        "block_tokens": st.sampled_from([2, 8]),
        "cache_tokens": st.sampled_from([64, 400]),
        "swap_tokens": st.sampled_from([0, 64]),
        "overlap": st.sampled_from([True, True, False]),
    }
)


def serve(target, arriving):
    """Outputs by request, of requests that come and go at their steps."""
    requests = {str(i): ask(str(i)) for i in range(len(arriving))}
    heard = {name: [] for name in requests}
    for step in range(2000):
        for name, (prompt, params, arrives, aborted) in zip(requests, arriving, strict=True):
            if step == arrives:
                requests[name] = Request(request_id=name, prompt_token_ids=prompt, sampling=params)
                target.add_request(requests[name])
            if aborted is not None and step == arrives + aborted:
                target.abort(name)
        for output in target.step():
            heard[output.request_id].append(output)
        target.check_integrity()
        if step > 12 and not target.has_unfinished():
            return requests, heard
    raise AssertionError("the engine does not get done")


@settings(max_examples=max(6, settings().max_examples // 4))
@given(arriving=arrivals, schedule=schedules, delays=st.integers(0, 99))
def test_replayed_steps_say_what_each_request_says_alone_whatever_the_schedule(
    arriving, schedule, delays
):
    target = engine(FakeRecorder(), delays, **schedule)
    requests, heard = serve(target, arriving)
    for name, outputs in heard.items():
        said = [token for output in outputs for token in output.token_ids]
        keep = 10**6 if schedule["replay_mode"] == "off" else KEEP
        whole = expected(requests[name], keep)
        is_whole = outputs[-1].finish_reason not in (FinishReason.ABORT, FinishReason.TIMEOUT)
        assert said == (whole if is_whole else whole[: len(said)])
    assert target.stats().blocks_used == 0


@settings(max_examples=max(3, settings().max_examples // 16))
@given(arriving=arrivals, schedule=schedules, delays=st.integers(0, 99))
def test_steps_read_nothing_that_the_host_has_changed_since_it_submitted_them(
    arriving, schedule, delays
):
    config = config_of(**{**schedule, "overlap": True})
    target, _ = late_engine(config, IN_PLACE_SOURCE, delays)
    requests, heard = serve(target, arriving)
    keep = 10**6 if schedule["replay_mode"] == "off" else KEEP
    for name, outputs in heard.items():
        assert outputs[-1].error is None
        said = [token for output in outputs for token in output.token_ids]
        whole = expected(requests[name], keep)
        assert said == (
            whole if outputs[-1].finish_reason != FinishReason.ABORT else whole[: len(said)]
        )


@pytest.mark.parametrize("draft_length", [0, 3])
def test_two_steps_in_flight_share_neither_numbers_nor_results(draft_length):
    config = config_of(draft_length=draft_length, max_num_seqs=3)
    target, device = late_engine(config, IN_PLACE_SOURCE, 1)
    requests = [ask(str(n), range(3, 6 + n), max_tokens=20 + n) for n in range(3)]
    for request in requests:
        target.add_request(request)
    outputs = run(target)
    for request in requests:
        assert text(outputs, request.request_id) == expected(request)
    assert device.late > 5
    assert device.recorder.recorded


def test_a_step_that_lets_a_sequence_go_to_host_memory_is_replayed_all_the_same():
    """Its copies are done as late as the device may, when others have its blocks already."""
    config = config_of(
        draft_length=0, max_num_seqs=3, cache_tokens=64, swap_tokens=64, admission="greedy"
    )
    target, device = late_engine(config, IN_PLACE_SOURCE, 3)
    requests = [ask(str(n), range(3, 9 + n), max_tokens=30) for n in range(3)]
    for request in requests:
        target.add_request(request)
    outputs = run(target)
    for request in requests:
        assert text(outputs, request.request_id) == expected(request)
    assert target.stats().swaps_out
    assert device.late_swaps


@pytest.mark.parametrize("draft_length", [0, 3])
def test_a_step_recorded_at_a_short_context_is_right_at_a_long_one(draft_length):
    recorder = FakeRecorder()
    target = engine(recorder, draft_length=draft_length, max_num_seqs=1)
    request = ask("a", (9,), max_tokens=60)
    target.add_request(request)
    assert text(run(target)) == expected(request)
    stats = target.stats()
    assert recorder.recorded <= 2  # with drafts, and the last token without
    assert stats.replayed_steps >= stats.steps - 4


def test_a_wider_context_has_a_step_of_its_own(monkeypatch):
    monkeypatch.setattr("engine.decode_inputs.SHORTEST_CONTEXT", 8)
    recorder = FakeRecorder()
    target = engine(recorder, draft_length=0, max_num_seqs=1)
    request = ask("a", (9, 3), max_tokens=40)
    target.add_request(request)
    assert text(run(target)) == expected(request)
    assert recorder.recorded == 4  # contexts up to 8, 16, 32 and 64


def test_padding_chooses_no_expert_and_writes_no_live_row(monkeypatch):
    """Three sequences in a step of four, one of them near its end with fewer drafts."""
    seen = []

    def watched(x, experts, chosen, weights, shared):
        seen.append(chosen.clone())
        return IN_PLACE.run_experts(x, experts, chosen, weights, shared)

    source = replace(PLAIN, ops=replace(IN_PLACE, run_experts=watched))
    config = EngineConfig(
        **EXACT, replay_keep_tokens=KEEP, draft_length=3, max_num_seqs=4, cache_tokens=400
    )
    target = erratic_engine(config, source, 0, FakeRecorder())
    caches = target._runner._caches
    for name, tensor in caches.device.tensors.items():  # whatever padding reads is no number
        spare = caches.spare.slot if "global" not in name and "index" not in name else None
        rows = len(tensor) // (5 if spare is not None else caches.device.blocks)
        tensor[-rows:] = torch.nan
    requests = [ask(str(i), range(3, 6 + i), max_tokens=9 + i) for i in range(3)]
    for request in requests:
        target.add_request(request)
    outputs = run(target)
    for request in requests:
        assert text(outputs, request.request_id) == expected(request)
    padded = [chosen for chosen in seen if len(chosen) == 16]
    assert padded
    for chosen in padded:
        none = (chosen < 0).all(1)
        assert torch.equal(none, (chosen < 0).any(1))
        assert none[12:].all()
        assert not none[0]
    assert any((chosen[:12] < 0).any() for chosen in padded), "drafts beyond an end are padding"


def test_rows_beyond_an_end_are_written_to_blocks_of_nobody():
    """Rows of the request table are handed on: behind the blocks of one lie those of another."""
    draw = random.Random(2)
    recorder = FakeRecorder()
    target = engine(recorder, draft_length=5, max_num_seqs=3, block_tokens=2, cache_tokens=180)
    requests = [
        ask(
            str(number),
            draw.choices(range(40), k=draw.randint(1, 20)),
            max_tokens=draw.choice([3, 4, 5, 26, 30]),
            seq_seed=number,
        )
        for number in range(8)
    ]
    for request in requests:
        target.add_request(request)
    outputs = run(target)
    assert recorder.recorded
    for request in requests:
        assert text(outputs, request.request_id) == expected(request)


@pytest.mark.parametrize("sequences", [1, 2])
def test_kernels_get_tables_that_lie_in_one_piece(sequences, monkeypatch):
    """A kernel takes rows one after the other; a view of one number spread over many has none."""
    seen = []

    def watched(queries, own, *rest):
        seen.append([t.is_contiguous() for t in (own.slots, own.positions, own.floors)])
        return IN_PLACE.attend_turned(queries, own, *rest)

    def drawn(logits, positions, rules):
        seen.append([t.is_contiguous() for t in (positions, rules.temperatures, rules.seeds)])
        return IN_PLACE.choose_tokens(logits, positions, rules)

    source = replace(PLAIN, ops=replace(IN_PLACE, attend_turned=watched))
    choosing = replace(IN_PLACE, choose_tokens=drawn)
    monkeypatch.setattr("engine.model_runner._choosing_ops", lambda *_: choosing)
    config = EngineConfig(**EXACT, draft_length=3, max_num_seqs=2, replay_keep_tokens=KEEP)
    target = erratic_engine(config, source, 0, FakeRecorder())
    for number in range(sequences):
        target.add_request(ask(str(number), temperature=0.8, seq_seed=number))
    run(target)
    assert seen
    assert all(all(each) for each in seen)


@pytest.mark.parametrize(
    "params",
    [
        {"logprobs": 2},
        {"golden_token_ids": tuple(range(2, 14))},
        {"min_tokens": 12, "ignore_eos": False},
    ],
)
def test_a_request_that_wants_more_than_tokens_is_served_step_by_step(params):
    recorder = FakeRecorder()
    target = engine(recorder)
    request = ask("a", **params)
    target.add_request(request)
    assert text(run(target)) == expected(replace(request, sampling=request.sampling))
    assert recorder.recorded == 0


def test_one_that_must_not_stop_yet_is_recorded_once_it_may():
    recorder = FakeRecorder()
    target = engine(recorder, draft_length=0)
    request = ask("a", min_tokens=4, ignore_eos=False)
    target.add_request(request)
    assert text(run(target)) == expected(request)
    assert recorder.recorded == 1


def test_graphs_beyond_the_budget_push_out_those_used_longest_ago():
    recorder = FakeRecorder(budget=1)
    target = engine(recorder, draft_length=0)
    draw = random.Random(1)
    requests = [ask(str(i), draw.choices(range(40), k=4), max_tokens=6 + 4 * i) for i in range(4)]
    for request in requests:
        target.add_request(request)
    outputs = run(target)
    for request in requests:
        assert text(outputs, request.request_id) == expected(request)
    stats = target.stats()
    assert recorder.recorded >= 3
    assert recorder.forgotten == recorder.recorded - 1
    assert (stats.graphs, stats.graph_bytes) == (1, 1)


def test_keys_that_do_not_fit_together_are_not_recorded_at_every_turn():
    recorder = FakeRecorder(budget=1)
    graphs = StepGraphs(recorder, lambda numbers, key: (numbers + 1,), "cpu")
    for turn in range(400):
        key = StepKey(StepShape(sequences=1, rows=1 + turn % 2, context=8), ChoiceRule.GREEDY, 1)
        (found,) = graphs.run(DecodeInputs(0, key, torch.tensor([turn])))
        assert found.tolist() == [turn + 1]
    assert 4 <= recorder.recorded <= 16
    assert graphs.count == 1


def test_shapes_beyond_the_most_push_out_that_used_longest_ago():
    recorder = FakeRecorder()
    graphs = StepGraphs(recorder, lambda numbers, key: (numbers + 1,), "cpu")
    keys = [
        StepKey(StepShape(sequences=n + 1, rows=1, context=8), ChoiceRule.GREEDY, 1)
        for n in range(MOST_SHAPES + 1)
    ]
    for key in keys:
        for turn in range(2):
            (found,) = graphs.run(DecodeInputs((), key, torch.tensor([turn])))
            assert found.tolist() == [turn + 1]
    assert (graphs.count, recorder.forgotten) == (MOST_SHAPES, 1)
    graphs.run(DecodeInputs((), keys[1], torch.tensor([5])))
    assert graphs.replayed == MOST_SHAPES + 2, "others are kept"


class Failing(FakeRecorder):
    """Breaks off some of its recordings, by number, when all of the work was taken down."""

    def __init__(self, breaks_off):
        super().__init__()
        self.breaks_off = breaks_off
        self.begun = 0

    def record(self, work):
        self.begun += 1
        graph = super().record(work)
        if self.breaks_off(self.begun):
            self.forget(graph)
            raise RuntimeError("operation not permitted when stream is capturing")
        return graph


@pytest.mark.parametrize("draft_length", [0, 3])
@pytest.mark.parametrize(
    ("breaks_off", "some_are_replayed"),
    [(lambda _: True, False), (lambda number: number == 1, True)],
)
def test_where_recording_fails_steps_run_as_they_are_and_say_the_same(
    draft_length, breaks_off, some_are_replayed
):
    recorder = Failing(breaks_off)
    target = engine(recorder, draft_length=draft_length)
    requests = [ask(str(n), range(3, 6 + n), max_tokens=8 + 6 * n) for n in range(3)]
    for request in requests:
        target.add_request(request)
    outputs = run(target)
    for request in requests:
        assert text(outputs, request.request_id) == expected(request)
    stats = target.stats()
    assert (stats.replayed_steps > 0) == some_are_replayed
    assert stats.graphs == recorder.begun - recorder.forgotten
    assert recorder.begun <= 2 * 3, "a shape that failed is not tried again"
    assert stats.blocks_used == 0


def test_graphs_that_are_off_record_nothing_and_need_no_spare_rows():
    recorder = FakeRecorder()
    target = engine(recorder, graphs="off")
    target.add_request(ask("a"))
    assert text(run(target)) == expected(ask("a"))
    assert recorder.recorded == 0
    assert target._runner._caches.spare is None


def test_a_model_that_copies_cache_rows_is_never_given_a_shape():
    recorder = FakeRecorder()
    config = EngineConfig(**EXACT, draft_length=0, replay_keep_tokens=KEEP)
    target = erratic_engine(config, PLAIN, 0, recorder)
    target.add_request(ask("a"))
    assert text(run(target)) == expected(ask("a"))
    assert recorder.recorded == 0


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda x: x.sum().item(), "the host reads a value"),
        (lambda x: x.tolist(), "the host reads a value"),
        (lambda x: bool((x > 0).any()), "the host reads a value"),
        (lambda x: torch.nonzero(x), "a shape follows from values"),
        (lambda x: x[x > 0], "a shape follows from a mask"),
        (lambda x: torch.repeat_interleave(x.long()), "a shape follows from values"),
        (lambda x: x + torch.tensor([1.0, 2.0]), "made of the host's numbers"),
    ],
)
def test_the_recorder_refuses_what_no_device_can_record(work, why):
    x = torch.tensor([1.0, 2.0])
    with pytest.raises(RecordingRefusedError, match=why):
        FakeRecorder().record(lambda: (work(x),))


def test_the_recorder_does_nothing_until_it_replays():
    x, total = torch.ones(2), torch.zeros(2)
    graph = FakeRecorder().record(lambda: (total.add_(x).view(1, 2) * 2,))
    assert total.tolist() == [0, 0]
    x.fill_(3)
    assert graph.replay()[0].tolist() == [[6, 6]]
    assert graph.replay()[0].tolist() == [[12, 12]]
