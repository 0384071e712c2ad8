"""Who is served when: priorities, predictions, deadlines, preparations, preemption by swap."""

from concurrent.futures import Future
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.choices import AdmissionMode
from engine.planner import Planner
from engine.request import PRIORITY_HEAD_START_S, FinishReason
from engine.sequence import SequenceState
from tests.fakes.scheduling import EOS, add, results_of, scheduler, shape, step

HEAD_START_NS = PRIORITY_HEAD_START_S * 10**9


def names(planned):
    return [name for name, *_ in planned]


def finish(target, **found):
    outputs = []
    for _ in range(1000):
        outputs += step(target, **found)[1] + target.collect()
        if not target.has_unfinished():
            return outputs
    raise AssertionError("the scheduler does not get done")


def test_a_more_urgent_request_overtakes_those_that_wait():
    s = scheduler(max_num_seqs=1)
    add(s, "runs", 1, max_tokens=2)
    step(s)
    add(s, "calm", 1, arrived_ns=1, max_tokens=1)
    add(s, "urgent", 1, arrived_ns=2, max_tokens=1, priority=1)
    step(s)
    assert names(step(s)[0]) == ["urgent"]
    assert names(step(s)[0]) == ["calm"]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=30, max_size=60),
    st.integers(1, 3),
)
def test_a_stream_of_urgent_requests_starves_nobody(arrivals, levels):
    """One arrives every second, more than one slot can serve; the calm one waits its turn."""
    s = scheduler(max_num_seqs=1, blocks=16)
    add(s, "calm", 2, arrived_ns=0, max_tokens=1)
    blocker = add(s, "blocker", 1, arrived_ns=0, max_tokens=1, priority=3)
    served = []
    for second, (priority, tokens) in enumerate(arrivals):
        add(
            s,
            str(second),
            1,
            arrived_ns=second * 10**9 + 1,
            max_tokens=tokens,
            priority=min(priority, levels),
        )
        served += names(step(s, time_ns=second * 10**9 + 2)[0])
    assert blocker.state is SequenceState.FINISHED
    before = served[: served.index("calm")] if "calm" in served else served
    late = [n for n in before if n.isdigit() and int(n) >= levels * PRIORITY_HEAD_START_S]
    assert late == []
    served += [o.request_id for o in finish(s)]
    assert "calm" in served


def test_a_level_of_priority_is_worth_its_head_start_and_no_more():
    s = scheduler(max_num_seqs=1)
    add(s, "runs", 1, max_tokens=1)
    step(s)
    add(s, "old", 1, arrived_ns=5, max_tokens=1)
    add(s, "in time", 1, arrived_ns=4 + HEAD_START_NS, max_tokens=1, priority=1)
    add(s, "too late", 1, arrived_ns=6 + HEAD_START_NS, max_tokens=1, priority=1)
    assert [names(step(s)[0]) for _ in range(3)] == [["in time"], ["old"], ["too late"]]


def test_the_least_urgent_is_preempted_first():
    s = scheduler(blocks=2, max_model_len=8)
    add(s, "calm", 3, arrived_ns=0, max_tokens=5)
    add(s, "urgent", 3, arrived_ns=1, max_tokens=5, priority=1)
    step(s)
    for _ in range(2):
        step(s)
    assert s.counts.preemptions == 1
    assert names(step(s)[0]) == ["urgent"]


def test_no_more_are_admitted_than_are_certain_to_fit_until_their_end():
    s = scheduler(blocks=4, admission=AdmissionMode.PREDICTED)
    for name in "abc":
        add(s, name, 4, max_tokens=4, ignore_eos=True)
    assert names(step(s)[0]) == ["a", "b"]
    finish(s)
    assert s.counts.preemptions == 0


def test_one_that_is_alone_is_admitted_whatever_is_predicted():
    s = scheduler(blocks=2, max_model_len=8, admission=AdmissionMode.PREDICTED)
    add(s, "a", 1, max_tokens=99)
    assert names(step(s)[0]) == ["a"]


def test_predictions_learn_from_sequences_that_stopped_early():
    s = scheduler(blocks=4, admission=AdmissionMode.PREDICTED)
    add(s, "teacher", 4, max_tokens=12)
    add(s, "waits", 4, max_tokens=12)
    assert names(step(s)[0]) == ["teacher"]
    step(s, token=EOS)  # after 2 of 12 tokens
    add(s, "beside", 4, max_tokens=12)
    assert names(step(s)[0]) == ["waits", "beside"]


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_deadline_ends_a_request_that_waits_or_runs(steps):
    s = scheduler(max_num_seqs=1, blocks=16)
    add(s, "first", 1, max_tokens=9)
    late = add(s, "late", 1, max_tokens=9, deadline_ns=100)
    if steps:
        s.abort("first", 1)
        s.collect()
    for _ in range(steps):
        step(s)
    step(s, time_ns=100)
    (output,) = s.collect()
    assert (output.request_id, output.finish_reason) == ("late", FinishReason.TIMEOUT)
    assert late.state is SequenceState.FINISHED
    finish(s)
    assert s.blocks_used == 0


def test_a_deadline_after_the_end_is_forgotten():
    s = scheduler()
    add(s, "a", 1, max_tokens=1, deadline_ns=100)
    assert finish(s)[-1].finish_reason == FinishReason.LENGTH
    add(s, "a", 1, max_tokens=3)
    step(s, time_ns=200)
    assert s.collect() == []


