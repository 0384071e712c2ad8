"""The loop on a device that runs ahead: what the host does meanwhile, and what it may not do."""

import random
from dataclasses import replace

import pytest

from engine.accelerator.null import NullAccelerator, VirtualClock
from engine.config import EngineConfig
from engine.core import Engine
from engine.request import FinishReason, Request, SamplingParams
from tests.fakes.hash_model import HashSource
from tests.fakes.null_device import erratic_engine
from tests.fakes.scheduling import add, results_of, scheduler, shape
from tests.fakes.sequential import expected_text
from tests.fakes.serving import run, text

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


class Watched(NullAccelerator):
    """Notes in which order the host submits and waits."""

    def __init__(self, clock):
        super().__init__(clock, step_seconds=lambda: 0.01)
        self.events = []

    def submit(self, work):
        number = sum(what == "submit" for what, _ in self.events)
        self.events.append(("submit", number))
        ticket = super().submit(work)
        return _Watched(self, ticket, number)


class _Watched:
    def __init__(self, device, ticket, number):
        self.device, self.ticket, self.number = device, ticket, number

    def wait(self):
        self.device.events.append(("wait", self.number))
        return self.ticket.wait()


def config(**values):
    sizes = {"block_tokens": 4, "replay_mode": "off", "overlap": True}
    defaults = {"model": "hash", "dtype": "float64", **sizes}
    return EngineConfig(**{**defaults, **values})


def engine(source=None, **values):
    clock = VirtualClock(tick_ns=1000)
    device = Watched(clock)
    source = source or HashSource()
    return Engine(config(**values), source=source, clock_ns=clock, accelerator=device), device


def ask(name="a", prompt=(5, 6, 7), **params):
    sampling = replace(GREEDY, **params)
    return Request(request_id=name, prompt_token_ids=tuple(prompt), sampling=sampling)


def test_a_step_is_launched_before_the_one_before_it_is_read():
    target, device = engine(draft_length=0)
    target.add_request(ask(max_tokens=4))
    outputs = run(target)
    assert text(outputs) == expected_text((5, 6, 7), replace(GREEDY, max_tokens=4))[0]
    assert device.events == [
        ("submit", 0),
        ("submit", 1),
        ("wait", 0),
        ("submit", 2),
        ("wait", 1),
        ("submit", 3),
        ("wait", 2),
        ("wait", 3),
    ]


def test_without_overlap_the_same_stages_run_in_line():
    target, device = engine(draft_length=0, overlap=False)
    target.add_request(ask(max_tokens=3))
    outputs = run(target)
    assert text(outputs) == expected_text((5, 6, 7), replace(GREEDY, max_tokens=3))[0]
    assert [what for what, _ in device.events] == ["submit", "wait"] * 3


def test_an_end_that_is_certain_wastes_nothing():
    target, _ = engine(draft_length=0)
    for name in "abc":
        target.add_request(ask(name, max_tokens=5))
    run(target)
    assert (target.stats().wasted_steps, target.stats().steps) == (0, 5)


@pytest.mark.parametrize("draft_length", [0, 3])
def test_a_stop_is_seen_one_step_late_and_its_step_is_dropped(draft_length):
    full, _ = expected_text((5, 6, 7), GREEDY)
    target, _ = engine(draft_length=draft_length)
    target.add_request(ask(stop_token_ids=(full[6],)))
    outputs = run(target)
    assert text(outputs) == full[: full.index(full[6]) + 1]
    assert [o.finished for o in outputs] == [False] * (len(outputs) - 1) + [True]
    assert target.stats().wasted_steps == 1
    assert target.stats().blocks_used == 0


def test_blocks_of_an_ended_sequence_stay_until_its_step_in_flight_has_settled():
    s = scheduler()
    add(s, "a", 2, stop_token_ids=(7,))
    first = s.schedule(1)
    second = s.schedule(1)
    assert (shape(second), second.sequences[0].is_ahead) == ([("a", 2, 1, 0)], True)
    (output,) = s.settle(first, results_of(first, token=7), 2)
    assert output.finish_reason == FinishReason.STOP
    assert s.blocks_used == 1
    s.check_integrity()
    assert s.settle(second, results_of(second), 3) == []
    assert (s.blocks_used, s.counts.wasted_steps) == (0, 1)


def test_a_freed_block_under_a_step_in_flight_is_found():
    s = scheduler()
    sequence = add(s, "a", 2)
    s.schedule(1)
    *sequence.blocks, freed = sequence.blocks  # another list, as where blocks are given back
    s._holdings.blocks.release(freed)
    with pytest.raises(AssertionError, match="in flight was freed"):
        s.check_integrity()


def test_a_leak_is_found_when_the_engine_falls_idle():
    target, _ = engine(draft_length=0)
    target.add_request(ask(max_tokens=2))
    target._scheduler._holdings.blocks.take(1)
    with pytest.raises(AssertionError, match="leaked"):
        while target.has_unfinished():
            target.step()


