"""A request on its way and how its end is told."""

import pytest

from engine.request import FinishReason, Request, SamplingParams
from experiments.flight import Flight
from experiments.measurement import cancelled, lost, succeeded
from experiments.workload import WorkItem


def ended(reason, error=None):
    item = WorkItem(index=0, prompt_token_ids=(1, 2), output_tokens=4, seed=0, kind="random")
    request = Request(request_id="a", prompt_token_ids=(1, 2), sampling=SamplingParams())
    flight = Flight(item=item, request=request, intended_s=0.0, dispatched_s=0.0, sent_s=0.0)
    flight.chunks.append((1.0, 1))
    flight.end(reason, error, 2.0)
    return flight.record()


@pytest.mark.parametrize(
    ("reason", "said", "error"),
    [
        (FinishReason.TIMEOUT, None, "its time was over before it ended"),
        (FinishReason.ERROR, None, "the engine gave no reason"),
        (FinishReason.ERROR, "no memory", "no memory"),
    ],
)
def test_one_that_the_engine_gave_up_is_a_failure_with_its_reason(reason, said, error):
    record = ended(reason, said)
    assert record.error == error
    assert record.ended_s == 2.0
    assert not (succeeded(record) or cancelled(record) or lost(record))


def test_one_that_its_client_gave_up_is_none():
    record = ended(FinishReason.ABORT)
    assert record.error is None
    assert cancelled(record)


def test_one_that_ended_well_ended_at_its_last_token():
    record = ended(FinishReason.LENGTH)
    assert succeeded(record)
    assert record.ended_s == 1.0
