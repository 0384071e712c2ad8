"""The command line: what it prints, what it stores, and how it refuses."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import psutil
import pytest
import yaml

from experiments.plan import load_plan
from tests.fakes import records
from tests.fakes.command import last_json, workbench
from workbench.store import Store

PLAN = {
    "name": "tiny",
    "question": "Does it run?",
    "target": "simulated",
    "protocol": {"name": "quick", "measured_s": 0.02, "warm_up_per_slot": 0},
    "axes": [{"product": {"batch_size": [1, 2], "draft_length": [0, 5]}}],
    "workloads": [{"name": "short", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 4}],
}


def written(folder, **changes):
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump({**PLAN, **changes}))
    return path


def test_a_run_is_planned_measured_listed_shown_and_reported(here):
    path = written(here)
    plan = workbench("plan", path, "--json")
    assert plan.exit_code == 0, plan.output
    assert len(last_json(plan)["trials"]) == 4
    assert last_json(plan)["engine_starts"] == 2
    assert not (here / "results").exists()

    run = workbench("run", path, "--json")
    assert run.exit_code == 0, run.output
    run_id = last_json(run)["run_id"]
    assert last_json(run)["counts"]["ok"] == 4
    planned = {trial["trial_id"] for trial in last_json(plan)["trials"]}
    assert Store("results").run(run_id).trial_ids() == planned
    settings = Store("results").run(run_id).environment["engine_settings"]
    assert sorted(settings["draft_length"]) == [0, 5]  # of every configuration
    assert settings["replay_mode"] == "compact"

    assert last_json(workbench("ls", "--json"))[0]["run_id"] == run_id
    assert last_json(workbench("status", "--json"))["state"] == "complete"
    shown = workbench("show", run_id, "--json")
    assert {item["trial_id"] for item in last_json(shown)["trials"]} == planned
    one = workbench("show", "--trial", sorted(planned)[0], "--json")
    assert last_json(one)["state"] == "ok"
    assert set(last_json(workbench("pareto", "--json"))["members"]) <= planned
    report = workbench("report", "--out", "handed-over", "--json")
    folder = here / "handed-over"
    assert sorted(last_json(report)) == sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    )


def test_repeats_on_the_command_line_take_the_place_of_the_plan_s(here):
    path = written(here, repeats=5)
    run = workbench("run", path, "--repeats", 2, "--json")
    assert run.exit_code == 0, run.output
    assert last_json(run)["planned"] == 8
    assert len(last_json(workbench("plan", path, "--repeats", 1, "--json"))["trials"]) == 4
    assert workbench("run", path, "--repeats", 0).exit_code == 2


def test_a_run_of_prefill_steps_is_told_by_its_prefill_rate(here):
    load = {"kind": "prefill_step", "token_budget": 64, "prompt_tokens": 16}
    axes = [{"product": {"draft_length": [0, 5]}}]
    run = workbench("run", written(here, load=load, axes=axes))
    assert "prompt tok/s" in run.output, run.output
    assert "prefill tok/s" in workbench("show").output
    assert "best so far: Prefill throughput (tok/s)" in workbench("status").output
    front = last_json(workbench("pareto", "--json"))
    assert front["axes"]["y"]["metric"] == "prefill_tok_s"
    assert front["members"]
    asked = workbench("pareto", "--x", "tok_s_user:max", "--y", "prefill_tok_s:max").output
    said = " ".join(asked.split())
    assert "tok_s_user is missing" in said
    assert "Use --x ttft_s_p50:min --y prefill_tok_s:max." in said


def test_the_version_is_told(here):
    assert workbench("--version").stdout.startswith("workbench 0.")


def test_a_foreign_trace_is_refused_by_the_column_it_lacks(here):
    (here / "foreign.csv").write_text("time,ContextTokens,GeneratedTokens\n1,2,3\n")
    trace = {"name": "t", "kind": "trace", "path": "foreign.csv"}
    told = workbench("plan", written(here, workloads=[trace]))
    assert told.exit_code == 2
    said = " ".join(told.stderr.split())
    for words in ("lacks TIMESTAMP", "TIMESTAMP,ContextTokens,GeneratedTokens", "input_length"):
        assert words in said


def test_a_plan_says_what_a_trace_holds(here):
    trace = {"name": "t", "kind": "trace", "path": "sample:azure", "scale": "auto"}
    told = workbench("plan", written(here, workloads=[trace]))
    assert told.exit_code == 0, told.output
    assert "workload t: " in told.stdout
    assert " rows; content: random ids; lengths are those of the trace times" in told.stdout


def test_a_dry_run_measures_and_stores_nothing(here):
    result = workbench("run", written(here), "--dry-run")
    assert result.exit_code == 0
    assert "4 trials" in result.stdout
    assert not (here / "results").exists()


def test_a_cap_on_trials_is_a_cap(here):
    assert last_json(workbench("run", written(here), "--max-trials", 3, "--json"))["planned"] == 3
    summary = Store("results").runs()[0]
    assert (summary.state, sum(summary.counts.values())) == ("complete", 3)


def test_init_writes_a_plan_that_plans_and_is_never_overwritten(here):
    assert workbench("init", "study").exit_code == 0
    plan = yaml.safe_load((here / "study/plan.yaml").read_text())
    result = workbench("run", written(here, **{**plan, "target": "simulated"}), "--dry-run")
    assert result.exit_code == 0, result.output
    again = workbench("init", "study")
    assert again.exit_code == 2
    assert "not overwritten" in again.output


BAD_PLANS = {
    "an unknown axis": ({"axes": [{"product": {"draft_lenght": [1]}}]}, ["draft_length"]),
    "an unknown engine field": ({"engine": {"replay_mod": "off"}}, ["replay_mode"]),
    "an unknown plan field": ({"repeat": 2}, ["repeat", "repeats"]),
    "an axis of the roadmap": ({"axes": [{"product": {"tp": [1, 2]}}]}, ["tp", "tensor"]),
    "contradictory constraints": (
        {"where": ["batch_size > 1", "batch_size < 2"]},
        ["no point is left", "where"],
    ),
    "a draft above the block": ({"engine": {"draft_length": 9}, "axes": []}, ["draft_length"]),
    "a prompt above the context": (
        {"workloads": [{**PLAN["workloads"][0], "prompt_tokens": 10**6}]},
        ["context"],
    ),
    "a constraint that is no comparison": ({"where": ["__import__('os')"]}, ["where"]),
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_a_bad_plan_is_refused_by_name_and_nothing_is_written(here, name):
    changes, words = BAD_PLANS[name]
    result = workbench("run", written(here, **changes))
    assert result.exit_code == 2, result.output
    for word in words:
        assert word in result.stderr
    assert "Traceback" not in result.output
    assert not (here / "results").exists()


@pytest.mark.parametrize("text", ["", "name: [", "- 1", "name: a\nname: b\n", "\0"])
def test_a_file_that_is_no_plan_is_refused(here, text):
    (here / "plan.yaml").write_text(text)
    result = workbench("run", "plan.yaml")
    assert result.exit_code == 2, result.output
    assert "plan.yaml" in result.stderr


def test_absent_files_and_checkpoints_are_refused_by_name(here):
    assert "absent.yaml" in workbench("run", "absent.yaml").stderr
    missing = workbench("run", written(here, target="in_process", engine={"model": "no/such"}))
    assert missing.exit_code == 2
    assert "no/such" in missing.stderr
    assert not (here / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "nothing"], "no run of this store"),
        (["pareto", "--x", "tok_s_user"], "metric:max or metric:min"),
        (["pareto", "--y", "toks_user:max"], "tok_s_user"),
        (["report", "--format", "pdf"], "html, md, csv"),
        (["show", "--trial", "nothing"], "no stored trial"),
        (["make-checkpoint", "huge", "x"], "toy, small"),
    ],
)
def test_a_bad_argument_is_refused_with_the_remedy(here, arguments, words):
    records.fill_store("results", [records.record()])
    result = workbench(*arguments)
    assert result.exit_code == 2, result.output
    assert words in result.stderr


@pytest.mark.parametrize("command", ["show", "status", "pareto", "report"])
def test_an_empty_store_says_how_to_fill_it(here, command):
    result = workbench(command)
    assert result.exit_code == 2
    assert "workbench demo" in result.stderr
    assert "workbench demo" in workbench("ls").stdout


def test_a_store_of_a_newer_version_is_told_and_left_alone(here):
    run = records.fill_store("results", [records.record()])
    path = run.folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 99}))
    before = path.read_bytes()
    for command in ("resume", "show", "report"):
        result = workbench(command, run.run_id)
        assert result.exit_code == 2
        assert "format version 99" in result.stderr
    assert "format version 99" in workbench("ls").stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("simulation", "code", "state"),
    [
        ({"die_after": 0}, 1, "partial"),
        ({"capacity": 1}, 4, "partial"),
        ({"stop_early_every": 1}, 3, "complete"),
    ],
    ids=["nothing measured", "some failed", "a gate failed"],
)
def test_the_exit_code_tells_failures_from_gates(here, simulation, code, state):
    result = workbench("run", written(here, simulation=simulation), "--json")
    assert result.exit_code == code, result.output
    assert last_json(result)["state"] == state


def test_a_run_whose_engine_takes_a_while_to_start_says_so_off_a_terminal_too(here):
    protocol = {"name": "quick", "measured_s": 1.0}
    axes = [{"product": {"batch_size": [1]}}]
    plan = written(here, simulation={"start_s": 2.0}, protocol=protocol, axes=axes)
    said = workbench("run", plan).output
    lines = r"starting the engine: 1 in flight\nthe engine is ready after \d+ s\nok "
    assert re.search(lines, said), said


def test_hostile_texts_are_printed_and_not_obeyed(here):
    records.fill_store("results", records.hostile_records())
    for command in (["show"], ["ls"], ["pareto"]):
        result = workbench(*command)
        assert result.exit_code == 0, result.output
    records.fill_store("results", [records.record()], question="[bold red]x[/] [/nonsense]")
    assert "[/nonsense]" in workbench("show").stdout


def test_a_missing_streamlit_is_told_with_the_line_that_installs_it(here, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = workbench("dashboard")
    assert result.exit_code == 1
    assert "pip install 'streamlit" in result.stderr
    wanted = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    (asked,) = (r for r in wanted["project"]["dependencies"] if r.startswith("streamlit"))
    for part in asked.removeprefix("streamlit").split(","):
        assert part in result.stderr


def test_a_port_that_is_none_is_refused(here):
    result = workbench("dashboard", "--port", 70_000)
    assert result.exit_code == 2
    assert "--port" in result.stderr
    assert "1 to 65535" in result.stderr


def test_the_front_says_its_labels(here):
    records.fill_store("results", records.sweep_records())
    shown = workbench("pareto").stdout
    for label in records.LABELS:
        assert f"note: {label}" in shown


def test_the_demo_reports_the_run_that_it_measured(here, monkeypatch):
    monkeypatch.setattr("workbench.cli_run.loaded", lambda *_: load_plan(PLAN))
    newer = records.fill_store("results", [records.record()])
    later = newer.folder.with_name("29991231-235959-later-0000")
    newer.folder.rename(later)
    facts = json.loads((later / "run.json").read_text())
    (later / "run.json").write_text(json.dumps({**facts, "started_utc": "2999-12-31"}))
    result = workbench("demo", "--json")
    assert result.exit_code == 0, result.output
    assert last_json(result)["planned"] == 4
    assert not (later / "report").exists()


def test_a_printed_command_can_be_pasted(here):
    store = here / "my results"
    protocol = {"name": "quick", "measured_s": 0.5, "warm_up_per_slot": 0}
    path = written(here, protocol=protocol)
    program = Path(sys.executable).with_name("workbench")
    child = subprocess.Popen(
        [str(program), "run", str(path), "--store", str(store)], stdout=subprocess.PIPE, text=True
    )
    for line in child.stdout:
        if line.startswith("ok"):
            child.send_signal(signal.SIGINT)
            break
    rest = child.stdout.read()
    child.wait(timeout=60)
    printed = rest.partition("go on with `")[2].partition("`")[0]
    done = subprocess.run(printed, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, (printed, done.stderr)
    assert Store(store).runs()[0].state == "complete"


def test_what_the_environment_gave_is_kept_for_resume_and_reproduction(here, monkeypatch):
    monkeypatch.setenv("DEEPINFER_USE_NEXTN_DECODE", "3")
    path = written(here, axes=[{"product": {"batch_size": [1, 2]}}])
    told = workbench("run", path)
    assert "draft_length=3 comes from DEEPINFER_USE_NEXTN_DECODE" in told.stdout
    (summary,) = Store("results").runs()
    run = Store("results").run(summary.run_id)
    assert run.plan["engine"] == {"draft_length": 3}
    planned = run.trial_ids()
    forget_one(run)
    monkeypatch.setenv("DEEPINFER_USE_NEXTN_DECODE", "1")
    assert workbench("resume", summary.run_id).exit_code == 0
    assert Store("results").run(summary.run_id).trial_ids() == planned
    workbench("report", summary.run_id, "--out", "out")
    again = workbench("plan", "out/plan.lock.yaml", "--json")
    assert {trial["trial_id"] for trial in last_json(again)["trials"]} == planned


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("packages", {"torch": "1.0"}, "torch changed (1.0 to "),
        ("accelerator", "8 x Other", "the accelerator changed (8 x Other to simulated)"),
        ("plan", None, "the configuration changed (3 trials are not of the plan)"),
    ],
)
def test_resume_refuses_another_torch_accelerator_or_configuration(here, field, value, said):
    run_id = last_json(workbench("run", written(here), "--json"))["run_id"]
    run = Store("results").run(run_id)
    forget_one(run)
    path = run.folder / "run.json"
    stored = json.loads(path.read_text())
    if field == "packages":
        stored["environment"]["packages"] = value
    elif field == "plan":
        stored["plan"]["engine"]["replay_mode"] = "off"
    else:
        stored[field] = value
    path.write_text(json.dumps(stored))
    refused = workbench("resume", run_id)
    assert refused.exit_code == 2, refused.output
    assert said in " ".join(refused.stderr.split())


def forget_one(run):
    """Remove one stored trial, as if it had never been measured."""
    victim = sorted(run.trial_ids())[0]
    for path in run.files(victim).values():
        path.unlink()
    (run.folder / "trials" / victim).rmdir()


def test_a_checkpoint_that_lacks_a_tensor_is_refused_and_nothing_is_written(here):
    from safetensors.torch import load_file, save_file

    assert workbench("make-checkpoint", "toy", "broken").exit_code == 0
    (path,) = (here / "broken").glob("*.safetensors")
    tensors = load_file(path)
    name = sorted(tensors)[0]
    tensors.pop(name)
    save_file(tensors, path)
    result = workbench("run", written(here, target="in_process", engine={"model": "broken"}))
    assert result.exit_code == 2, result.output
    assert f"{name} is missing" in result.stderr
    assert not (here / "results").exists()


def test_resume_refuses_changed_code_and_labels_what_it_measures_then(here, monkeypatch):
    run_id = last_json(workbench("run", written(here), "--json"))["run_id"]
    run = Store("results").run(run_id)
    forget_one(run)
    monkeypatch.setattr("workbench.runs.code_version", lambda: "0.1.0+changed")
    refused = workbench("resume", run_id)
    assert refused.exit_code == 2
    assert "--allow-drift" in refused.stderr
    allowed = workbench("resume", run_id, "--allow-drift", "--json")
    assert allowed.exit_code == 0, allowed.output
    points = Store("results").run(run_id).points()
    assert len(points) == 4
    drifted = [any("changed" in label for label in labels) for labels in points["labels"]]
    assert sum(drifted) == 1


def test_failed_trials_are_measured_again_on_request_and_none_is_lost(here):
    path = written(here, simulation={"capacity": 1})
    run_id = last_json(workbench("run", path, "--json"))["run_id"]
    run = Store("results").run(run_id)
    failed = {str(d["trial_id"]) for d in run.documents() if d["state"] != "ok"}
    assert len(failed) == 2
    plain = workbench("resume")
    assert plain.exit_code == 4
    assert "nothing is left to measure" in plain.stdout
    assert "2 failed or skipped trials are not measured again" in plain.stdout
    assert "resume " + run_id + " --retry-failed" in plain.stdout

    facts = json.loads((run.folder / "run.json").read_text())
    for times in (1, 2):
        again = workbench("resume", "--retry-failed", "--json")
        assert "2 trials, about" in again.stdout
        assert last_json(again)["counts"]["ok"] == 2
        run = Store("results").run(run_id)
        assert {f"{name}.retry{n}" for name in failed for n in range(1, times + 1)} | failed < set(
            run.trial_ids()
        )
        assert len(run.points()) == 4
        shown = {str(name) for name in run.points()["trial_id"]}
        assert {f"{name}.retry{times}" for name in failed} < shown
    assert json.loads((run.folder / "run.json").read_text()) == facts
    assert workbench("ls", "--reindex").exit_code == 0
    assert len(Store("results").run(run_id).trial_ids()) == 8


def test_a_complete_run_says_that_nothing_is_left(here):
    run_id = last_json(workbench("run", written(here), "--json"))["run_id"]
    told = workbench("resume", run_id)
    assert told.exit_code == 0
    assert "nothing is left to measure" in told.stdout
    none = workbench("resume")
    assert none.exit_code == 2
    assert "no run that was cut short" in none.stderr


def test_resume_takes_the_newest_interrupted_run_and_forecasts_what_is_left(here):
    run_id = last_json(workbench("run", written(here), "--json"))["run_id"]
    forget_one(Store("results").run(run_id))
    told = workbench("resume", "--json")
    assert told.exit_code == 0, told.output
    assert f"run {run_id}: 1 trials, about " in told.stdout
    assert last_json(told)["state"] == "complete"


def test_tables_fit_eighty_columns_and_no_id_is_broken(here):
    run = records.fill_store("results", records.sweep_records())
    summary = run.summary
    listed = workbench("ls").stdout.splitlines()
    assert any(line.startswith(f"{run.run_id}  {summary.state}, ") for line in listed)
    assert f"  {summary.model}: {summary.question}" in listed
    for command in ("ls", "show", "pareto"):
        lines = workbench(command).stdout.splitlines()
        table = [line for line in lines if line.startswith("c1") or " c1" in line]
        assert max(map(len, table), default=0) <= 80
    shown = workbench("show").stdout
    for name in run.trial_ids():
        assert name[:8] in shown
        assert name not in shown
    assert "c = requests in flight" in shown
    assert "within-run" in shown
    wide = workbench("show", "--wide").stdout
    for name in run.trial_ids():
        assert name in wide
    assert "within-run" in workbench("pareto").stdout


def test_one_trial_is_shown_by_the_beginning_of_its_id(here):
    run = records.fill_store("results", records.sweep_records())
    trial = next(str(d["trial_id"]) for d in run.documents() if d["state"] == "ok")
    shown = workbench("show", "--trial", trial[:8], "--json")
    assert last_json(shown)["trial_id"] == trial
    text = shown.stdout
    assert "tok/s/user" in text
    assert "missing: " in text
    assert "energy_j_token (no device counts energy here)" in " ".join(text.split())
    assert "0.00000" not in text.partition("engine.log")[0]
    several = workbench("show", "--trial", "")
    assert several.exit_code == 2
    assert "fits several trials" in several.stderr


def test_the_front_as_json_holds_axes_values_and_intervals(here):
    run = records.fill_store("results", records.sweep_records())
    found = last_json(workbench("pareto", "--json"))
    assert found["axes"]["x"] == {"metric": "tok_s_user", "direction": "max", "unit": "tok/s/user"}
    assert len(found["points"]) == len(run.documents())
    best = [point for point in found["points"] if point["on_front"]]
    assert [point["trial_id"] for point in best] == found["members"]
    for point in best:
        assert point["y"]["low"] < point["y"]["value"] < point["y"]["high"]
        assert point["group"] in found["groups"]
        assert point["point"]["batch_size"] in (1, 4, 16)
    left_out = [point for point in found["points"] if point["excluded"]]
    assert {point["trial_id"] for point in left_out} == set(found["excluded"])


PAGES = """
import os, pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path("pids.tmp").write_text(f"{os.getpid()} {child.pid}")
pathlib.Path("pids.tmp").rename("pids")
child.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_dashboard_ends_every_process_of_it(here, number):
    (here / "dashboards").mkdir()
    (here / "dashboards" / "__init__.py").touch()  # before the real ones, wherever they lie
    (here / "dashboards" / "__main__.py").write_text(PAGES)
    server = subprocess.Popen([sys.executable, "-m", "workbench", "dashboard"], cwd=here)
    pids = here / "pids"
    try:
        wait_until(pids.exists)
    finally:
        server.send_signal(number)
        server.wait(timeout=20)
    for pid in map(int, pids.read_text().split()):
        wait_until(lambda pid=pid: not psutil.pid_exists(pid) or dead(pid))


