"""The result file of `vllm bench serve`: their names, their definitions, no false zero."""

import dataclasses
import json

import numpy as np
import pytest

from tests.fakes import measured, records
from workbench.exports.vllm_json import vllm_files


def exported(tmp_path, item):
    (content,) = vllm_files(records.fill_store(tmp_path, [item])).values()
    return json.loads(content)


@pytest.fixture(scope="module")
def item():
    return measured.trial(count=240)


@pytest.fixture(scope="module")
def found(item, tmp_path_factory):
    return exported(tmp_path_factory.mktemp("store"), item)


def test_latencies_are_theirs_in_milliseconds(found, item):
    """Worked from the requests, not from our metrics."""
    ttfts = np.array([r.chunks[0].time_s - r.sent_s for r in item.requests])
    e2els = np.array([r.chunks[-1].time_s - r.sent_s for r in item.requests])
    tpots = (e2els - ttfts) / 9
    gaps = np.concatenate([np.diff([c.time_s for c in r.chunks]) for r in item.requests])
    for name, samples in (("ttft", ttfts), ("e2el", e2els), ("tpot", tpots), ("itl", gaps)):
        assert found[f"mean_{name}_ms"] == pytest.approx(1e3 * samples.mean())
        assert found[f"median_{name}_ms"] == pytest.approx(1e3 * np.median(samples))
        assert found[f"p99_{name}_ms"] == pytest.approx(1e3 * np.quantile(samples, 0.99))
        assert found[f"std_{name}_ms"] == pytest.approx(1e3 * samples.std(ddof=1))


def test_counts_and_rates_are_those_of_the_trial(found, item):
    assert (found["completed"], found["failed"], found["num_prompts"]) == (240, 0, 240)
    assert found["total_output_tokens"] == 2400
    assert found["output_throughput"] == item.metrics["output_tok_s"].value
    assert found["request_throughput"] == item.metrics["request_s"].value


def test_details_have_one_item_a_request(found, item):
    for name in (
        "input_lens",
        "output_lens",
        "ttfts",
        "itls",
        "start_times",
        "latencies",
        "errors",
    ):
        assert len(found[name]) == len(item.requests)
    assert found["errors"] == [""] * 240


def test_what_cannot_be_had_is_null_with_its_reason(tmp_path):
    found = exported(tmp_path, measured.trial(count=12))
    assert found["p99_ttft_ms"] is None
    assert found["workbench_missing"]["p99_ttft_ms"] == "n=12"
    missing = {name for name, value in found.items() if value is None}
    assert missing - {"max_concurrency", "workbench_reason"} == set(found["workbench_missing"])


def test_a_request_that_failed_has_no_times_and_its_error(tmp_path):
    item = measured.trial(count=12)
    lost = dataclasses.replace(
        item.requests[3], chunks=(), ended_s=None, error="reset", finish_reason="error"
    )
    requests = (*item.requests[:3], lost, *item.requests[4:])
    found = exported(tmp_path, dataclasses.replace(item, requests=requests))
    assert (found["completed"], found["failed"]) == (11, 1)
    assert (found["ttfts"][3], found["latencies"][3], found["itls"][3]) == (None, None, [])
    assert found["errors"][3] == "reset"


def test_requests_that_do_not_fit_the_numbers_give_no_latency(tmp_path):
    """The stored mean says that other requests were measured: none is guessed."""
    item = measured.trial(count=12)
    wrong = dataclasses.replace(item.metrics["e2e_s_mean"], value=99.0)
    metrics = {**item.metrics, "e2e_s_mean": wrong}
    found = exported(tmp_path, dataclasses.replace(item, metrics=metrics))
    assert found["mean_ttft_ms"] is None
    assert "do not tell" in found["workbench_missing"]["mean_ttft_ms"]


def test_a_trial_that_failed_a_gate_says_so(tmp_path):
    found = exported(tmp_path, records.sweep_records()[3])
    assert found["workbench_state"] == "invalid"
    assert "requests failed" in found["workbench_reason"]
