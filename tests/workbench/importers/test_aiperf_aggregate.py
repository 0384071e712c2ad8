"""What AIPerf writes of several runs, in the form that its exporters document."""

import copy

import pytest

from tests.fakes.foreign_files import document, imported, numbers, written
from workbench.errors import ForeignFileError
from workbench.importers.catalogue import format_of


def told(mean, std, low, high, unit):
    """One metric of an aggregate over 3 runs."""
    return {"mean": mean, "std": std, "min": mean - std, "max": mean + std, "cv": std / mean,
            "se": std / 3**0.5, "ci_low": low, "ci_high": high, "t_critical": 4.303,
            "unit": unit}  # fmt: skip


METRICS = {
    "time_to_first_token_avg": told(50.0, 2.0, 45.0, 55.0, "ms"),
    "time_to_first_token_p50": told(48.0, 2.0, 43.0, 53.0, "ms"),
    "time_to_first_token_p99": told(90.0, 4.0, 80.0, 100.0, "ms"),
    "inter_token_latency_p50": told(10.0, 0.4, 9.0, 11.0, "ms"),
    "request_latency_avg": told(2.0, 0.04, 1.9, 2.1, "sec"),
    "output_token_throughput_avg": told(800.0, 8.0, 780.0, 820.0, "tokens/sec"),
    "request_throughput_avg": told(4.0, 0.04, 3.9, 4.1, "requests/sec"),
    "request_count_avg": told(40.0, 0.5, 38.8, 41.2, "requests"),
    "output_sequence_length_avg": told(200.0, 1.0, 197.5, 202.5, "tokens"),
}
CONFIDENCE = {
    "schema_version": "1.0",
    "aiperf_version": "0.8.0",
    "metadata": {
        "aggregation_type": "confidence", "num_profile_runs": 4, "num_successful_runs": 3,
        "failed_runs": [{"label": "run_0003", "error": "timeout"}], "confidence_level": 0.95,
        "run_labels": ["run_0001", "run_0002", "run_0004"],
        "variation_label": "phases.profiling.concurrency=10",
    },
    "metrics": METRICS,
}  # fmt: skip
SWEEP = {
    "aggregation_type": "sweep", "num_profile_runs": 6, "num_successful_runs": 6,
    "failed_runs": [],
    "metadata": {
        "aggregation_type": "sweep", "num_combinations": 2, "num_trials_per_value": 3,
        "confidence_level": 0.95,
        "sweep_parameters": [{"name": "concurrency", "values": [2, 4]}],
    },
    "per_combination_metrics": [
        {"parameters": {"phases.profiling.concurrency": 2, "isl": 128}, "metrics": METRICS},
        {"parameters": {"phases.profiling.concurrency": 4, "isl": 128}, "metrics": METRICS},
    ],
    "best_configurations": {}, "pareto_optimal": [],
}  # fmt: skip
COLLATED = {
    "schema_version": "1.0.0",
    "aiperf_version": "0.8.0",
    "metadata": {"aggregation_type": "detailed", "num_profile_runs": 3,
                 "num_successful_runs": 3, "failed_runs": []},
    "metrics": {
        "request_latency": {
            "combined": {"mean": 2.0, "std": 0.1, "p50": 2.0, "p90": 2.1, "p95": 2.2, "p99": 2.4,
                         "count": 120},
            "per_run": [{"label": "run_0001", "mean": 2.0, "count": 40}],
        },
    },
}  # fmt: skip


def read(value):
    found = document(value)
    chosen = format_of(found)
    return chosen.name, chosen.read(found)


def with_metadata(**cells):
    value = copy.deepcopy(CONFIDENCE)
    value["metadata"] |= cells
    return value


def test_a_mean_over_runs_fills_the_metric_of_its_statistic(tmp_path):
    points = imported(tmp_path, written(tmp_path, "a.json", CONFIDENCE)).points()
    assert points["ttft_s_mean"].item() == 0.05
    assert points["e2e_s_mean"].item() == 2.0
    assert points["output_tok_s"].item() == 800.0
    assert "mean over 3 runs of each run's mean of" in points["ttft_s_mean.basis"].item()
    assert points["ttft_s_mean.n"].item() == 40


