"""What becomes of a file that was read: one run a format, nothing doubled, nothing guessed."""

import errno
import json
import multiprocessing
import os
from pathlib import Path

import pytest

from tests.fakes.foreign_files import FOLDER, imported, written
from workbench.confirm import chosen_points
from workbench.errors import DiskFullError, UsageError
from workbench.importers.intake import import_files
from workbench.index import Index
from workbench.pareto import Axis
from workbench.reproduce import replan
from workbench.resumption import resume
from workbench.store import Store

USER = Axis(metric="tok_s_user_p50", direction="max")
RATE = Axis(metric="output_tok_s", direction="max")

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


def test_a_copy_of_a_file_in_one_call_is_told(tmp_path):
    first, second = (written(tmp_path, name, RESULT) for name in ("a.json", "b.json"))
    found = import_files([first, second], Store(tmp_path / "store"))
    assert found.copies == {second: first}


def test_processes_that_import_one_file_at_once_store_it_once(tmp_path):
    path = written(tmp_path, "r.json", RESULT)
    fork = multiprocessing.get_context("fork")
    gate = fork.Barrier(4)

    def take_in():
        gate.wait()
        import_files([path], Store(tmp_path / "store"))

    importers = [fork.Process(target=take_in) for _ in range(4)]
    for one in importers:
        one.start()
    for one in importers:
        one.join()
    assert [one.exitcode for one in importers] == [0] * 4
    assert len(Store(tmp_path / "store").run_ids()) == 1


def test_an_import_that_ends_early_leaves_nothing_that_would_pass_for_the_file(
    tmp_path, monkeypatch
):
    """A run with some of its rows would be known afterwards, and the others lost."""
    rows = [RESULT | {"run_number": k} for k in range(5)]
    path, store = written(tmp_path, "sweep.json", rows), Store(tmp_path / "store")
    written_so_far = []
    real = Path.write_bytes

    def full(self, content):
        written_so_far.append(self)
        if len(written_so_far) > 9:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(DiskFullError, match="none of them was stored") as caught:
            import_files([path], store)
    assert "import again" in str(caught.value)
    assert store.run_ids() == []
    (run,) = import_files([path], store).runs
    assert len(run.trial_ids()) == 5


def test_a_run_is_stored_though_its_index_found_no_room(tmp_path, monkeypatch):
    def full(*_):
        raise DiskFullError("no room", where="index.sqlite")

    monkeypatch.setattr(Index, "add", full)
    run = imported(tmp_path, written(tmp_path, "r.json", RESULT))
    assert len(Store(tmp_path / "store").run(run.run_id).points()) == 1


def test_what_a_killed_import_left_is_removed_by_the_next(tmp_path):
    path, store = written(tmp_path, "r.json", RESULT), Store(tmp_path / "store")
    old, young = (store.path / f".{name}.1.tmp" / "trials" for name in ("old", "young"))
    old.mkdir(parents=True)
    young.mkdir(parents=True)
    os.utime(old.parent, (0, 0))
    import_files([path], store)
    assert not old.parent.exists()
    assert young.exists()


def test_a_store_of_thousands_of_rows_waits_for_the_disk_once(tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr(os, "fsync", waits.append)
    rows = [RESULT | {"run_number": k} for k in range(300)]
    run = imported(tmp_path, written(tmp_path, "sweep.json", rows))
    assert len(run.trial_ids()) == 300
    assert len(waits) < 10 or os.uname().sysname != "Linux"


@pytest.mark.parametrize("devices", [0, -1, 10**12])
def test_a_number_of_devices_that_nobody_has_is_refused(tmp_path, devices):
    with pytest.raises(UsageError, match="no number of devices"):
        imported(tmp_path, written(tmp_path, "r.json", RESULT), devices=devices)


def test_times_of_nothing_and_negative_numbers_are_missing_with_what_the_file_has(tmp_path):
    """vLLM writes a TPOT of 0 where no answer has a second token: the best on any front."""
    odd = RESULT | {"median_tpot_ms": 0.0, "mean_ttft_ms": -5.0, "output_throughput": -3}
    run = imported(tmp_path, written(tmp_path, "r.json", odd))
    (trial,) = [run.trial(name) for name in run.trial_ids()]
    reasons = {name: trial.metrics[name].reason
               for name in ("tpot_compat_s_p50", "ttft_s_mean", "output_tok_s")}  # fmt: skip
    assert reasons == {
        "tpot_compat_s_p50": "the file has 0.0 for it",
        "ttft_s_mean": "the file has -5.0 for it",
        "output_tok_s": "the file has -3 for it",
    }
    assert all(trial.metrics[name].value is None for name in reasons)


NAMES = [
    "日本語 🦙 файл.json",
    "a\nb[red]\x1b[31m.json",
    "-rf.json",
    "bad\udcffname.json",
    "a" * 250,
]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_is_imported_and_outlived(tmp_path, name):
    path = tmp_path / name
    path.write_text(json.dumps(RESULT), encoding="utf-8")
    run = imported(tmp_path, path)
    path.unlink()
    again = Store(tmp_path / "store").run(run.run_id)
    assert len(again.points()) == 1
    assert again.origin["files"][0]["name"].startswith(name[:3])


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


def test_a_trial_reads_back_as_it_was_stored(tmp_path):
    run = imported(tmp_path, written(tmp_path, "r.json", RESULT))
    (trial,) = [run.trial(name) for name in run.trial_ids()]
    kept = {one.key: one for one in trial.foreign}
    assert kept["median_tpot_ms"].value == pytest.approx(0.005)
    assert kept["median_tpot_ms"].unit == "s"
    assert kept["1 / median_tpot_ms"].metric == "tok_s_user_p50"
    assert trial.metrics["ttft_s_mean"].n == 100


@pytest.mark.parametrize("act", [
    lambda run, store: resume(store, run.run_id, retry_failed=True),
    lambda run, _: chosen_points(run, (USER, RATE), None),
    lambda run, store: replan(run, store),
], ids=["resume", "confirm", "reproduce"])  # fmt: skip
def test_what_was_imported_cannot_be_measured_again_and_says_so(tmp_path, act):
    run = imported(tmp_path, written(tmp_path, "r.json", RESULT))
    with pytest.raises(UsageError, match="imported from vLLM bench serve"):
        act(run, Store(tmp_path / "store"))
