"""Formats of which no real file is kept here: documents in the form that their tools document."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from tests.fakes.foreign_files import document, imported, numbers, written
from workbench import importers
from workbench.importers.catalogue import FORMATS, format_of
from workbench.importers.document import Form

SERVE = {
    "model_id": "m", "request_rate": "inf", "max_concurrency": 8, "completed": 100,
    "duration": 10.0, "total_input_tokens": 1000, "total_output_tokens": 2000,
    "request_throughput": 10.0, "output_throughput": 200.0, "total_token_throughput": 300.0,
}  # fmt: skip


def read(value, form=Form.JSON):
    found = document(value, form)
    chosen = format_of(found)
    return chosen, chosen.read(found)


def test_runs_of_a_vllm_sweep_are_repeats_of_one_point(tmp_path):
    runs = [SERVE | {"run_number": k, "output_throughput": 200.0 + k} for k in range(3)]
    points = imported(tmp_path, written(tmp_path, "summary.json", runs)).points()
    assert len(points) == 1
    assert points["repeats"].item() == 3
    assert points["output_tok_s"].item() == pytest.approx(201.0)
    assert points["output_tok_s.low"].item() < 201.0 < points["output_tok_s.high"].item()


def test_vllm_throughput_counts_prompt_and_output_tokens():
    chosen, found = read(
        {"elapsed_time": 20.0, "num_requests": 100, "total_num_tokens": 50_000,
         "requests_per_second": 5.0, "tokens_per_second": 2500.0}
    )  # fmt: skip
    (point,) = found.points
    assert chosen.name == "vllm-throughput"
    assert numbers(point)["total_tok_s"] == 2500.0
    assert "output_tok_s" not in numbers(point)


def test_vllm_latency_is_that_of_a_whole_batch():
    chosen, found = read(
        {"avg_latency": 1.5, "latencies": [1.4, 1.6], "percentiles": {"50": 1.5, "99": 1.6}}
    )
    (point,) = found.points
    assert chosen.name == "vllm-latency"
    assert (numbers(point)["e2e_s_mean"], numbers(point)["e2e_s_p99"]) == (1.5, 1.6)
    assert point.samples == 2


def test_a_vllm_rate_with_a_burstiness_is_a_gamma_load():
    _, found = read(SERVE | {"request_rate": 4.0, "burstiness": 0.5})
    (point,) = found.points
    assert point.workload["load"] == "gamma"
    assert (point.workload["rate"], point.workload["shape"]) == (4.0, 0.5)
    assert "batch_size" not in point.workload


def test_sglang_one_batch_has_steps_and_no_server():
    """Numbers as a public log of the tool has them."""
    chosen, found = read(
        [{"run_name": "test_run", "batch_size": 4, "input_len": 1024, "output_len": 1024,
          "prefill_latency": 3.58247447013855, "prefill_throughput": 1143.3438072320973,
          "median_decode_latency": 0.018887758255004883,
          "median_decode_throughput": 211.77738225975435, "total_latency": 22.969415187835693,
          "overall_throughput": 356.64817467091535}] * 2,
        Form.LINES,
    )  # fmt: skip
    values = numbers(found.points[0])
    assert chosen.name == "sglang-one-batch"
    assert len(found.points) == 2
    assert values["decode_step_s"] == pytest.approx(0.018887758255004883)
    assert values["prefill_tok_s"] == pytest.approx(1143.3438072320973)
    assert values["total_tok_s"] == pytest.approx(356.64817467091535)
    assert 4 * values["tok_s_user_p50"] == pytest.approx(211.77738225975435)


def test_genai_perf_is_told_from_its_successor():
    stats = {"unit": "ms", "avg": 20.0, "p50": 19.0, "p99": 40.0}
    value = {
        "request_latency": stats,
        "inter_token_latency": stats,
        "request_throughput": {"unit": "requests/sec", "avg": 2.0},
        "input_config": {"model": ["m"], "perf_analyzer": {"stimulus": {"concurrency": 4}}},
    }
    chosen, found = read(value)
    (point,) = found.points
    assert chosen.tool == "GenAI-Perf"
    assert numbers(point)["e2e_s_p50"] == pytest.approx(0.019)
    assert (point.engine["model"], point.workload["batch_size"]) == ("m", 4)
    chosen, _ = read(value | {"benchmark_duration": {"unit": "sec", "avg": 30.0}})
    assert chosen.tool == "AIPerf"


def test_a_cancelled_benchmark_is_invalid(tmp_path):
    value = {
        "request_latency": {"unit": "ms", "avg": 20.0},
        "request_throughput": {"unit": "requests/sec", "avg": 2.0},
        "benchmark_duration": {"unit": "sec", "avg": 30.0},
        "was_cancelled": True,
    }
    points = imported(tmp_path, written(tmp_path, "a.json", value)).points()
    assert (points["state"].item(), points["reason"].item()) == (
        "invalid", "the benchmark was cancelled"
    )  # fmt: skip


def group(**stats):
    return {"successful": {"count": 8, "percentiles": {}, **stats}}


def test_guidellm_before_version_two():
    value = {
        "metadata": {"version": 1},
        "args": {"model": "m"},
        "benchmarks": [
            {
                "args": {"strategy": {"type_": "concurrent", "streams": 16}},
                "run_stats": {"requests_made": {"successful": 8, "errored": 1, "incomplete": 0}},
                "metrics": {
                    "request_latency": group(mean=2.0, median=1.9),
                    "time_to_first_token_ms": {"successful": {"count": 0, "mean": 0.0}},
                    "inter_token_latency_ms": group(mean=10.0, median=10.0),
                    "output_tokens_per_second": group(mean=800.0),
                },
            }
        ],
    }
    chosen, found = read(value)
    (point,) = found.points
    values = numbers(point)
    assert chosen.name == "guidellm"
    assert dict(point.workload) == {"load": "closed", "batch_size": 16}
    assert (point.samples, point.failed) == (8, 1)
    assert values["tok_s_user"] == pytest.approx(100.0)
    assert values["ttft_s_mean"] is None  # count 0
    assert any("count 0" in note for note in found.notes)
    assert read(value, Form.YAML)[1] == found


def test_genai_bench_in_its_own_unit():
    """Numbers of a public result file of the tool (regression_main_branch of its repository)."""
    stats = {
        "ttft": {"mean": 0.256500058299207, "p50": 0.23779947950060887},
        "tpot": {"mean": 0.00808820635454939, "p50": 0.008174279459604125},
        "output_inference_speed": {"p50": 122.33526089056673},
    }
    value = {
        "aggregated_metrics": {
            "scenario": "D(100,100)", "num_concurrency": 1, "iteration_type": "num_concurrency",
            "run_duration": 10.592834999999468, "requests_per_second": 0.9440343401932063,
            "mean_output_throughput_tokens_per_s": 94.40343401932063, "num_completed_requests": 10,
            "num_error_requests": 0, "error_rate": 0, "stats": stats,
        },
        "_time_unit": "s",
    }  # fmt: skip
    chosen, found = read(value)
    (point,) = found.points
    assert chosen.name == "genai-bench"
    assert numbers(point)["tok_s_user_p50"] == pytest.approx(
        1 / numbers(point)["tpot_compat_s_p50"], rel=1e-3
    )
    assert point.workload["prompt_tokens"] == point.workload["output_tokens"] == 100
    in_ms = read(value | {"_time_unit": "ms"})[1].points[0]
    assert numbers(in_ms)["ttft_s_mean"] == pytest.approx(0.256500058299207e-3)


def test_mlperf_endpoints_tells_nanoseconds_and_when_it_was_cut_short(tmp_path):
    value = {
        "version": "1.0", "state": "interrupted", "complete": False,
        "n_samples_issued": 400, "n_samples_completed": 400, "n_samples_failed": 0,
        "duration_ns": 100e9, "qps": 4.0, "tps": 200.0,
        "tpot": {"avg": 8.7e6, "median": 8.0e6, "percentiles": {"99": 12e6, "50": 8.1e6}},
        "ttft": {}, "output_sequence_lengths": {"total": 20_000.0},
    }  # fmt: skip
    chosen, found = read(value)
    values = numbers(found.points[0])
    assert chosen.name == "mlperf-endpoints"
    assert values["tpot_s_mean"] == pytest.approx(8.7e-3)
    assert values["tok_s_user_p50"] == pytest.approx(125.0)
    points = imported(tmp_path, written(tmp_path, "result_summary.json", value)).points()
    assert points["reason"].item() == "the run is interrupted"


@pytest.mark.parametrize("version", ["0_1", "0_2"])
def test_the_examples_of_the_benchmark_report_are_read(version):
    """As the owner of the format ships them."""
    name = f"br_v{version}_example.yaml"
    text = files("llmd_benchmark_report").joinpath(name).read_text(encoding="utf-8")
    value = yaml.safe_load(text)
    chosen, found = read(value, Form.YAML)
    (point,) = found.points
    values = numbers(point)
    assert chosen.name == "llm-d-report"
    if version == "0_1":
        assert values["ttft_s_p50"] == pytest.approx(0.203539535985328e-3)  # milliseconds there
        assert values["output_tok_s"] == pytest.approx(32.544923821416)
        assert (point.samples, point.devices) == (31, 17)
    else:
        assert point.devices == 16  # 8 a replica, 2 replicas
        assert point.duration_s == pytest.approx(49.97206788184121)
        assert point.workload["rate"] == 10
    assert "itl_s_mean" not in values


def test_the_page_of_formats_names_each_and_those_of_which_no_real_file_was_seen():
    text = (Path(importers.__file__).parent / "README.md").read_text(encoding="utf-8")
    rows = "\n".join(line for line in text.splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`([a-z-]+)`", "\n".join(r.split("|")[1] for r in rows.splitlines())))
    assert named == {one.name for one in FORMATS}
    _, _, unseen = text.partition("no real file seen: ")
    assert set(re.findall(r"`([a-z-]+)`", unseen.partition(" (read on")[0])) == {
        one.name for one in FORMATS if not one.seen
    }