def test_an_averaged_quantile_fills_no_metric(tmp_path):
    points = imported(tmp_path, written(tmp_path, "a.json", CONFIDENCE)).points()
    assert not [name for name in points if name in ("ttft_s_p50", "ttft_s_p99", "tok_s_user_p50")]
    kept = numbers(read(CONFIDENCE)[1].points[0])
    assert kept["time_to_first_token_p99.mean"] == 90.0


def test_an_interval_over_runs_is_none_within_a_run(tmp_path):
    run = imported(tmp_path, written(tmp_path, "a.json", CONFIDENCE), devices=4)
    points = run.points()
    assert points["output_tok_s_device"].item() == 200.0
    assert not [name for name in points if name.endswith((".low", ".high"))
                and points[name].notna().any()]  # fmt: skip
    assert any("ci_low, ci_high" in note for note in run.origin["notes"])


def test_what_has_no_word_here_is_kept_with_its_unit_and_what_follows_is_not():
    name, found = read(CONFIDENCE)
    kept = {one.key: one for one in found.points[0].numbers}
    assert name == "aiperf-aggregate"
    assert (kept["output_sequence_length_avg.mean"].value,
            kept["output_sequence_length_avg.mean"].unit) == (200.0, "tokens")  # fmt: skip
    assert kept["time_to_first_token_avg.ci_low"].value == 45.0
    assert not [key for key in kept if key.endswith((".cv", ".se", ".t_critical"))]


def test_runs_that_failed_are_told():
    _, found = read(CONFIDENCE)
    assert any(note.startswith("1 runs failed") and "run_0003" in note for note in found.notes)
    assert found.version == "0.8.0"


@pytest.mark.parametrize(("cells", "workload"), [
    ({}, {"load": "closed", "batch_size": 10}),
    ({"variation_label": "request_rate=2.5, isl=128"}, {"load": "rate", "rate": 2.5, "isl": 128}),
    ({"variation_values": {"concurrency": 16}}, {"load": "closed", "batch_size": 16}),
    ({"variation_label": None}, {}),
])  # fmt: skip
def test_what_was_varied_is_the_load(cells, workload):
    _, found = read(with_metadata(**cells))
    assert found.points[0].workload == workload


@pytest.mark.parametrize("unit", ["", "hours", None])
def test_a_unit_that_is_not_known_fills_no_metric(unit):
    metrics = {name: cell | {"unit": unit} for name, cell in METRICS.items()}
    _, found = read(CONFIDENCE | {"metrics": metrics})
    assert not [one for one in found.points[0].numbers if one.metric is not None]


def test_a_submission_that_its_tool_calls_invalid_is_invalid():
    cells = {"submission_valid": False, "submission_invalid_reasons": ["context_overflow"]}
    _, found = read(with_metadata(**cells))
    assert "context_overflow" in found.points[0].invalid


def test_an_aggregate_without_a_number_is_refused():
    with pytest.raises(ForeignFileError, match="without a number"):
        read(CONFIDENCE | {"metrics": {}})


def test_a_sweep_is_a_point_for_each_combination(tmp_path):
    points = imported(tmp_path, written(tmp_path, "s.json", SWEEP)).points()
    assert points["axis.batch_size"].tolist() == [2, 4]
    assert set(points["workload.isl"]) == {128}
    assert points["ttft_s_mean.basis"].str.contains("over 3 runs").all()


def test_an_older_sweep_has_its_values_as_names():
    older = {"metadata": {"aggregation_type": "sweep", "parameter_name": "concurrency"},
             "per_value_metrics": {"10": METRICS, "20": METRICS}}  # fmt: skip
    name, found = read(older)
    assert name == "aiperf-sweep"
    assert [point.workload["batch_size"] for point in found.points] == [10, 20]


def test_collated_requests_tell_no_unit_and_fill_no_metric_but_their_count():
    name, found = read(COLLATED)
    (point,) = found.points
    assert name == "aiperf-collated"
    assert numbers(point)["request_latency.p99"] == 2.4
    assert {one.metric for one in point.numbers} == {None, "completed_requests"}
    assert point.samples == 120
    assert any("no unit" in note for note in found.notes)
