"""What is said beside the numbers of a trial, because they do not say it themselves."""

from dataclasses import replace

import pytest

from experiments.labels import (
    BURSTY,
    DEGENERATE,
    RANDOM_PROMPTS,
    RESENT,
    TPOT_DISPUTED,
    labels_afterwards,
)
from experiments.metrics import measure
from tests.experiments.records import measurement, request
from tests.fakes.workloads import FACTS

TRAINED = replace(FACTS, random_weights=False)
RANDOM, TEXT = {"content": "random ids"}, {"content": "text"}
EVEN = [(0.1, 1), (0.2, 1), (0.3, 1)]
DRAFTED = {"verify_steps": 2, "emitted_tokens": 3, "proposed_tokens": 2, "accepted_tokens": 1}


def said(*, workload=TEXT, served=TRAINED, chunks=EVEN, counters=None, **fields):
    metrics = measure(measurement([request(chunks, **fields)], counters=counters or {}))
    return labels_afterwards(metrics, workload, served)


def test_drafts_on_random_prompts_are_labelled_because_text_is_drafted_otherwise():
    # ai-dynamo/dynamo 12918: random text collapses acceptance.
    assert said(workload=RANDOM, **DRAFTED) == (RANDOM_PROMPTS,)
    assert said(workload=TEXT, **DRAFTED) == ()
    assert said(workload=RANDOM) == ()


@pytest.mark.parametrize("known", [{"random_weights": True}, {"simulated": True}])
def test_what_random_weights_and_simulations_say_is_not_said_again(known):
    assert said(workload=RANDOM, served=replace(TRAINED, **known), **DRAFTED) == ()


def test_a_text_far_shorter_than_its_tokens_is_labelled_and_one_that_fits_is_not():
    # vllm-project/vllm 45739: a "7.4x slowdown" came from how degenerate text was counted.
    assert said(retokenised_tokens=1) == (DEGENERATE,)
    assert said(retokenised_tokens=3) == ()
    assert said(retokenised_tokens=None) == ()


def test_bursts_are_labelled():
    burst = [(0.1, 1), *((0.1 + k * 1e-5, 1) for k in range(1, 10)), (5.0, 1)]
    assert said(chunks=burst) == (BURSTY,)


@pytest.mark.parametrize(
    ("server_s", "labels"), [(0.1, ()), (0.21, (TPOT_DISPUTED,)), (0.05, (TPOT_DISPUTED,))]
)
def test_a_server_that_tells_another_tpot_than_its_clients_is_labelled(server_s, labels):
    name = "vllm:inter_token_latency_seconds"
    counters = {f"{name}_sum": 40 * server_s, f"{name}_count": 40.0}
    assert said(counters=counters) == labels


def test_requests_that_were_sent_twice_are_counted_and_labelled():
    assert said(resent=True) == (RESENT,)
    assert said(resent=False) == ()
    counted = [measure(measurement([request(EVEN, resent=r)])) for r in (True, False, None)]
    assert [metrics["resent_requests"].value for metrics in counted] == [1.0, 0.0, None]
