"""What the requests of a trial take, and how many there may be."""

import dataclasses
import tracemalloc

import pytest

from engine.request import FinishReason, Request, RequestId, RequestOutput, SamplingParams
from experiments.flight import Flight
from experiments.plan import load_plan
from experiments.room import most_requests, needed_requests, record_bytes
from experiments.sweep import expanded
from experiments.targets.base import Received
from experiments.targets.factory import target_factory
from experiments.token_counts import Piece
from experiments.workload import WorkItem

MANY = 40


def trial_of(load, protocol=None, prompt=64, output=16):
    plan = load_plan({
        "name": "t", "target": "simulated", "load": load, "protocol": protocol or "standard",
        "workloads": [{"name": "s", "kind": "synthetic", "prompt_tokens": prompt,
                       "output_tokens": output}],
    })  # fmt: skip
    [*_, trial] = expanded(plan, target_factory(plan), code_version="x").known
    return trial, plan


def test_a_closed_load_needs_its_rounds_and_may_bring_what_its_clients_can_send():
    trial, plan = trial_of({"kind": "closed", "batch_size": 64})
    assert needed_requests(trial, plan) == 640
    assert 100_000 < most_requests(trial, plan) < 1_000_000
    huge, plan = trial_of({"kind": "closed", "batch_size": 100_000})
    assert needed_requests(huge, plan) == most_requests(huge, plan) == 1_000_000


def test_a_schedule_sends_what_it_says():
    trial, plan = trial_of({"kind": "poisson", "rate": 50})
    assert needed_requests(trial, plan) == most_requests(trial, plan) == 3000


def flight(index, prompt, output, remote):
    ids = tuple(range(300 + index, 300 + index + prompt))
    item = WorkItem(index=index, prompt_token_ids=ids, output_tokens=output, seed=index, kind="s")
    sampling = SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True)
    name = RequestId(f"r-{index}")
    sent = Request(request_id=name, prompt_token_ids=ids, sampling=sampling)
    made = Flight(item=item, request=sent, intended_s=1.5, dispatched_s=1.5, sent_s=index / 7)
    for number in range(output):
        at_ns = 10**9 + number * 1_000_003 + index
        said = RequestOutput(
            request_id=name,
            token_ids=() if remote else (1000 + 7 * number + index,),
            time_ns=at_ns,
            finish_reason=FinishReason.LENGTH if number == output - 1 else None,
        )
        piece = Piece(text=f" word{number}") if remote else None
        made.take(Received(output=said, received_ns=at_ns, piece=piece), lambda ns: ns / 1e9)
    return made


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(("prompt", "output"), [(8, 1), (8, 16), (512, 128)])
def test_the_estimate_is_what_flights_and_records_really_take(prompt, output, remote):
    tracemalloc.start()
    kept = [flight(index, prompt, output, remote) for index in range(MANY)]
    flights = tracemalloc.get_traced_memory()[0]
    kept = [one.record() for one in kept]
    records = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    trial, _ = trial_of({"kind": "closed", "batch_size": 1}, prompt=prompt, output=output)
    trial = dataclasses.replace(trial, facts=dataclasses.replace(trial.facts, remote=remote))
    assert max(flights, records) == pytest.approx(record_bytes(trial, MANY), rel=0.4)
