"""Conversations: what was said comes back, and the next turn waits for its user."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.request import Request, RequestId, SamplingParams
from experiments.arrival import ClosedArrival, Share
from experiments.errors import PlanError, TargetError, WorkloadError
from experiments.flight import Flight
from experiments.records import TrialState
from experiments.sessions import Conversations, SessionFeed
from experiments.targets.simulated import SimulatedTarget
from experiments.targets.simulated_profile import SimulatedProfile
from experiments.token_counts import Piece
from tests.fakes.loads import asked, measured, trials, values

TURN = [{"name": "s", "kind": "synthetic", "prompt_tokens": 10, "output_tokens": 5}]
PROTOCOL = {"name": "quick", "measured_s": 5.0, "limit_s": 20.0}


class Listening(SimulatedTarget):
    """Keeps every prompt that it was asked, and every answer that it gave."""

    def __init__(self, clock, **profile):
        super().__init__(SimulatedProfile(**profile), clock)
        self.prompts = {}
        self.answers = defaultdict(tuple)

    def submit(self, request):
        self.prompts[request.request_id] = request.prompt_token_ids
        super().submit(request)

    def poll(self, timeout_s):
        found = super().poll(timeout_s)
        for received in found:
            self.answers[received.output.request_id] += received.output.token_ids
        return found


def listened(profile=None, **fields):
    heard = []

    def make(clock):
        heard.append(Listening(clock, **(profile or {})))
        return heard[-1]

    record = measured(make, workloads=TURN, protocol=PROTOCOL, **fields)
    return record, heard[-1]


def by_session(record):
    found = defaultdict(list)
    for request in asked(record):
        found[request.session].append(request)
    return found


def test_a_turn_repeats_all_that_was_said_and_adds_something_new():
    record, heard = listened(load={"kind": "sessions", "concurrency": 3, "turns": 4})
    assert record.state is TrialState.OK, record.reason
    sessions = by_session(record)
    assert len(sessions) > 3
    for turns in sessions.values():
        assert [r.turn for r in turns] == list(range(len(turns)))
        for before, after in pairwise(turns):
            said = heard.prompts[before.request_id] + heard.answers[before.request_id]
            prompt = heard.prompts[after.request_id]
            assert prompt[: len(said)] == said
            assert len(prompt) == len(said) + 10
            assert after.prompt_tokens == len(prompt)


def test_the_next_turn_is_due_a_pause_after_the_answer_before():
    load = {"kind": "sessions", "concurrency": 2, "turns": 3, "think_s": 0.7}
    record, _ = listened(load=load)
    for turns in by_session(record).values():
        for before, after in pairwise(turns):
            assert after.intended_s == pytest.approx(before.ended_s + 0.7, abs=1e-6)
            assert after.sent_s - after.intended_s < 1e-3


def test_drawn_pauses_have_their_mean_and_are_the_same_again():
    load = {
        "kind": "sessions",
        "concurrency": 20,
        "turns": 8,
        "think_s": 0.3,
        "think": "exponential",
    }
    first, again = listened(load=load)[0], listened(load=load)[0]
    pauses = [
        after.intended_s - before.ended_s
        for turns in by_session(first).values()
        for before, after in pairwise(turns)
    ]
    assert sum(pauses) / len(pauses) == pytest.approx(0.3, rel=0.2)
    assert max(pauses) > 2 * min(pauses)
    assert [r.intended_s for r in asked(first)] == [r.intended_s for r in asked(again)]


def test_so_many_conversations_go_on_at_once_and_each_is_replaced():
    record, _ = listened(load={"kind": "sessions", "concurrency": 4, "turns": 3, "think_s": 0.05})
    found = values(record)
    assert found["concurrency_peak"] <= 4
    assert found["sessions_completed"] > 4
    assert found["sessions_failed"] == 0
    assert found["sessions_unfinished"] <= 4
    started = len(by_session(record))
    told = ("completed", "failed", "context_ended", "unfinished")
    assert sum(found[f"sessions_{name}"] for name in told) == started


def test_conversations_begin_at_a_rate():
    record, _ = listened(load={"kind": "sessions", "rate": 4.0, "turns": 2})
    starts = [r for r in asked(record) if r.turn == 0]
    assert len(starts) == 20
    assert all(r.sent_s - r.intended_s < 1e-3 for r in starts)


def test_a_failed_turn_ends_its_session_and_is_counted():
    profile = {"fail_every": 10}
    record, _ = listened(load={"kind": "sessions", "concurrency": 2, "turns": 4}, profile=profile)
    failed = [r for r in asked(record) if r.error is not None]
    assert failed
    sessions = by_session(record)
    assert all(sessions[r.session][-1] is r for r in failed)
    assert values(record)["sessions_failed"] == len(failed)


def test_sessions_known_not_to_fit_are_refused_beforehand():
    load = {"kind": "sessions", "concurrency": 1, "turns": 300}
    with pytest.raises(WorkloadError, match="4500 tokens and the context holds 4096") as caught:
        trials(workloads=TURN, load=load)
    assert "turns" in caught.value.remedy
    with pytest.raises(WorkloadError, match="has no sessions"):
        trials(workloads=TURN, load={"kind": "sessions", "concurrency": 1})
    with pytest.raises(PlanError, match="exactly one of concurrency and rate"):
        trials(load={"kind": "sessions", "turns": 2})
    with pytest.raises(PlanError, match="exactly one of concurrency and rate"):
        trials(load={"kind": "sessions", "turns": 2, "rate": 1.0, "concurrency": 1})


def test_the_end_of_the_context_ends_a_session_whose_lengths_were_not_known(tmp_path):
    path = tmp_path / "p.txt"
    path.write_text("abcdefghij" * 30)
    text = {
        "name": "t",
        "kind": "text",
        "path": str(path),
        "prompt_tokens": 10,
        "output_tokens": 20,
    }
    record = measured(
        workloads=[text],
        simulation={"max_positions": 100},
        load={"kind": "sessions", "concurrency": 2, "turns": 5},
        protocol=PROTOCOL,
    )
    found = values(record)
    assert record.state is TrialState.OK, record.reason
    assert found["sessions_context_ended"] > 0
    assert found["sessions_completed"] == 0
    assert max(r.prompt_tokens + r.requested_output_tokens for r in asked(record)) <= 100
    assert found["error_rate"] == 0


def trace(tmp_path, rows):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [{"name": "m", "kind": "trace", "path": str(path)}]


ROWS = [
    {"session_id": "a", "input_length": 30, "output_length": 5, "timestamp": 0.0},
    {"session_id": "b", "input_length": 20, "output_length": 6, "timestamp": 500.0},
    {"session_id": "a", "input_length": 7, "output_length": 8, "delay": 1000.0},
    {"session_id": "a", "input_length": 3, "output_length": 2, "delay": 200.0},
    {"input_length": 11, "output_length": 2, "timestamp": 600.0},
]


def test_a_trace_of_sessions_is_played_turn_by_turn(tmp_path):
    record = measured(
        workloads=trace(tmp_path, ROWS),
        load={"kind": "trace", "time_scale": 2.0},
        protocol={**PROTOCOL, "measured_requests": 5},
    )
    assert record.state is TrialState.OK, record.reason
    sessions = by_session(record)
    assert [len(sessions[i]) for i in range(3)] == [3, 1, 1]
    first, second, third = sessions[0]
    assert (first.prompt_tokens, second.prompt_tokens, third.prompt_tokens) == (30, 42, 53)
    assert second.intended_s == pytest.approx(first.ended_s + 0.5, abs=1e-6)
    assert third.intended_s == pytest.approx(second.ended_s + 0.1, abs=1e-6)
    assert sessions[1][0].intended_s - first.intended_s == pytest.approx(0.25)
    assert sessions[2][0].intended_s - first.intended_s == pytest.approx(0.3)
    assert record.point.workload["shared_prefixes"] is True


def test_the_sessions_of_a_trace_can_be_kept_in_flight_instead(tmp_path):
    record = measured(
        workloads=trace(tmp_path, ROWS),
        load={"kind": "sessions", "concurrency": 1},
        protocol=PROTOCOL,
    )
    sessions = by_session(record)
    assert [len(sessions[i]) for i in range(6)] == [3, 1, 1, 3, 1, 1]  # from the top again
    assert values(record)["concurrency_peak"] == 1
    later = sessions[3]
    assert later[1].intended_s == pytest.approx(later[0].ended_s + 1.0, abs=1e-6)


def test_a_trace_is_scaled_so_that_its_longest_session_fits(tmp_path):
    rows = [
        {"session_id": "a", "input_length": 3000, "output_length": 500, "timestamp": 0},
        *[{"session_id": "a", "input_length": 3000, "output_length": 500, "delay": 1}] * 3,
    ]
    (trial,) = trials(workloads=trace(tmp_path, rows), load={"kind": "trace"})
    assert trial.workload.session_tokens(None) <= 4096
    assert trial.workload.session_tokens(None) > 4000


def test_the_sample_of_sessions_can_be_played():
    record = measured(
        workloads=[{"name": "m", "kind": "trace", "path": "sample:turns"}],
        load={"kind": "trace"},
        protocol={**PROTOCOL, "measured_requests": 3},
    )
    assert sorted((r.session, r.turn) for r in asked(record)) == [(0, 0), (0, 1), (1, 0)]
    assert values(record)["sessions_completed"] == 2


def test_a_session_without_a_first_instant_is_refused(tmp_path):
    rows = [{"session_id": "a", "input_length": 9, "output_length": 2, "delay": 5}]
    with pytest.raises(WorkloadError, match="first turns have no instants"):
        trials(workloads=trace(tmp_path, rows), load={"kind": "trace"})


@given(
    of=st.integers(1, 5),
    concurrency=st.integers(5, 9),
    turns=st.integers(1, 4),
    fates=st.lists(st.booleans(), min_size=30, max_size=30),
)
@settings(max_examples=40, deadline=None)
def test_however_turns_end_shares_of_a_load_ask_for_the_same_conversations(
    of, concurrency, turns, fates
):
    (trial,) = trials(
        workloads=TURN, load={"kind": "sessions", "concurrency": concurrency, "turns": turns}
    )
    said = Conversations(load=trial.load, workload=trial.workload, salt="s")
    seen = set()
    for share in (Share(index=i, of=of) for i in range(of)):
        feed = SessionFeed(said, ClosedArrival(share.slots(concurrency)), share)
        in_flight, now_s = [], 0.0
        for fate in fates:
            while (due_s := feed.due_s(len(in_flight))) is not None and due_s <= now_s:
                in_flight.append(feed.take())
            assert len(in_flight) <= share.slots(concurrency)
            now_s += 1.0
            item = in_flight.pop(0)
            seen.add((item.session, item.turn, item.index, item.seed))
            feed.ended(flight(item, fate), now_s)
        assert {session % of for session, *_ in seen if session is not None} >= {share.index}
        tally = feed.sessions()
        assert tally.unfinished >= 0
    assert all(index == session * turns + turn for session, turn, index, _ in seen)
    assert len({index for _, _, index, _ in seen}) == len(seen)


def test_an_answer_without_token_ids_cannot_be_repeated():
    (trial,) = trials(workloads=TURN, load={"kind": "sessions", "concurrency": 1, "turns": 2})
    said = Conversations(load=trial.load, workload=trial.workload, salt="s")
    feed = SessionFeed(said, ClosedArrival(1))
    found = flight(feed.take(), well=True)
    found.ids, found.pieces = [], [(0.5, Piece(text="hello"))]
    with pytest.raises(TargetError, match="sends no token ids"):
        feed.ended(found, 1.0)


def flight(item, well):
    found = Flight(
        item=item,
        request=Request(
            request_id=RequestId("r"),
            prompt_token_ids=item.prompt_token_ids,
            sampling=SamplingParams(),
        ),
        intended_s=0.0,
        dispatched_s=0.0,
        sent_s=0.0,
        ids=[5, 6] if well else [],
    )
    found.end("length" if well else "error", None if well else "boom", 1.0)
    return found
