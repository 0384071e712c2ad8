"""Files of one call that are not alike: some refused, some of a folder, some of one run."""

import json
import os
import shutil

import pytest

from tests.fakes.command import last_json, workbench
from tests.fakes.foreign_files import FOLDER, written
from workbench.errors import ForeignFileError, UsageError
from workbench.importers import folders
from workbench.importers.catalogue import FORMATS
from workbench.importers.intake import import_files
from workbench.store import Store

AIPERF = FOLDER / "aiperf"
SUMMARY = "qwen_concurrency1_profile_export_aiperf.json"
RECORDS = "qwen_concurrency1_profile_export.jsonl"
TELEMETRY = "qwen_concurrency1_gpu_telemetry_export.jsonl"
GROQ = FOLDER / "llmperf/summary_groq_70b.json"
B300 = FOLDER / "inferencex/dsv4_b300_trt_mtp3_fixed_gbs.json"
MATRIX = FOLDER / "inferencex/env_dsr1-fp4-b200-sglang.json"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def put(folder, *names):
    """Files of AIPerf in a folder, each under its name or another: `(name, other)`."""
    folder.mkdir(exist_ok=True)
    for name in names:
        here, there = (name, name) if isinstance(name, str) else name
        shutil.copy(AIPERF / here, folder / there)
    return folder


def test_what_can_be_read_is_stored_beside_what_is_refused(tmp_path, store):
    cut = written(tmp_path, "cut.json", '{"a":')
    found = import_files([GROQ, cut, B300], store)
    assert [run.origin["format"] for run in found.runs] == ["llmperf", "inferencex"]
    assert list(found.refused) == [cut]
    assert isinstance(found.refused[cut], ForeignFileError)


def test_a_file_that_contradicts_the_stated_devices_is_refused_alone(store):
    found = import_files([GROQ, B300], store, devices=4)
    assert [run.origin["format"] for run in found.runs] == ["llmperf"]
    assert isinstance(found.refused[B300], UsageError)


def test_where_every_file_is_refused_no_store_is_made(tmp_path, store):
    found = import_files([written(tmp_path, "a.json", "{}")], store)
    assert len(found.refused) == 1
    assert not store.path.exists()


@pytest.mark.parametrize(
    ("files", "code"), [([GROQ], 0), ([GROQ, MATRIX], 1), ([MATRIX], 2), ([MATRIX, MATRIX], 2)]
)
def test_the_exit_code_says_whether_some_or_all_were_refused(tmp_path, files, code):
    done = workbench("import", *files, "--store", tmp_path / "store", "--json")
    assert done.exit_code == code, done.output
    told = last_json(done)
    assert [one["file"] for one in told["refused"]] == [str(MATRIX)] * (code > 0)
    assert len(told["runs"]) == (code < 2)
    assert ("without a result" in done.stderr) == (code > 0)


def test_what_to_do_about_several_files_is_told_once(tmp_path):
    cuts = [written(tmp_path, f"{k}.json", '{"a":') for k in range(3)]
    done = workbench("import", GROQ, *cuts, "--store", tmp_path / "store")
    assert done.stderr.count("damaged JSON") == 3
    assert done.stderr.count("cut short") == 1
    assert "stored 1 file in 1 run, refused 3" in done.output


def test_a_folder_gives_what_is_recognised_in_it_and_below(tmp_path, store):
    folder = tmp_path / "results"
    deep, hidden = folder / "a/b", folder / ".cache"
    deep.mkdir(parents=True)
    hidden.mkdir()
    for place in (deep, hidden):
        shutil.copy(GROQ, place)
    shutil.copy(MATRIX, folder)
    (folder / "README.md").write_text("# Results\nname: [what\n")
    (folder / "server.log").write_text("INFO, started\n" * 5)
    (folder / "weights.bin").write_bytes(bytes(range(256)))
    os.mkfifo(folder / "pipe")
    (folder / "nowhere").symlink_to(folder / "absent")
    found = import_files([folder], store)
    (run,) = found.runs
    assert (run.origin["format"], dict(found.refused)) == ("llmperf", {})
    assert {path.name: what.partition(" (")[0] for path, what in found.left_out.items()} == {
        "README.md": "is no result of a known tool: damaged YAML",
        "env_dsr1-fp4-b200-sglang.json": "is a matrix of 3 InferenceX configurations, "
        "without a result.",
        "server.log": "is CSV of no tool that is known: it holds the columns 'INFO', ' started'.",
        "weights.bin": "is no JSON, YAML or CSV.",
    }


