"""Real files of the other tools: units converted, each number under what its tool means by it."""

import pytest

from tests.fakes.foreign_files import FOLDER, foreign, imported, numbers
from workbench.catalogue import METRICS
from workbench.importers.catalogue import FORMATS, format_of
from workbench.importers.document import read_document
from workbench.importers.intake import read_file

EXPECTED = {
    "inferencex/agg_dsr1_1k1k.json": "inferencex",
    "inferencex/dsv4_b300_trt_mtp3_fixed_gbs.json": "inferencex",
    "inferencex/env_dsr1-fp4-b200-sglang.json": "inferencex-matrix",
    "inferencex/agentx_dsv41_flash_h100_conc4.json": "inferencex",
    "inferencex_raw/dsr1_1k1k_fp4_sglang_tp8_ep1_dpa_false_conc4_b200.json": "vllm-serve",
    "inferencex_slo/glm5_fp8_vllm_tp8_isl8192_osl128_conc16.json": "inferencex-slo",
    "inferencex_slo/glm5_fp8_vllm_tp8_isl8192_osl128_conc4.json": "inferencex-slo",
    "inferencex_slo/glm5_fp8_vllm_tp8_isl8192_osl128_conc64.json": "inferencex-slo",
    "sglang/llama_3_3_70b_offline_output.jsonl": "sglang-serving",
    "sglang/llama_3_3_70b_online_output.jsonl": "sglang-serving",
    "aiperf/qwen_concurrency1_gpu_telemetry_export.jsonl": "aiperf-telemetry",
    "aiperf/qwen_concurrency1_profile_export.jsonl": "aiperf-records",
    "aiperf/qwen_concurrency1_profile_export_aiperf.json": "aiperf",
    "aiperf/qwen_concurrency2_profile_export_aiperf.json": "aiperf",
    "genai-perf/profile_genai_perf_cloudai_doc.csv": "genai-perf-csv",
    "guidellm/guidellm_report_v2.json": "guidellm",
    "inference-perf/eagle_stage_0_lifecycle_metrics.json": "inference-perf",
    "inference-perf/eagle_summary_lifecycle_metrics.json": "inference-perf",
    "llmperf/individual_lepton_7b.json": "llmperf-requests",
    "llmperf/summary_groq_70b.json": "llmperf",
    "evalscope/perf-detail.json": "evalscope",
}
RESULTS = [name for name, form in EXPECTED.items() if form != "inferencex-matrix"]


