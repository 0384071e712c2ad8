"""Several client processes and one load: shares, one clock, and a client that dies."""

import os
import signal
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest

from experiments.arrival import Horizon, Share
from experiments.clients import ClientPool
from experiments.clock import SystemClock
from experiments.errors import PlanError, SkipRequestedError, TargetError
from experiments.feed import feed_of
from experiments.gates_client import CLIENT_DIED
from experiments.load import Phase
from experiments.load_checks import check_clients
from experiments.load_runner import load_runner
from experiments.load_specs import BatchLoad, ClosedLoad, RateLoad
from experiments.measurement import succeeded
from experiments.prepare import prepare
from experiments.targets.null_server import Answer, at_once
from experiments.targets.openai_http import HttpTarget, client_factory
from experiments.watched import watched
from experiments.workload_specs import SyntheticSpec
from tests.fakes.openai_server import Say, acts, answering, serving, spec

WORKLOAD = SyntheticSpec(name="s", kind="synthetic", prompt_tokens=8, output_tokens=4)


def phase(load, facts, workload, seconds, count, share):
    made = prepare(workload, facts, list)
    feed = feed_of(
        load, made, horizon=Horizon(requests=count, measured_s=seconds), salt="x", share=share
    )
    return Phase(
        name="p", feed=feed, max_requests=count, measured_s=seconds, limit_s=seconds, drain_s=5.0
    )


def phase_of(server, load, *, seconds=1.0, workload=WORKLOAD, count=10_000):
    facts = HttpTarget(spec(server.url)).describe({})
    return partial(phase, load, facts, workload, seconds, count)


@pytest.fixture(scope="module")
def pools():
    """One pool a number of clients for all tests: a process takes a second to start."""
    made = {n: ClientPool(client_factory(spec()), n) for n in (1, 2)}
    yield made
    for pool in made.values():
        pool.close()


@pytest.fixture
def run(pools):
    """Run a phase by so many clients on a server."""
    clock = SystemClock()

    def run_on(server, clients, asked):
        return pools[clients].run(asked, clock.now_ns(), clock.now_ns, server.url)

    return run_on


def test_the_shares_of_a_closed_load_never_exceed_the_whole(run):
    with serving(answering(Say(0.02, 1), Say(0.02, 3))) as server:
        result = run(server, 2, phase_of(server, ClosedLoad(batch_size=7)))
        assert server.peak_in_flight == 7
        assert {r.worker for r in result.requests} == {0, 1}
        assert all(map(succeeded, result.requests))
        assert server.requests == len(result.requests)


def test_clients_send_what_one_client_would_at_the_same_instants(run):
    found = {}
    for clients in (1, 2):
        with serving(at_once) as server:
            load = RateLoad(kind="poisson", rate=60.0)
            result = run(server, clients, phase_of(server, load, seconds=10.0, count=40))
            found[clients] = result
            bodies = {tuple(note.ask.body["prompt"]) for note in server.notes}
            assert len(bodies) == len(result.requests)  # no prompt is asked twice
    one, two = found[1], found[2]
    for result in (one, two):
        assert sorted(r.index for r in result.requests) == list(range(40))
    due = {r.index: r.intended_s - one.window_s[0] for r in one.requests}
    for record in two.requests:
        assert record.intended_s - two.window_s[0] == pytest.approx(due[record.index], abs=1e-6)
    assert {r.index % 2 == r.worker for r in two.requests} == {True}


def test_every_client_says_what_it_cost(run):
    with serving(at_once) as server:
        result = run(server, 2, phase_of(server, RateLoad(kind="poisson", rate=40.0)))
        told = [s.client_cpu_percent for s in result.client_cpu]
        assert len(told) >= 2
        assert all(percent is not None and percent >= 0 for percent in told)


def test_a_client_that_is_killed_loses_nothing_silently_and_the_rest_goes_on(run, pools):
    load = RateLoad(kind="poisson", rate=50.0)
    with serving(at_once) as server:
        run(server, 2, phase_of(server, load, seconds=0.2))  # both are up
        pool = pools[2]
        threading.Timer(0.6, os.kill, (pool.pids[1], signal.SIGKILL)).start()
        before = server.requests
        result = run(server, 2, phase_of(server, load, seconds=1.5))
        arrived = server.requests - before
        lost = [r for r in result.requests if r.error_kind == CLIENT_DIED]
        lived = [r for r in result.requests if r.worker == 0]
        assert lost
        assert {r.worker for r in lost} == {1}
        assert "exit code -9" in (lost[0].error or "")
        assert all(map(succeeded, lived))
        assert abs(len(lost) + len(lived) - arrived) <= 1  # one may have died unsent
        again = run(server, 2, phase_of(server, load, seconds=0.5))
        assert {r.worker for r in again.requests} == {0, 1}  # a new one took its place
        assert all(map(succeeded, again.requests))