def dead(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "waited for 20 s"
        time.sleep(0.05)


WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in (
            "streamlit", "duckdb", "plotly", "pandas", "IPython", "jinja2", "jupyterlab",
            "httpx", "sniffio", "optuna",
        ):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from workbench.cli import main
main()
"""


def test_measuring_needs_none_of_the_packages_that_show(here):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, "run", str(written(here))], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert sum(Store("results").runs()[0].counts.values()) == 4


def test_one_interrupt_ends_after_the_trial_and_resume_does_the_rest(here):
    path = written(here, protocol={"name": "quick", "measured_s": 0.5, "warm_up_per_slot": 0})
    child = subprocess.Popen(
        [sys.executable, "-u", "-m", "workbench", "run", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    for line in child.stdout:
        if line.startswith("ok"):
            child.send_signal(signal.SIGINT)
            break
    rest = child.stdout.read()
    assert child.wait(timeout=60) == 130, rest
    assert "workbench resume" in rest
    summary = Store("results").runs()[0]
    assert summary.state == "interrupted"
    before = Store("results").run(summary.run_id).trial_ids()
    assert 1 <= len(before) < 4
    resumed = workbench("resume", summary.run_id, "--json")
    assert resumed.exit_code == 0, resumed.output
    assert last_json(resumed)["state"] == "complete"


def test_a_second_interrupt_gives_the_trial_up_and_says_how_to_go_on(here):
    path = written(here, protocol={"name": "quick", "measured_s": 5.0, "warm_up_per_slot": 0})
    child = subprocess.Popen(
        [sys.executable, "-u", "-m", "workbench", "run", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    for line in child.stdout:
        if line.startswith("ok"):
            break
    for _ in range(2):
        time.sleep(1.0)  # until the next trial is under load, and the first is heard
        child.send_signal(signal.SIGINT)
    rest = child.stdout.read()
    assert child.wait(timeout=60) == 130, rest
    assert "cancelled" in rest
    assert re.search("^go on with `.*workbench resume ", rest, re.MULTILINE)


def test_help_needs_neither_torch_nor_pandas():
    code = (
        "import sys; from workbench.cli import app; "
        "print([m for m in ('torch', 'pandas', 'plotly', 'streamlit') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_dry_run_prints_its_points_as_json(here):
    result = workbench("run", written(here), "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    assert len(last_json(result)["trials"]) == 4


def test_a_folder_of_too_long_a_name_is_refused(here):
    result = workbench("init", "x" * 300)
    assert result.exit_code == 2
    assert "File name too long" in result.stderr


def test_pages_on_a_port_in_use_are_refused_before_an_address_is_printed(here):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = workbench("dashboard", "--port", port)
    assert result.exit_code == 1
    assert f"listens on port {port}" in result.stderr
    assert "http" not in result.output


def test_no_text_of_a_run_acts_on_the_terminal(here):
    records.fill_store("results", [records.record()], question="Red \x1b[31m?\x07 \x9b2J \0")
    for command in ("ls", "show", "pareto"):
        told = workbench(command)
        assert told.exit_code == 0, told.output
        assert not set("\x1b\x07\x9b\0") & set(told.output)
    assert "\\x1b[31m" in workbench("show").output


def test_a_terminal_without_the_characters_gets_question_marks(here):
    assert workbench("run", written(here, question="Wie schnell? \u221e")).exit_code == 0
    shown = subprocess.run(
        [sys.executable, "-m", "workbench", "show"],
        env={
            **os.environ,
            "PYTHONIOENCODING": "ascii",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        capture_output=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert b"Wie schnell? ?" in shown.stdout