def test_one_that_is_being_prepared_keeps_nobody_waiting():
    s = scheduler()
    image = Future()
    add(s, "image", 1, max_tokens=1, preparing=image)
    add(s, "text", 1, max_tokens=2)
    assert names(step(s)[0]) == ["text"]
    image.set_result(None)
    assert names(step(s)[0]) == ["text", "image"]


def test_alone_it_is_waited_for():
    s = scheduler()
    image = Future()
    add(s, "image", 1, max_tokens=1, preparing=image)
    assert step(s) == ([], [])
    assert s.preparations() == [image]
    assert s.has_unfinished()


def test_a_preparation_that_fails_ends_its_own_request():
    s = scheduler()
    grammar = Future()
    add(s, "bad", 1, preparing=grammar)
    add(s, "good", 1, max_tokens=1)
    grammar.set_exception(ValueError("no such rule"))
    assert names(step(s)[0]) == ["good"]
    (output,) = s.collect()
    assert output.finish_reason == FinishReason.ERROR
    assert "no such rule" in output.error


def test_an_abort_while_preparing_cancels_it_and_it_never_runs():
    s = scheduler()
    grammar = Future()
    add(s, "a", 1, preparing=grammar)
    assert s.abort("a", 1)
    assert grammar.cancelled()
    assert s.collect()[0].finish_reason == FinishReason.ABORT
    assert step(s) == ([], [])
    assert not s.has_unfinished()


def swapping(**limits):
    """Two sequences that outgrow four blocks, and host memory for some of them."""
    s = scheduler(**{"blocks": 4, "max_model_len": 16, "host_blocks": 4, **limits})
    old, young = add(s, "old", 4, max_tokens=9), add(s, "young", 4, max_tokens=9)
    return s, old, young


def test_a_swapped_sequence_keeps_its_rows_and_goes_on_where_it_was():
    s, old, young = swapping()
    while not s.counts.preemptions:
        step(s)
    assert (young.state, young.host_copy is not None) == (SequenceState.WAITING, True)
    computed = young.computed
    assert computed == len(young.tokens) - 1
    while old.state is not SequenceState.FINISHED:
        step(s)
    assert step(s)[0] == [("young", computed, 1, 0)]
    assert s.host_blocks_used == 0
    finish(s)
    assert (s.counts.swaps_out, s.blocks_used) == (1, 0)


def test_without_room_in_host_memory_it_replays():
    s, _, young = swapping(host_blocks=1)
    while not s.counts.preemptions:
        step(s)
    assert (young.host_copy, young.computed, s.counts.swaps_out) == (None, 0, 0)
    finish(s)


def test_an_abort_of_a_swapped_sequence_frees_its_copy():
    s, *_ = swapping()
    while not s.counts.preemptions:
        step(s)
    assert s.host_blocks_used > 0
    s.abort("young", 1)
    step(s)
    assert s.host_blocks_used == 0
    finish(s)


def test_blocks_of_a_swapped_sequence_stay_until_the_copy_has_settled():
    s, _, young = swapping()
    while not s.counts.preemptions:
        batch = s.schedule(1)
        if not s.counts.preemptions:
            s.settle(batch, results_of(batch), 2)
    (move,) = batch.swaps_out
    assert move.sequence is young
    free = s.limits.blocks - s.blocks_used
    s.check_integrity()
    s.settle(batch, results_of(batch), 2)
    assert s.limits.blocks - s.blocks_used == free + len(move.blocks)
    assert shape(batch) == []  # "old" waits for them


def in_flight_with_a_copy():
    """A scheduler with the step in flight that copies "young" to host memory."""
    s, old, young = swapping()
    while not s.counts.preemptions:
        batch = s.schedule(1)
        if not s.counts.preemptions:
            s.settle(batch, results_of(batch), 2)
    return s, old, young, batch


def test_a_copy_is_kept_until_the_step_that_writes_it_has_settled():
    s, _, _, batch = in_flight_with_a_copy()
    assert s.host_blocks_used
    s.abort("young", 1)
    s.check_integrity()
    assert s.host_blocks_used, "the device has yet to write there"
    s.settle(batch, results_of(batch), 2)
    assert s.host_blocks_used == 0


def test_a_copy_is_kept_until_the_step_that_reads_it_has_settled():
    s, old, _, batch = in_flight_with_a_copy()
    s.settle(batch, results_of(batch), 2)
    while old.state is not SequenceState.FINISHED:
        step(s)
    batch = s.schedule(3)
    assert [move.sequence.request.request_id for move in batch.swaps_in] == ["young"]
    s.check_integrity()
    assert s.host_blocks_used, "the device has yet to read there"
    s.settle(batch, results_of(batch), 4)
    assert s.host_blocks_used == 0


def test_what_is_promised_is_summed_again_only_when_someone_has_come_or_gone():
    s = scheduler(admission=AdmissionMode.PREDICTED, blocks=8, max_num_seqs=8)
    for name in "abc":
        add(s, name, 4, max_tokens=9)  # a, b: 4 blocks each in the end, so c waits
    step(s)
    with patch.object(Planner, "_final_blocks", autospec=True, return_value=4) as asked:
        for steps in (1, 2, 3):
            assert names(step(s)[0]) == ["a", "b"]
            assert asked.call_count == steps, "more than the one that waits was looked at"
        s.abort("a", 2)
        assert names(step(s)[0]) == ["b", "c"]
        assert asked.call_count > 4, "what the others are promised is as it was"
    finish(s)
