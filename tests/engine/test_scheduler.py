import subprocess
import sys
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import PromptTooLongError, RequestError
from engine.planner import Planner
from engine.request import FinishReason
from engine.sequence import SequenceState
from engine.step import StepResults
from tests.fakes.scheduling import EOS, add, results_of, scheduler, shape, step


def test_long_prompts_run_in_chunks_beside_decoding_sequences():
    s = scheduler(max_num_batched_tokens=6, prefill_chunk_tokens=4)
    add(s, "a", 2)
    add(s, "b", 10)
    assert step(s)[0] == [("a", 0, 2, 0), ("b", 0, 4, 0)]
    assert step(s)[0] == [("a", 2, 1, 0), ("b", 4, 4, 0)]
    assert step(s)[0] == [("a", 3, 1, 0), ("b", 8, 2, 0)]
    assert step(s)[0] == [("a", 4, 1, 0), ("b", 10, 1, 0)]


@given(others=st.lists(st.integers(1, 20), max_size=4), chunk=st.integers(1, 8))
def test_a_prompt_is_cut_at_its_own_chunks_whatever_runs_beside_it(others, chunk):
    s = scheduler(max_num_batched_tokens=12, prefill_chunk_tokens=chunk, blocks=64, max_num_seqs=5)
    for i, length in enumerate(others):
        add(s, str(i), length, max_tokens=20)
    add(s, "watched", 17)
    cuts = []
    while s.has_unfinished():
        planned, _ = step(s)
        cuts += [first for name, first, *_ in planned if name == "watched" and first < 17]
    assert cuts == list(range(0, 17, chunk))


def test_a_chunk_waits_for_a_step_with_room_for_all_of_it():
    s = scheduler(max_num_batched_tokens=5, prefill_chunk_tokens=4, blocks=16)
    add(s, "old", 4)
    add(s, "long", 12)
    assert step(s)[0] == [("old", 0, 4, 0)]
    assert step(s)[0] == [("old", 4, 1, 0), ("long", 0, 4, 0)]
    add(s, "later", 1)  # does not overtake, though it would fit
    assert step(s)[0] == [("old", 5, 1, 0), ("long", 4, 4, 0)]
    s.abort("old", 2)
    assert step(s)[0] == [("long", 8, 4, 0), ("later", 0, 1, 0)]
    assert step(s)[0] == [("long", 12, 1, 0), ("later", 1, 1, 0)]


def test_drafts_leave_room_for_the_next_chunk_of_a_prompt():
    s = scheduler(max_num_batched_tokens=8, prefill_chunk_tokens=4, draft_length=5, blocks=32)
    add(s, "a", 1, max_tokens=20)
    step(s)
    add(s, "long", 9)
    assert step(s)[0] == [("a", 1, 1, 3), ("long", 0, 4, 0)]


def test_no_more_sequences_run_than_there_are_slots():
    s = scheduler(max_num_seqs=2)
    for name in "abc":
        add(s, name, 1, max_tokens=2)
    assert [name for name, *_ in step(s)[0]] == ["a", "b"]
    assert (s.running, s.waiting) == (2, 1)
    step(s)
    assert step(s)[0] == [("c", 0, 1, 0)]


def test_the_youngest_is_preempted_and_keeps_its_tokens():
    s = scheduler(blocks=3, max_model_len=12)
    old = add(s, "old", 4, max_tokens=8)
    young = add(s, "young", 4, max_tokens=8)
    step(s)
    assert (len(old.blocks), len(young.blocks)) == (1, 1)
    for _ in range(4):  # "old" takes the last block; "young" stalls, it has no one younger
        assert [name for name, *_ in step(s)[0]] == ["old"]
        assert young.state is SequenceState.RUNNING
    step(s)
    assert young.state is SequenceState.WAITING
    assert young.tokens == [2, 3, 4, 5, 9]
    assert (young.computed, young.preemptions, young.slot) == (0, 1, None)
    while old.state is not SequenceState.FINISHED:
        step(s)
    assert step(s)[0] == [("young", 0, 5, 0)]
    assert young.tokens == [2, 3, 4, 5, 9, 9]


def test_drafts_shrink_before_anyone_is_preempted():
    s = scheduler(blocks=2, draft_length=3, max_model_len=8)
    add(s, "a", 3, max_tokens=9)
    add(s, "b", 3, max_tokens=9)
    step(s)
    assert step(s)[0] == [("a", 3, 1, 0), ("b", 3, 1, 0)]
    assert s.counts.preemptions == 0


def test_no_one_s_drafts_keep_another_s_token_waiting():
    s = scheduler(max_num_batched_tokens=8, max_num_seqs=6, draft_length=3, blocks=32)
    for name in "abcdef":
        add(s, name, 1, max_tokens=20)
    step(s)
    expected = [(name, 1, 1, 1 if name in "ab" else 0) for name in "abcdef"]
    assert step(s)[0] == expected


def test_drafts_are_dealt_in_rounds():
    s = scheduler(max_num_batched_tokens=9, draft_length=3, blocks=32)
    add(s, "a", 1, max_tokens=3)  # has room for one draft only
    for name in "bcd":
        add(s, name, 1, max_tokens=20)
    step(s)
    assert [drafts for *_, drafts in step(s)[0]] == [1, 2, 1, 1]


