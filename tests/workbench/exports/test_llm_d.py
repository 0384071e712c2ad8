"""The Benchmark Report: what the owner of the form accepts, with the numbers of the trial."""

import dataclasses

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from llmd_benchmark_report import BenchmarkReportV02

from tests.fakes import measured, records
from workbench.exports.llm_d import llm_d_files, statistics

COUNT = 240  # enough for a p99


@pytest.fixture(scope="module")
def item():
    return measured.trial(count=COUNT)


@pytest.fixture(scope="module")
def run(item, tmp_path_factory):
    return records.fill_store(tmp_path_factory.mktemp("store"), [item])


@pytest.fixture(scope="module")
def found(run, item):
    return yaml.safe_load(llm_d_files(run)[f"{item.trial_id}.yaml"])


@pytest.mark.parametrize(
    "items",
    [
        [measured.trial()],
        records.sweep_records()[::6],
        [*records.unicode_records(), *records.hostile_records()[2:]],
    ],
    ids=["one", "a sweep", "texts"],
)
@pytest.mark.parametrize("engine", ["in_process", "simulated", "http"])
def test_the_owner_of_the_form_accepts_every_document(tmp_path, items, engine):
    files = llm_d_files(records.fill_store(tmp_path, items, engine=engine))
    assert len(files) == sum(item.state == "ok" for item in items)
    for content in files.values():
        BenchmarkReportV02.model_validate(yaml.safe_load(content))


def test_numbers_are_those_of_the_trial(found, item):
    told = found["results"]["request_performance"]["aggregate"]
    latency, rates = told["latency"], told["throughput"]
    pairs = [
        (latency["time_to_first_token"], "ttft_s"),
        (latency["time_per_output_token"], "tpot_s"),
        (latency["inter_token_latency"], "itl_s"),
        (latency["request_latency"], "e2e_s"),
    ]
    for statistic, metric in pairs:
        assert statistic["mean"] == pytest.approx(item.metrics[f"{metric}_mean"].value)
        assert statistic["p50"] == pytest.approx(item.metrics[f"{metric}_p50"].value)
        assert statistic["p99"] == pytest.approx(item.metrics[f"{metric}_p99"].value)
    assert rates["output_token_rate"]["mean"] == item.metrics["output_tok_s"].value
    assert rates["request_rate"]["mean"] == item.metrics["request_s"].value
    assert told["requests"]["total"] == COUNT
    assert told["requests"]["failures"] == 0


def test_the_trial_and_its_run_can_be_found_again(found, run, item):
    assert (found["run"]["uid"], found["run"]["eid"]) == (item.trial_id, run.run_id)
    assert found["version"] == "0.2.1"
    (engine,) = found["scenario"]["stack"]
    assert engine["native"]["args"] == item.point.engine


def test_another_engine_is_told_by_the_name_and_version_that_its_trial_stores(tmp_path, item):
    told = {"arm": "fast", "version": "vllm 0.26.0, torch 2.11.0"}
    point = dataclasses.replace(
        item.point, axes={**item.point.axes, "arm": "fast"}, engine={**item.point.engine, **told}
    )
    run = records.fill_store(
        tmp_path, [dataclasses.replace(item, point=point)], engine="arms",
        plan={"arms": {"fast": {"target": "vllm"}}},
    )  # fmt: skip
    (content,) = llm_d_files(run).values()
    found = yaml.safe_load(content)
    BenchmarkReportV02.model_validate(found)
    (engine,) = found["scenario"]["stack"]
    assert engine["metadata"]["label"] == "fast"
    assert engine["standardized"]["kind"] == "inference_engine"
    assert engine["standardized"]["tool"] == "vllm"
    assert engine["standardized"]["tool_version"] == told["version"]


def test_what_is_not_known_is_left_out_and_nothing_is_null(found):
    def nulls(value):
        inner = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict | list):
            return any(map(nulls, inner))
        return value is None

    assert not nulls(found)
    assert "normalized_time_per_output_token" not in found["results"]["request_performance"][
        "aggregate"
    ]["latency"]  # fmt: skip
    assert "rate_qps" not in found["scenario"]["load"]["standardized"]


def test_a_measurement_that_failed_a_gate_is_left_out(tmp_path):
    items = records.sweep_records()[:5]
    valid = {f"{item.trial_id}.yaml" for item in items if item.state == "ok"}
    assert set(llm_d_files(records.fill_store(tmp_path, items))) == valid


@given(st.lists(st.floats(0, 1e6), max_size=40))
def test_a_percentile_needs_as_many_samples_as_everywhere(values):
    found = statistics(values, "s")
    if not values:
        assert found is None
        return
    assert found["min"] <= found["mean"] * (1 + 1e-9)
    assert found["mean"] <= found["max"] * (1 + 1e-9) + 1e-300
    assert ("p50" in found) == (len(values) >= 4)
    assert ("p90" in found) == ("p10" in found) == (len(values) >= 20)
    assert "p99" not in found
    if "p50" in found:
        assert found["p50"] == pytest.approx(np.median(values))