def test_a_client_killed_between_two_phases_is_replaced(run, pools):
    with serving(at_once) as server:
        asked = phase_of(server, ClosedLoad(batch_size=1), seconds=0.2)
        run(server, 1, asked)
        os.kill(pools[1].pids[0], signal.SIGKILL)
        time.sleep(0.2)
        assert all(map(succeeded, run(server, 1, asked).requests))


def test_what_clients_do_is_seen_while_they_do_it(run, pools):
    seen = []
    watch = SimpleNamespace(skip_asked=lambda _: False, counts=seen.append)
    with serving(answering(Say(0.02, 1), Say(0.02, 1))) as server:
        holder = SimpleNamespace(clients=pools[2], calibrations={})
        assert watched(holder, "t", watch, SystemClock()) is holder
        result = run(server, 2, phase_of(server, ClosedLoad(batch_size=4), seconds=1.5))
        pools[2].heed = lambda: None
    assert pools[2].tally().ended == len(result.requests)
    last = {second.second: second for second in seen}  # what a second came to in the end
    assert len(last) >= 2
    assert 0 < sum(s.ended_requests for s in last.values()) <= len(result.requests)
    assert all(s.output_tokens == 2 * s.ended_requests for s in last.values())
    assert all(s.in_flight <= 4 and s.ttft_s >= 0.02 for s in last.values())


def test_a_phase_that_is_given_up_ends_at_once_and_the_next_one_runs(run, pools):
    def give_up():
        raise SkipRequestedError("enough")

    with serving(at_once) as server:
        asked = phase_of(server, ClosedLoad(batch_size=1), seconds=60.0)
        pools[1].heed = give_up
        begun = time.monotonic()
        with pytest.raises(SkipRequestedError):
            run(server, 1, asked)
        assert time.monotonic() - begun < 30
        pools[1].heed = lambda: None
        again = phase_of(server, ClosedLoad(batch_size=1), seconds=0.2)
        assert all(map(succeeded, run(server, 1, again).requests))


def test_records_of_a_megabyte_come_back_from_every_client(run):
    many = [Say(0.0, 1) for _ in range(3000)]
    with serving(answering(*many)) as server:
        asked = phase_of(server, ClosedLoad(batch_size=4), seconds=30.0, count=16)
        result = run(server, 2, asked)
        assert len(result.requests) == 16
        assert {r.output_tokens for r in result.requests} == {3000}


def test_a_server_that_is_gone_fails_requests_and_not_clients(run):
    with serving(at_once) as server:
        asked = phase_of(server, ClosedLoad(batch_size=2), seconds=0.3, count=20)
    result = run(server, 2, asked)
    assert {r.error_kind for r in result.requests} == {"connect"}
    assert {r.output_tokens for r in result.requests} == {0}


def test_an_error_that_a_client_meets_is_raised_in_the_parent(run):
    with (
        serving(at_once) as server,
        pytest.raises(TargetError, match=r"a client process failed[\s\S]*ZeroDivisionError"),
    ):
        run(server, 1, _broken_phase)


def _broken_phase(share: Share):
    if share.of == 1 and os.getpid() != PARENT:
        return 1 / 0
    return Phase(name="p", feed=None, max_requests=1)


PARENT = int(os.environ.setdefault("CLIENT_TEST_PARENT", str(os.getpid())))


def test_closing_ends_every_process():
    with serving(at_once) as server:
        target = HttpTarget(spec(server.url), clients=2)
        target.open({})
        clock = SystemClock()
        runner = load_runner(target, clock, clock.now_ns())
        runner.run(phase_of(server, ClosedLoad(batch_size=2), seconds=0.1))
        pids = target.clients.pids
        target.close()
        target.close()
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_a_load_that_cannot_be_shared_is_refused_by_name():
    with pytest.raises(PlanError, match="cannot share 2 requests in flight"):
        check_clients(ClosedLoad(batch_size=2), 3)
    with pytest.raises(PlanError, match="a round waits"):
        check_clients(BatchLoad(kind="batch", batch_size=8), 2)
    check_clients(ClosedLoad(batch_size=3), 3)
    check_clients(RateLoad(kind="poisson", rate=1.0), 8)


def test_the_clients_of_a_frozen_server_are_charged_from_the_schedule(run):
    """Coordinated omission: a server that stands still for a second delays all that were due."""

    def script(ask):
        return Answer(
            head_delay_s=1.0 if ask.number == 20 else 0.0, acts=acts(ask.api, [Say(0, 4)])
        )

    with serving(script) as server:
        load = RateLoad(kind="poisson", rate=50.0, max_concurrency=1)
        result = run(server, 1, phase_of(server, load, seconds=2.0))
        waited = [r.ended_s - r.intended_s for r in result.requests if succeeded(r)]
        assert max(waited) >= 0.9
        assert sum(w >= 0.3 for w in waited) >= 20