@given(
    prompts=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    draft_length=st.integers(0, 5),
    spare=st.integers(0, 12),
    accepted=st.integers(0, 5),
)
def test_every_decoding_sequence_advances_in_every_step(prompts, draft_length, spare, accepted):
    s = scheduler(
        max_num_batched_tokens=len(prompts) + spare,
        max_num_seqs=len(prompts),
        draft_length=draft_length,
        blocks=64,
    )
    for i, length in enumerate(prompts):
        add(s, str(i), length, max_tokens=20)
    while s.has_unfinished():
        decoding = {q.request.request_id for q in s._queues.running if q.is_decoding}
        planned, outputs = step(s, accepted=accepted)
        assert decoding <= {output.request_id for output in outputs}
        assert sum(known + drafts for _, _, known, drafts in planned) <= len(prompts) + spare


def one_by_one(planner, decoding, plan):
    planner._place_all(dict.fromkeys(decoding, 1), plan)


@given(
    prompts=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12)), min_size=1, max_size=6),
    blocks=st.integers(4, 24),
    draft_length=st.integers(0, 3),
    budget=st.integers(6, 16),
)
def test_placing_all_at_once_comes_to_placing_one_after_the_other(
    prompts, blocks, draft_length, budget
):
    plans = []
    for place in (Planner._place_decoding, one_by_one):
        with patch.object(Planner, "_place_decoding", place):
            s = scheduler(blocks=blocks, draft_length=draft_length, max_num_batched_tokens=budget)
            for number, (prompt, length) in enumerate(prompts):
                if prompt + length <= min(s.limits.longest_sequence, 4 * blocks):
                    add(s, str(number), prompt, max_tokens=length)
            planned = []
            while s.has_unfinished():
                batch = s.schedule(1)
                planned.append(
                    [
                        (*line, e.blocks)
                        for line, e in zip(shape(batch), batch.sequences, strict=True)
                    ]
                )
                s.settle(batch, results_of(batch, accepted=1), 2)
                s.check_integrity()
        plans.append(planned)
    assert plans[0] == plans[1]


def test_drafts_stop_short_of_the_last_token():
    s = scheduler(draft_length=5)
    add(s, "a", 2, max_tokens=5)
    step(s)
    assert step(s, accepted=1)[0] == [("a", 2, 1, 3)]
    planned, outputs = step(s, accepted=1)
    assert planned == [("a", 4, 1, 1)]
    assert outputs[0].finish_reason == FinishReason.LENGTH
    assert (outputs[0].proposed, outputs[0].accepted, outputs[0].verify_steps) == (1, 1, 1)


def test_a_stop_token_inside_accepted_drafts_drops_what_follows():
    s = scheduler(draft_length=3)
    sequence = add(s, "a", 2, stop_token_ids=(7,))
    step(s)
    batch = s.schedule(1)
    (output,) = s.settle(batch, StepResults.of_tokens([(5, 7, 8, 6)], [3]), 2)
    assert output.token_ids == (5, 7)
    assert (output.proposed, output.accepted, output.bonus) == (3, 2, 0)
    assert output.finish_reason == FinishReason.STOP
    assert sequence.tokens == [2, 3, 9, 5, 7]
    assert s.blocks_used == 0


def test_ignored_eos_does_not_stop_and_min_tokens_hold_it_off():
    s = scheduler()
    add(s, "ignores", 1, ignore_eos=True, max_tokens=3)
    add(s, "waits", 1, min_tokens=2, max_tokens=5)
    reasons = {"ignores": [], "waits": []}
    while s.has_unfinished():
        for output in step(s, token=EOS)[1]:
            reasons[output.request_id].append(output.finish_reason)
    assert reasons["ignores"] == [None, None, FinishReason.LENGTH]
    assert reasons["waits"] == [None, None, FinishReason.STOP]


def test_a_prompt_without_room_for_one_token_is_refused():
    s = scheduler(blocks=2, max_model_len=32)
    add(s, "fits", 7)
    with pytest.raises(PromptTooLongError, match=r"8 tokens.*at most 7"):
        add(s, "long", 8)
    s.check_integrity()


def test_an_id_in_use_is_refused():
    s = scheduler()
    add(s, "a", 1)
    with pytest.raises(RequestError, match="in use"):
        add(s, "a", 1)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_an_aborted_sequence_gives_everything_back_and_says_so_once(steps):
    s = scheduler(max_num_batched_tokens=4)
    add(s, "a", 6)
    for _ in range(steps):
        step(s)
    assert s.abort("a", 5)
    s.check_integrity()
    assert s.blocks_used == 0
    assert s.has_unfinished()
    (output,) = s.collect()
    assert (output.finish_reason, output.token_ids) == (FinishReason.ABORT, ())
    assert not s.has_unfinished()
    assert not s.abort("a", 6)


def test_a_result_for_a_sequence_aborted_meanwhile_is_dropped():
    s = scheduler()
    add(s, "a", 2)
    batch = s.schedule(1)
    s.abort("a", 2)
    assert s.settle(batch, StepResults.of_tokens([(9,)], [0]), 3) == []


def test_the_scheduler_imports_no_torch():
    code = "import sys, engine.scheduler, engine.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
