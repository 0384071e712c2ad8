"""InferenceX rows of version 3: a real one of DeepSeek-V4.1-Flash, and what may differ."""

import copy

import pytest

from tests.fakes.foreign_files import FOLDER, document, foreign, imported, numbers, written
from workbench.importers.catalogue import format_of
from workbench.importers.document import read_document

NAME = "inferencex/agentx_dsv41_flash_h100_conc4.json"
ROW = read_document(FOLDER / NAME).value


def read(*rows):
    """What the importer makes of the rows as one list."""
    found = document(list(rows))
    return format_of(found).read(found)


def changed(**changes):
    """The real row with other cells; `a__b` leads into an object, `...` takes a cell out."""
    row = copy.deepcopy(ROW)
    for path, cell in changes.items():
        *way, last = path.split("__")
        place = row
        for name in way:
            place = place[name]
        if cell is ...:
            del place[last]
        else:
            place[last] = cell
    return row


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    return imported(tmp_path_factory.mktemp("agentic"), FOLDER / NAME).points()


def test_latencies_are_in_seconds_and_itl_is_tpot(points):
    assert points["ttft_s_p50"].item() == 1.11157
    assert points["e2e_s_mean"].item() == 111.53501
    assert points["tpot_compat_s_p90"].item() == 0.01615
    assert not [name for name in points if name.startswith(("icl_s", "itl_s"))]


def test_rates_and_counts_are_of_the_successful_requests(points):
    assert points["output_tok_s"].item() == 26.10157
    assert points["total_tok_s_device"].item() == 405.2768
    assert points["request_s"].item() == pytest.approx(112 / 3291.8332)
    assert (points["completed_requests"].item(), points["failed_requests"].item()) == (112, 0)
    assert points["ttft_s_mean.n"].item() == 112


def test_speed_follows_from_tpot_as_the_tools_own_changed_its_definition(points):
    assert points["tok_s_user_p50"].item() == pytest.approx(1 / 0.00883)
    found = foreign(NAME)
    kept = {one.key: one for one in found.points[0].numbers}
    assert kept["request_metrics.latency.intvty.std"].value == 1052.1097
    assert kept["request_metrics.latency.intvty.p50"].metric is None
    assert any("changed its definition" in note for note in found.notes)


def test_the_configuration_and_the_load_are_told(points):
    assert points["engine.model"].item() == "deepseek-ai/DeepSeek-V4.1-Flash"
    assert points["engine.accelerator"].item() == "h100-dgxc"
    assert (points["engine.spec_decoding"].item(), points["engine.devices"].item()) == ("mtp", 8)
    assert (points["workload.load"].item(), points["workload.concurrency"].item()) == (
        "sessions",
        4,
    )
    assert points["workload.dataset"].item() == "semianalysisai/cc-traces-weka-062126"


def test_energy_of_a_valid_version_is_that_of_all_devices(points):
    assert points["energy_j"].item() == 8609784.934
    assert points["device_power_w"].item() == 2365.325
    tokens = 112 * 767.16071
    assert points["energy_j_token_integral"].item() == pytest.approx(8609784.934 / tokens, rel=1e-4)


@pytest.mark.parametrize("cells", [
    {"power_metric_schema_version": 3}, {"power_metric_schema_version": ...}, {"power_valid": 0},
])  # fmt: skip
def test_energy_without_a_known_version_or_found_invalid_fills_no_metric(cells):
    found = read(changed(**cells))
    assert "energy_j" not in numbers(found.points[0])
    assert numbers(found.points[0])["total_gpu_energy_j"] == 8609784.934
    assert any("Energy and power of 1 rows" in note for note in found.notes)


def test_a_cell_that_is_null_is_missing_and_what_the_server_says_keeps_its_path():
    found = numbers(foreign(NAME).points[0])
    assert found["server_metrics.cache.gpu_cache_hit_rate"] == 0.36214
    assert "server_metrics.cache.cpu_cache_hit_rate" not in found
    gone = numbers(read(changed(request_metrics__latency__ttft__p50=None)).points[0])
    assert gone["ttft_s_p50"] is None


@pytest.mark.parametrize(("cells", "devices"), [
    ({"num_gpus": ...}, 8),
    ({"num_gpus": ..., "tp": ...}, None),
    ({"num_gpus": 4}, None),
    ({"num_gpus": ..., "pp": 2}, None),
    ({"num_gpus": ..., "num_prefill_gpu": 4, "num_decode_gpu": 4, "disagg": True}, 8),
    ({"num_gpus": ..., "num_prefill_gpu": 8, "num_decode_gpu": 0, "is_multinode": True}, 8),
])  # fmt: skip
def test_devices_are_told_only_where_they_fit_the_rates_per_device(cells, devices):
    found = read(changed(**cells))
    (point,) = found.points
    assert point.devices == devices
    fits = not any("do not fit" in note for note in found.notes)
    assert ("total_tok_s_device" in numbers(point)) == fits


def test_errors_of_warm_up_are_no_failures():
    cells = {"records_dropped_total": 50, "records_warmup_dropped": 44, "records_error_dropped": 9}
    row = changed(**{f"request_accounting__{name}": cell for name, cell in cells.items()})
    assert read(row).points[0].failed == 6
    assert read(changed(request_accounting=...)).points[0].failed is None


def test_a_row_in_which_nothing_succeeded_is_a_failed_point(tmp_path):
    row = changed(num_requests_successful=0, request_metrics={"latency": {}, "throughput": {}})
    run = imported(tmp_path, written(tmp_path, "r.json", [row, ROW]))
    assert sorted(str(run.trial(name).state) for name in run.trial_ids()) == ["failed", "ok"]


def test_a_row_that_its_tool_calls_failed_is_invalid():
    assert "failed" in read(changed(benchmark_outcome={"status": "failed"})).points[0].invalid


def test_rows_of_several_versions_share_a_file():
    flat = {"tput_per_gpu": 8.0, "tp": 2, "conc": 4, "isl": 1024, "osl": 1024, "median_itl": 0.02}
    found = read(ROW, flat)
    assert [point.workload["load"] for point in found.points] == ["sessions", "closed"]
    assert numbers(found.points[1])["icl_s_p50"] == 0.02


def test_flat_rows_of_sessions_have_no_gaps_between_chunks():
    """Between the versions rows were flat, with users for concurrency; their ITL is the TPOT."""
    row = {"tput_per_gpu": 8.0, "tp": 2, "users": 16, "scenario_type": "agentic-coding",
           "p50_ttft": 1.5,
           "median_itl": 0.02, "median_tpot": 0.02, "median_intvty": 70.0}  # fmt: skip
    (point,) = read(row).points
    assert point.workload == {"load": "sessions", "concurrency": 16}
    found = numbers(point)
    assert (found["tok_s_user_p50"], found["median_intvty"]) == (50.0, 70.0)
    assert found["ttft_s_p50"] == 1.5
    assert "icl_s_p50" not in found