def test_every_file_that_is_kept_here_is_expected():
    kept = {str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*")}
    assert kept == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_is_known_by_its_content(name):
    assert format_of(read_document(FOLDER / name)).name == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_no_importer_of_another_tool_takes_the_file(name):
    document = read_document(FOLDER / name)
    tools = {one.tool for one in FORMATS if one.recognises(document)}
    (only,) = {tool.replace("GenAI-Perf", "AIPerf") for tool in tools}
    assert only


@pytest.mark.parametrize("name", RESULTS)
def test_every_metric_is_one_of_the_catalogue_and_tells_its_basis(name):
    for point in read_file(FOLDER / name).foreign.points:
        for one in point.numbers:
            assert one.meaning
            if one.metric is not None:
                assert one.metric in METRICS
                assert one.unit == METRICS[one.metric].unit or one.unit == "tok/s/user"


def test_lines_of_one_sglang_file_are_points_of_one_run(tmp_path):
    run = imported(tmp_path, FOLDER / "sglang/llama_3_3_70b_offline_output.jsonl")
    points = run.points()
    assert len(points) == 7
    assert points["output_tok_s"].iloc[0] == pytest.approx(4520.698730654741)
    assert points["ttft_s_p50"].iloc[0] == pytest.approx(91.28220983641222)
    assert points["request_s"].iloc[0] == pytest.approx(3000 / 341.72106836596504)
    assert "tok_s_user_p50" not in points  # the file has no TPOT
    assert "icl_s_p50" not in points
    assert set(points["workload.load"]) == {"all at once"}


def test_a_rate_is_no_number_of_users():
    rates = {
        point.workload["rate"]
        for point in foreign("sglang/llama_3_3_70b_online_output.jsonl").points
        if "rate" in point.workload
    }
    assert rates
    for point in foreign("sglang/llama_3_3_70b_online_output.jsonl").points:
        assert "batch_size" not in point.workload


def test_aiperf_tells_tpot_and_gaps_between_chunks_apart():
    (point,) = foreign("aiperf/qwen_concurrency1_profile_export_aiperf.json").points
    found = numbers(point)
    assert found["tpot_compat_s_mean"] == pytest.approx(18.19909533160138e-3)
    assert found["icl_s_p99"] == pytest.approx(20.8811646e-3)
    assert found["tok_s_user_p50"] == pytest.approx(55.07214394940726)
    assert found["output_tok_s"] == pytest.approx(50.08213863971112)
    assert (point.samples, point.failed) == (64, None)
    assert dict(point.workload) == {
        "load": "closed", "batch_size": 1, "prompt_tokens": 100, "output_tokens": 200
    }  # fmt: skip


def test_null_in_a_file_is_no_zero():
    (point,) = foreign("aiperf/qwen_concurrency1_profile_export_aiperf.json").points
    assert not [one for one in point.numbers if one.key == "goodput"]


def test_devices_in_telemetry_are_not_taken_for_those_that_served():
    (point,) = foreign("aiperf/qwen_concurrency1_profile_export_aiperf.json").points
    assert point.devices is None


def test_records_of_requests_give_what_the_summary_of_more_of_them_gives():
    (records,) = foreign("aiperf/qwen_concurrency1_profile_export.jsonl").points
    (summary,) = foreign("aiperf/qwen_concurrency1_profile_export_aiperf.json").points
    mine, theirs = numbers(records), numbers(summary)
    assert records.samples == 10
    for name in ("e2e_s_mean", "ttft_s_mean", "tpot_compat_s_mean", "output_tok_s"):
        assert mine[name] == pytest.approx(theirs[name], rel=0.03)
    assert "e2e_s_p99" not in mine  # ten requests carry no p99
    assert mine["tok_s_user"] == pytest.approx(1 / mine["tpot_compat_s_mean"], rel=1e-3)


def test_telemetry_is_kept_as_samples_once_a_device_with_energy_in_joules():
    found = foreign("aiperf/qwen_concurrency1_gpu_telemetry_export.jsonl")
    (point,) = found.points
    first = point.telemetry[0]
    assert len(point.telemetry) == 10
    assert (first.time_s, first.device_power_w) == (0.0, 30.257)
    assert first.device_energy_j == pytest.approx(32.62748095e6)
    assert first.device_memory_bytes == 49_659_510_784
    assert any("a second time" in note for note in found.notes)


def test_thousands_separators_in_quotes_are_numbers():
    (point,) = foreign("genai-perf/profile_genai_perf_cloudai_doc.csv").points
    found = numbers(point)
    assert found["ttft_s_mean"] == pytest.approx(1.14631)
    assert found["e2e_s_p90"] == pytest.approx(9.02816)
    assert found["output_tok_s"] == 261.25
    assert found["input_sequence_length.avg"] == 3000.05
    assert point.samples == 40


def test_guidellms_time_per_output_token_is_no_tpot():
    found = foreign("guidellm/guidellm_report_v2.json")
    first, second = found.points
    values = numbers(first)
    assert values["tpot_compat_s_mean"] == pytest.approx(1.1508464813232422e-3)
    assert values["e2e_token_s_mean"] == pytest.approx(2.4421364068984985e-3)
    assert values["e2e_s_mean"] == pytest.approx(0.01978909969329834)
    assert values["tok_s_user"] == pytest.approx(1 / values["tpot_compat_s_mean"])
    assert (first.workload["rate"], second.workload["rate"]) == (2.0, 4.0)
    assert found.version == "0.8.0.dev18"


def test_quantiles_of_two_requests_are_not_taken(tmp_path):
    points = imported(tmp_path, FOLDER / "guidellm/guidellm_report_v2.json").points()
    assert points["ttft_s_mean"].notna().all()
    assert points["ttft_s_p99"].isna().all()
    assert points["ttft_s_p99.reason"].str.contains("n=2 is too few").all()


def test_chunks_that_a_tool_counts_as_tokens_give_no_tpot():
    found = foreign("inference-perf/eagle_stage_0_lifecycle_metrics.json")
    (point,) = found.points
    values = numbers(point)
    assert "tpot_compat_s_mean" not in values
    assert values["time_per_output_token.mean"] == pytest.approx(0.0057914244556198065)
    assert values["icl_s_p50"] == pytest.approx(3.8421014323830605e-05)
    assert any("0.53 of what E2E, TTFT" in note for note in found.notes)
    assert values["achieved_request_s"] == pytest.approx(1.0151782913778085)


def test_llmperfs_inter_token_latency_holds_ttft_and_is_no_tpot():
    (point,) = foreign("llmperf/summary_groq_70b.json").points
    found = numbers(point)
    assert found["e2e_token_s_mean"] == pytest.approx(0.005384122478382455)
    assert found["e2e_token_s_mean"] == pytest.approx(found["e2e_s_mean"] / 150, rel=0.02)
    assert "tpot_compat_s_mean" not in found
    assert found["request_s"] == pytest.approx(176.73895115400083 / 60)
    assert dict(point.workload) == {
        "load": "closed", "batch_size": 5, "prompt_tokens": 550, "output_tokens": 150
    }  # fmt: skip


def test_requests_that_llmperf_lost_are_counted_and_not_measured():
    (point,) = foreign("llmperf/individual_lepton_7b.json").points
    assert (point.samples, point.failed) == (10, 2)
    assert numbers(point)["ttft_s_mean"] == pytest.approx(1.157829070200006)


def test_a_rate_of_minus_one_is_a_closed_loop():
    (point,) = foreign("evalscope/perf-detail.json").points
    assert dict(point.workload) == {"load": "closed", "batch_size": 10}
    found = numbers(point)
    assert (found["e2e_s_mean"], found["request_s"], found["error_rate"]) == (1.842, 5.43, 0.0)
    assert point.samples == 100


def test_no_key_of_an_interface_is_stored():
    (point,) = foreign("evalscope/perf-detail.json").points
    assert not [one for one in point.numbers if "REDACTED" in str(one.value)]