def test_a_damaged_result_of_a_folder_is_refused_and_not_left_out(tmp_path, store):
    folder = put(tmp_path / "run", SUMMARY)
    cut = written(folder, "other.json", (AIPERF / SUMMARY).read_text()[:900])
    found = import_files([folder], store)
    assert len(found.runs) == 1
    assert list(found.refused) == [cut]
    assert not found.left_out


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("b.json", b"", "is empty."),
        ("b.jsonl", b"\n \n", "is empty."),
        ("B.JSON", b"\0" * 64, "is called JSON and begins with '\\x00"),
        ("b.json.gz", b"\x1f\x8bcut", "is called JSON and begins with bytes that are no text."),
        ("b.json", b"Killed\n", "is called JSON and begins with 'Killed\\n'."),
    ],
)
def test_a_file_called_json_that_holds_none_is_refused(tmp_path, store, name, content, words):
    folder = put(tmp_path / "run", SUMMARY)
    (folder / name).write_bytes(content)
    found = import_files([folder], store)
    assert len(found.runs) == 1
    assert not found.left_out
    (error,) = found.refused.values()
    assert error.what.startswith(words)
    assert error.where == str(folder / name)


def test_an_empty_file_of_another_name_is_left_out(tmp_path, store):
    folder = put(tmp_path / "run", SUMMARY)
    (folder / "py.typed").touch()
    assert [*import_files([folder], store).left_out] == [folder / "py.typed"]


def test_files_that_were_left_out_are_told_and_where_their_reasons_are(tmp_path):
    folder = put(tmp_path / "run", SUMMARY)
    written(folder, "notes.txt", "Hello.")
    done = workbench("import", folder, "--store", tmp_path / "store", "--json")
    assert "left out, as no results (`--json` says why)" in " ".join(done.stdout.split())
    assert last_json(done)["left_out"] == {str(folder / "notes.txt"): "is no JSON, YAML or CSV."}


def test_every_format_is_told_in_a_line_of_its_own():
    lines = workbench("import", "--formats").stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == [one.name for one in FORMATS]
    [told] = [line for line in lines if line.startswith("sglang-serving:")]
    assert "`output_throughput`; checked on a real file: yes" in told


def test_a_folder_without_a_result_is_refused(tmp_path, store):
    (tmp_path / "empty").mkdir()
    (error,) = import_files([tmp_path / "empty"], store).refused.values()
    assert "without a result" in error.what


def test_a_file_that_is_named_with_its_folder_is_read_once(tmp_path, store):
    folder = put(tmp_path / "run", SUMMARY)
    for asked in ([folder, folder / SUMMARY], [folder / SUMMARY, folder]):
        found = import_files(asked, store)
        assert (len(found.runs) + len(found.known), found.copies, found.refused) == (1, {}, {})


def test_a_folder_of_too_many_files_is_refused(tmp_path, store, monkeypatch):
    monkeypatch.setattr(folders, "MOST_FILES", 3)
    for k in range(4):
        written(tmp_path, f"{k}.json", "{}")
    (error,) = import_files([tmp_path], store).refused.values()
    assert "more than 3 files" in error.what


def test_a_long_text_that_is_no_json_is_not_read_for_its_first_line(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "MOST_TEXT_BYTES", 100)
    log = written(tmp_path, "x.log", "a, b\n" * 100)
    large = written(tmp_path, "x.json", "[" + "1, " * 100 + "1]")
    assert (folders.may_be_result(log), folders.may_be_result(large)) == (False, True)


def joined_run(found, name="aiperf"):
    (run,) = [run for run in found.runs if run.origin["format"] == name]
    return run, [run.trial(one) for one in run.trial_ids()]


def test_telemetry_is_joined_to_the_run_of_its_folder(tmp_path, store):
    found = import_files([put(tmp_path / "run", SUMMARY, RECORDS, TELEMETRY)], store)
    assert sorted(run.origin["format"] for run in found.runs) == ["aiperf", "aiperf-records"]
    assert [path.name for path in found.joined] == [TELEMETRY]
    run, (trial,) = joined_run(found)
    assert [file["name"] for file in run.origin["files"]] == [SUMMARY, TELEMETRY]
    assert run.summary.accelerator == "NVIDIA RTX 6000 Ada Generation"
    assert len(trial.telemetry) == 10
    assert "gpu_power_usage" in str([one.key for one in trial.foreign])
    assert trial.metrics["ttft_s_mean"].value is not None