def test_lengths_are_optimistic_until_rejections_are_known():
    s = scheduler(draft_length=3, blocks=16)
    sequence = add(s, "a", 2, max_tokens=20)
    first = s.schedule(1)
    s.settle(first, results_of(first), 2)
    verify = s.schedule(3)
    after = s.schedule(3)
    assert shape(verify) == [("a", 2, 1, 3)]
    assert shape(after) == [("a", 6, 1, 3)]  # as if all three drafts and the bonus stood
    s.settle(verify, results_of(verify, accepted=1), 4)
    s.check_integrity()
    assert (len(sequence.tokens), sequence.most_tokens, sequence.computed) == (5, 9, 8)
    s.settle(after, results_of(after, accepted=0), 5)
    assert (len(sequence.tokens), sequence.most_tokens, sequence.computed) == (6, 6, 5)


@pytest.mark.parametrize("steps", range(6))
def test_an_abort_at_any_moment_leaks_nothing_and_disturbs_no_one(steps):
    target, _ = engine(max_num_batched_tokens=8, max_num_seqs=2)
    long = tuple(n % 20 + 2 for n in range(15))
    target.add_request(ask("gone", long))
    target.add_request(ask("stays"))
    outputs = []
    for _ in range(steps):
        outputs += target.step()
    assert target.abort("gone")
    target.check_integrity()
    outputs += run(target)
    assert text(outputs, "stays") == expected_text((5, 6, 7), GREEDY)[0]
    last = [o for o in outputs if o.request_id == "gone"][-1]
    assert last.finish_reason == FinishReason.ABORT
    said = text(outputs, "gone")
    assert said == expected_text(long, GREEDY)[0][: len(said)]
    assert target.stats().blocks_used == 0


def test_a_failed_step_ends_its_requests_and_those_in_flight_behind_it_and_no_others():
    target, _ = engine(HashSource(fail_on=22), max_num_seqs=1, draft_length=0)
    target.add_request(ask("bad", (3, 22)))
    target.add_request(ask("good"))
    outputs = run(target)
    (bad,) = [o for o in outputs if o.request_id == "bad"]
    assert bad.finish_reason == FinishReason.ERROR
    assert "the device fell over" in bad.error
    assert text(outputs, "good") == expected_text((5, 6, 7), GREEDY)[0]
    assert target.stats().blocks_used == 0


def test_a_step_that_continues_a_failed_one_does_not_run():
    """Else it would read tokens that were never written."""
    target, _ = engine(HashSource(fail_on=22), draft_length=0)
    target.add_request(ask("bad", (3, 22)))
    target.step()
    target.add_request(ask("beside"))
    outputs = run(target)
    reasons = {o.request_id: (o.finish_reason, o.error) for o in outputs if o.finished}
    assert "the device fell over" in reasons["bad"][1]
    assert "the step before it failed" in reasons["beside"][1]
    target.add_request(ask("after"))
    assert text(run(target), "after") == expected_text((5, 6, 7), GREEDY)[0]


def test_a_bug_in_a_step_is_raised_and_later_requests_are_served(monkeypatch):
    target, _ = engine(draft_length=0)
    target.add_request(ask("a"))
    monkeypatch.setattr(target._runner, "launch", lambda batch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        target.step()
    monkeypatch.undo()
    outputs = run(target)
    assert [o.finish_reason for o in outputs] == [FinishReason.ERROR]
    target.add_request(ask("b"))
    assert text(run(target), "b") == expected_text((5, 6, 7), GREEDY)[0]


def many(count):
    """Requests through a pool that holds fifty, with stops, drafts, aborts and preemptions."""
    draw = random.Random(count)
    values = {
        "max_num_seqs": 12,
        "max_num_batched_tokens": 48,
        "cache_tokens": 50 * 8,
        "block_tokens": 4,
        "max_model_len": 24,
        "draft_length": 2,
        "swap_tokens": 64,
        "admission": "greedy",
    }
    target = erratic_engine(config(**values), HashSource(), delays=3)
    ended, added = {}, 0
    while len(ended) < count:
        while added < count and added - len(ended) < 50:
            prompt = draw.choices(range(23), k=draw.randint(1, 12))
            params = {"max_tokens": draw.randint(1, 8), "ignore_eos": False}
            target.add_request(ask(str(added), prompt, **params))
            added += 1
        if draw.random() < 0.05:
            target.abort(str(draw.randrange(max(0, added - 50), added)))
        for output in target.step():
            if output.finished:
                assert output.request_id not in ended, "a request ended twice"
                ended[output.request_id] = output.finish_reason
        target.check_integrity()
    run(target)
    return target, ended


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.full)])
def test_pools_end_as_they_began_however_many_requests_pass(count):
    target, ended = many(count)
    stats = target.stats()
    assert set(ended.values()) >= {FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT}
    assert FinishReason.ERROR not in ended.values()
    assert (stats.blocks_used, stats.host_blocks_used, stats.running, stats.waiting) == (0,) * 4
    assert 0 < stats.wasted_steps <= count
