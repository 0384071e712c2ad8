"""InferenceX: its real rows with the values that were worked out from them beforehand."""

import pytest
from typer.testing import CliRunner

import workbench as wb
from tests.fakes.foreign_files import FOLDER, document, foreign, imported, numbers
from workbench.cli import app
from workbench.errors import ForeignFileError
from workbench.importers.intake import read_file
from workbench.pareto import front_mask

ROWS = "inferencex/agg_dsr1_1k1k.json"
RAW = "inferencex_raw/dsr1_1k1k_fp4_sglang_tp8_ep1_dpa_false_conc4_b200.json"
DSV4 = "inferencex/dsv4_b300_trt_mtp3_fixed_gbs.json"
X = wb.Axis(metric="tok_s_user_p50", direction="max")
Y = wb.Axis(metric="total_tok_s_device", direction="max")
FRONTS = {
    ("b200", "fp4"): (7, 12),
    ("b200", "fp8"): (5, 5),
    ("b200-trt", "fp4"): (9, 14),
    ("b200-trt", "fp8"): (5, 5),
    ("gb200", "fp4"): (10, 13),
    ("gb200", "fp8"): (9, 11),
    ("h200", "fp8"): (6, 10),
    ("mi300x", "fp8"): (5, 5),
    ("mi325x", "fp8"): (5, 5),
    ("mi355x", "fp4"): (6, 10),
    ("mi355x", "fp8"): (5, 5),
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return imported(tmp_path_factory.mktemp("rows"), FOLDER / ROWS)


def test_every_row_becomes_a_valid_point(rows):
    points = rows.points()
    assert len(points) == 95
    assert points["valid"].all()
    assert points[X.metric].notna().all()
    assert points[Y.metric].notna().all()


def test_fronts_by_hardware_and_precision_have_their_known_sizes(rows):
    points = rows.points()
    front = wb.pareto(points, X, Y, by=["engine.accelerator", "engine.dtype"])
    keys = list(zip(points["engine.accelerator"], points["engine.dtype"], strict=True))
    sizes = {
        key: (sum(m for m, k in zip(front.on_front, keys, strict=True) if k == key),
              keys.count(key))
        for key in set(keys)
    }  # fmt: skip
    assert sizes == FRONTS


def test_one_front_over_all_rows_has_ten_points(rows):
    values = rows.points()[[X.metric, Y.metric]].to_numpy(float)
    assert front_mask(values, ["max", "max"]).sum() == 10


def test_a_front_in_the_terminal_says_once_what_all_its_points_share(rows):
    asked = ["pareto", rows.run_id, "--store", str(rows.folder.parent)]
    shown = CliRunner().invoke(app, asked, env={"COLUMNS": "200"}).output
    (front,) = [one for one in shown.split("Pareto front of")
                if "model=deepseek-ai/DeepSeek-R1-0528, accelerator=b200;" in one]  # fmt: skip
    assert front.count("dtype fp8") == front.count("framework sglang") == 1
    assert [row.split()[0] for row in front.splitlines() if row.startswith(" c")] == [
        *("c64", "c32", "c16", "c8", "c4")
    ]
    assert "c = requests in flight." in shown
    assert "In brackets" not in shown  # no row of that file has an interval


def test_the_spread_that_is_none_is_dropped_with_a_note(rows):
    told = [one.key for trial in rows.trial_ids() for one in rows.trial(trial).foreign]
    assert told
    assert not [key for key in told if key.startswith("std_intvty")]
    assert "std_ttft" in told
    assert any("std_intvty was dropped" in note for note in rows.origin["notes"])


def test_rates_of_a_role_are_no_rates_per_device(rows):
    points = rows.points()
    local = points["engine.framework"].str.startswith("dynamo")
    assert local.sum() == 24
    assert points.loc[local, "output_tok_s_device"].isna().all()
    assert points.loc[~local, "output_tok_s_device"].notna().all()
    assert points.loc[local, "engine.devices"].isna().all()


def test_text_that_means_a_truth_value_is_one(rows):
    assert set(rows.points()["engine.attention_data_parallel"]) == {True, False}


def test_gaps_between_chunks_are_not_taken_for_gaps_between_tokens(rows):
    points = rows.points()
    assert "itl_s_mean" not in points
    assert points["icl_s_mean.basis"].str.contains("gaps between chunks").all()
    trt = points[points["engine.accelerator"] == "b200-trt"]
    assert (trt["icl_s_mean"] / trt["tpot_compat_s_mean"]).median() == pytest.approx(9.9, abs=0.2)


def test_the_raw_file_has_its_known_means():
    (point,) = foreign(RAW).points
    found = numbers(point)
    assert point.samples == 40
    assert found["tpot_compat_s_mean"] == pytest.approx(10.0601e-3, abs=5e-8)
    assert found["e2e_s_mean"] == pytest.approx(10.19071, abs=5e-6)
    assert found["tokens_per_chunk"] == pytest.approx(9.86, abs=5e-3)
    assert found["tok_s_user"] == pytest.approx(99.32, abs=5e-3)
    assert point.workload == {"load": "closed", "batch_size": 4}


def test_a_key_with_a_colon_in_its_name_is_read():
    (point,) = foreign(RAW).points
    (goodput,) = [one for one in point.numbers if one.key == "request_goodput:"]
    assert (goodput.metric, goodput.value) == ("goodput", None)


def test_steps_times_tokens_a_step_is_the_output_rate():
    for point in foreign(DSV4).points:
        found = numbers(point)
        rate = found["decode_step_tput_per_gpu"] * found["acceptance_length"]
        assert rate == pytest.approx(found["output_tok_s_device"], rel=1e-12)
        assert found["tok_s_user_p50"] == pytest.approx(1 / found["median_tpot"])


def test_a_total_that_counts_output_alone_is_no_total():
    found = foreign(DSV4)
    assert all("total_tok_s_device" not in numbers(point) for point in found.points)
    assert all("tput_per_gpu" in numbers(point) for point in found.points)
    assert any("it is no total" in note for note in found.notes)
    assert [point.devices for point in found.points] == [8, 8, 8]


@pytest.mark.parametrize(("concurrency", "tpot_s"), [(16, 0.11806020186847355)])
def test_an_slo_file_is_in_seconds_although_no_key_says_so(concurrency, tpot_s):
    name = f"inferencex_slo/glm5_fp8_vllm_tp8_isl8192_osl128_conc{concurrency}.json"
    (point,) = foreign(name).points
    found = numbers(point)
    assert found["tpot_compat_s_p50"] == tpot_s
    assert found["output_tok_s"] == 115.27410060397719
    assert point.workload == {"load": "closed", "batch_size": concurrency}


def test_a_sweep_matrix_is_told_from_its_results():
    with pytest.raises(ForeignFileError, match="3 InferenceX configurations, without a result"):
        read_file(FOLDER / "inferencex/env_dsr1-fp4-b200-sglang.json")


def test_rows_of_the_app_have_their_metrics_nested():
    from workbench.importers.inferencex import FORMATS

    row = {"config": {"hw": "h100", "tp": 4}, "metrics": {"tput_per_gpu": 8.0, "median_tpot": 0.5}}
    assert FORMATS[0].recognises(document([row]))
    (point,) = FORMATS[0].read(document([row])).points
    assert (point.devices, point.engine["accelerator"]) == (4, "h100")
    assert numbers(point)["tok_s_user_p50"] == 2.0


def test_expert_parallel_ranks_are_no_more_devices():
    from workbench.importers.inferencex import FORMATS

    row = {"tput_per_gpu": 8.0, "tp": 2, "ep": 2}
    (point,) = FORMATS[0].read(document(row)).points
    assert point.devices == 2