def test_time_of_joined_telemetry_begins_at_the_first_request(tmp_path, store):
    """The file was cut: its samples end before the first request, which is told."""
    run, (trial,) = joined_run(import_files([put(tmp_path / "run", SUMMARY, TELEMETRY)], store))
    assert trial.telemetry[0].time_s == pytest.approx(
        1762551530.946074 - 1762551534.797068, abs=1e-4
    )
    assert any("between the first request" in note for note in run.origin["notes"])


def test_samples_within_the_requests_need_no_note(tmp_path, store):
    folder = put(tmp_path / "run", RECORDS)
    rows = [json.loads(line) for line in (AIPERF / TELEMETRY).read_text().splitlines()]
    moved = [row | {"timestamp_ns": row["timestamp_ns"] + 10_000_000_000} for row in rows]
    written(folder, TELEMETRY, "\n".join(map(json.dumps, moved)))
    run, _ = joined_run(import_files([folder], store), "aiperf-records")
    assert not any("between the first request" in note for note in run.origin["notes"])


@pytest.mark.parametrize(("summary", "telemetry"), [
    ("profile_export_aiperf.json", "gpu_telemetry_export.jsonl"),
    ("mine.json", "mine_gpu_telemetry.jsonl"),
    (SUMMARY, TELEMETRY),
])  # fmt: skip
def test_telemetry_that_lies_beside_the_named_file_is_found(tmp_path, store, summary, telemetry):
    folder = put(tmp_path / "run", (SUMMARY, summary), (TELEMETRY, telemetry))
    run, (trial,) = joined_run(import_files([folder / summary], store))
    assert len(trial.telemetry) == 10
    assert [file["name"] for file in run.origin["files"]] == [summary, telemetry]
    assert import_files([folder / telemetry], store).known == {folder / telemetry: run.run_id}


def test_telemetry_of_another_run_is_joined_to_none(tmp_path, store):
    other = "qwen_concurrency2_profile_export_aiperf.json"
    folder = put(tmp_path / "run", SUMMARY, other, (TELEMETRY, "third_gpu_telemetry_export.jsonl"))
    found = import_files([folder], store)
    assert not found.joined
    assert "aiperf-telemetry" in [run.origin["format"] for run in found.runs]
    (tmp_path / "far").mkdir()
    apart = import_files([put(tmp_path / "a", SUMMARY), put(tmp_path / "far", TELEMETRY)],
                         Store(tmp_path / "second"))  # fmt: skip
    assert not apart.joined


def test_the_only_telemetry_of_the_only_run_of_a_folder_may_have_any_name(tmp_path, store):
    folder = put(tmp_path / "run", (SUMMARY, "a.json"), (TELEMETRY, "sensors"))
    assert [path.name for path in import_files([folder], store).joined] == ["sensors"]


def test_damaged_telemetry_beside_a_file_is_told_and_the_file_stored(tmp_path, store):
    folder = put(tmp_path / "run", SUMMARY)
    written(folder, TELEMETRY, '{"timestamp_ns": 1}\n{"a"')
    run, (trial,) = joined_run(import_files([folder / SUMMARY], store))
    assert trial.telemetry == ()
    assert any(f"{TELEMETRY} beside it was left out" in note for note in run.origin["notes"])


def test_a_table_beside_its_summary_is_stored_once(tmp_path, store):
    folder = put(tmp_path / "run", (SUMMARY, "profile_export_aiperf.json"))
    told = json.loads((AIPERF / SUMMARY).read_text())["request_latency"]
    rows = f"Metric,avg,p50\nRequest Latency (ms),{told['avg']:.2f},{told['p50']:.2f}\n"
    table = written(folder, "profile_export_aiperf.csv", rows)
    found = import_files([folder], store)
    assert found.copies == {table: folder / "profile_export_aiperf.json"}
    other = written(folder, "profile_export_aiperf.csv", rows.replace(",", ",9", 2))
    assert import_files([other, folder], Store(tmp_path / "second")).copies == {}
