"""What becomes of a file that was read: one run a format, nothing doubled, nothing guessed."""

import pytest

from tests.fakes.foreign_files import FOLDER, imported, written
from workbench.errors import ForeignFileError, UsageError
from workbench.importers.intake import import_files
from workbench.store import Store

RESULT = {
    "model_id": "m", "backend": "vllm", "request_rate": "inf", "max_concurrency": 8,
    "completed": 100, "failed": 0, "duration": 10.0, "total_input_tokens": 1000,
    "total_output_tokens": 2000, "request_throughput": 10.0, "output_throughput": 200.0,
    "total_token_throughput": 300.0, "mean_ttft_ms": 20.0, "median_tpot_ms": 5.0,
}  # fmt: skip


def test_the_origin_of_a_run_is_stored_with_it(tmp_path):
    path = written(tmp_path, "result.json", RESULT)
    run = imported(tmp_path, path)
    assert run.origin["tool"] == "vLLM bench serve"
    (file,) = run.origin["files"]
    assert file["name"] == "result.json"
    assert len(file["sha256"]) == 64
    assert run.summary.engine == "imported"
    assert run.summary.state == "complete"


def test_every_metric_tells_how_its_tool_came_by_it(tmp_path):
    points = imported(tmp_path, written(tmp_path, "r.json", RESULT)).points()
    assert points["ttft_s_mean"].item() == pytest.approx(0.02)
    assert points["ttft_s_mean.basis"].item().startswith("vLLM bench serve mean_ttft_ms: mean of")
    assert points["tok_s_user_p50"].item() == pytest.approx(200.0)
    assert "output tokens - 1" in points["tok_s_user_p50.basis"].item()


def test_a_number_of_devices_is_never_guessed(tmp_path):
    points = imported(tmp_path, written(tmp_path, "r.json", RESULT)).points()
    assert points["output_tok_s_device"].isna().all()
    assert "--gpus" in points["output_tok_s_device.reason"].item()


def test_a_number_of_devices_that_is_stated_gives_rates_per_device(tmp_path):
    run = imported(tmp_path, written(tmp_path, "r.json", RESULT), devices=4)
    points = run.points()
    assert points["output_tok_s_device"].item() == 50.0
    assert points["total_tok_s_device"].item() == 75.0
    assert "divided by 4 devices" in points["output_tok_s_device.basis"].item()
    assert run.origin["devices_stated"] == 4


def test_a_number_of_devices_that_contradicts_the_file_is_refused(tmp_path):
    path = FOLDER / "inferencex/dsv4_b300_trt_mtp3_fixed_gbs.json"
    with pytest.raises(UsageError, match="tells 8 devices"):
        imported(tmp_path, path, devices=4)
    assert not (tmp_path / "store").exists()


def test_the_same_file_a_second_time_is_named_and_not_doubled(tmp_path):
    path = written(tmp_path, "r.json", RESULT)
    run = imported(tmp_path, path)
    again = import_files([path], Store(tmp_path / "store"))
    assert not again.runs
    assert again.known == {path: run.run_id}
    assert len(Store(tmp_path / "store").run_ids()) == 1


def test_a_copy_of_a_file_in_one_call_is_not_doubled(tmp_path):
    paths = [written(tmp_path, name, RESULT) for name in ("a.json", "b.json")]
    assert len(imported(tmp_path, *paths).points()) == 1


def test_results_of_one_configuration_are_kept_apart(tmp_path):
    second = RESULT | {"output_throughput": 190.0}
    paths = [written(tmp_path, f"{k}.json", one) for k, one in enumerate((RESULT, second))]
    points = imported(tmp_path, *paths).points()
    assert sorted(points["output_tok_s"]) == [190.0, 200.0]
    assert sorted(points["axis.duplicate"]) == [1, 2]


def test_files_of_one_tool_are_one_run_with_what_varies_as_axes(tmp_path):
    paths = [written(tmp_path, f"{c}.json", RESULT | {"max_concurrency": c}) for c in (1, 8, 64)]
    points = imported(tmp_path, *paths).points()
    assert points["axis.batch_size"].tolist() == [1, 8, 64]
    assert [name for name in points if name.startswith("axis.")] == ["axis.batch_size"]


def test_where_no_request_succeeded_zeros_are_no_numbers(tmp_path):
    empty = dict.fromkeys(RESULT, 0) | {"model_id": "m", "failed": 40, "completed": 0}
    run = imported(tmp_path, written(tmp_path, "r.json", empty))
    (trial,) = [run.trial(name) for name in run.trial_ids()]
    assert (str(trial.state), trial.reason) == ("failed", "no request succeeded, 40 failed")
    assert trial.metrics == {}
    (ttft,) = [one for one in trial.foreign if one.key == "mean_ttft_ms"]
    assert ttft.value is None


def test_nothing_is_stored_where_one_of_the_files_cannot_be_read(tmp_path):
    good, bad = written(tmp_path, "a.json", RESULT), written(tmp_path, "b.json", '{"a": 1}')
    with pytest.raises(ForeignFileError, match=r"b\.json.*the keys 'a'"):
        import_files([good, bad], Store(tmp_path / "store"))
    assert not (tmp_path / "store").exists()


def test_a_trial_reads_back_as_it_was_stored(tmp_path):
    run = imported(tmp_path, written(tmp_path, "r.json", RESULT))
    (trial,) = [run.trial(name) for name in run.trial_ids()]
    kept = {one.key: one for one in trial.foreign}
    assert kept["median_tpot_ms"].value == pytest.approx(0.005)
    assert kept["median_tpot_ms"].unit == "s"
    assert kept["1 / median_tpot_ms"].metric == "tok_s_user_p50"
    assert trial.metrics["ttft_s_mean"].n == 100
