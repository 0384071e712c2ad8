"""The evidence of a device: which steps run, within which time, and what is left when they end."""

import json
import sys
import time
from pathlib import Path

import psutil
import pytest

from workbench.errors import EvidenceError
from workbench.evidence import __main__ as program
from workbench.evidence import children, steps
from workbench.evidence.__main__ import collect, exit_code, run, table
from workbench.evidence.children import run_side_by_side
from workbench.evidence.ledger import NAME, Ledger, State
from workbench.evidence.steps import Command, Step
from workbench.importers.intake import import_files
from workbench.store import Store

WRITES = """
import json, pathlib, sys
path = sys.argv[sys.argv.index("--json") + 1]
pathlib.Path(path).write_text(json.dumps({"beside": sys.argv.count("--beside")}))
"""


def command(name, code, **fields):
    return Command(name=name, words=(sys.executable, "-c", code), **fields)


def step(name, *codes, limit_s=30.0, **fields):
    commands = tuple(command(f"{name}-{i}", code) for i, code in enumerate(codes))
    return Step(name=name, question="?", limit_s=limit_s, commands=commands, **fields)


def states(out, *names):
    return [Ledger(out).entry(name).state for name in names]


def test_steps_run_in_order_and_each_has_a_log_and_an_entry(tmp_path, capsys):
    every = [step("a", "print(1)", "print(2)"), step("b", "raise SystemExit(3)"), step("c", "")]
    collect(every, tmp_path, jobs=2, limit_s=60)
    assert states(tmp_path, "a", "b", "c") == ["done", "failed", "done"]
    assert (tmp_path / "a-1.log").read_text() == "2\n"
    entry = Ledger(tmp_path).entry("b")
    assert entry.why == "b-0 ended with 3"
    assert entry.commands[0]["exit_code"] == 3
    assert exit_code(every, tmp_path) == 1
    assert "b-0 ended with 3" in "\n".join(table(every, tmp_path))


def test_done_steps_are_skipped_and_failed_ones_come_after_those_that_never_ran(tmp_path, capsys):
    fails = step(
        "fails",
        f"import pathlib, sys; sys.exit(not pathlib.Path({str(tmp_path)!r}, 'ok').exists())",
    )
    collect([step("a", ""), fails], tmp_path, jobs=1, limit_s=60)
    (tmp_path / "ok").touch()
    capsys.readouterr()
    every = [step("a", "raise SystemExit(1)"), fails, step("new", "")]
    collect(every, tmp_path, jobs=1, limit_s=60)
    told = capsys.readouterr().out
    assert "a: ?" not in told
    assert told.index("new: ?") < told.index("fails: ?")
    assert states(tmp_path, "a", "fails", "new") == ["done"] * 3
    assert Ledger(tmp_path).entry("fails").attempts == 2
    assert exit_code(every, tmp_path) == 0


class UpOnceThereIs:
    """A clock that leaps beyond every limit as soon as a file has something in it."""

    def __init__(self, path):
        self.path = path

    def monotonic(self):
        told = self.path.is_file() and self.path.read_text().endswith("\n")
        return time.monotonic() + (1e6 if told else 0)

    sleep = staticmethod(time.sleep)


def test_a_step_beyond_its_time_is_cut_with_all_that_it_started(tmp_path, monkeypatch, capsys):
    code = ("import subprocess, sys; "
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
            "print(child.pid, flush=True); child.wait()")  # fmt: skip
    every = [step("slow", code, limit_s=200.0)]
    log = tmp_path / "slow-0.log"
    monkeypatch.setattr(children, "time", UpOnceThereIs(log))
    collect(every, tmp_path, jobs=1, limit_s=250)
    assert states(tmp_path, "slow") == ["cut"]
    assert Ledger(tmp_path).entry("slow").why == "out of time: slow-0"
    pid = int(log.read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert exit_code(every, tmp_path) == program.EXIT_PARTIAL


def test_commands_that_never_got_a_place_are_cut_too(tmp_path):
    ended = run_side_by_side(
        [command("first", "import time; time.sleep(60)"), command("second", "")],
        tmp_path, jobs=1, limit_s=1.0,
    )  # fmt: skip
    assert [(one.name, one.exit_code) for one in ended] == [("first", None), ("second", None)]
    assert not (tmp_path / "second.log").exists()


def test_no_step_begins_without_time_and_what_did_not_begin_waits(tmp_path, capsys):
    every = [step("a", "")]
    collect(every, tmp_path, jobs=1, limit_s=program.LEAST_S / 2)
    assert states(tmp_path, "a") == ["waiting"]
    assert exit_code(every, tmp_path) == program.EXIT_PARTIAL


def test_a_step_that_cannot_run_here_is_left_out_with_its_reason(tmp_path, capsys):
    every = [step("a", "", lacking="not installed: pytest")]
    collect(every, tmp_path, jobs=1, limit_s=60)
    assert states(tmp_path, "a") == [State.LEFT_OUT]
    assert "not installed: pytest" in table(every, tmp_path)[0]
    assert exit_code(every, tmp_path) == program.EXIT_PARTIAL


def test_a_program_that_is_ended_in_a_step_leaves_it_cut(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "run_side_by_side", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collect([step("a", "")], tmp_path, jobs=1, limit_s=60)
    assert states(tmp_path, "a") == ["cut"]


def test_each_attempt_writes_a_document_of_its_own_beside_the_earlier_ones(tmp_path):
    told = command("bench", WRITES, is_told=True)
    for _ in range(3):
        run_side_by_side([told], tmp_path, jobs=1, limit_s=30)
    found = children.documents_of(told, tmp_path)
    assert [path.name for path in found] == ["bench.json", "bench.2.json", "bench.3.json"]
    assert [json.loads(path.read_text())["beside"] for path in found] == [0, 1, 2]


def test_words_are_told_their_time_and_folder_and_a_long_log_keeps_its_ends(tmp_path):
    code = "import sys; print(sys.argv[1:]); print('x' * 300_000); print('end')"
    asked = Command(name="a", words=(sys.executable, "-c", code, "{limit}", "{out}"))
    run_side_by_side([asked], tmp_path, jobs=1, limit_s=25)
    log = (tmp_path / "a.log").read_text()
    assert log.startswith(f"['20', '{tmp_path}']")
    assert log.endswith("end\n")
    assert len(log) < children.HEAD_BYTES + children.TAIL_BYTES + 100


def test_a_ledger_that_is_none_and_a_step_that_is_none_are_refused(tmp_path):
    (tmp_path / NAME).write_text('{"steps": {"a": {"state": "?"}}}')
    with pytest.raises(EvidenceError, match=r"evidence\.json"):
        Ledger(tmp_path)
    with pytest.raises(EvidenceError, match="There are warm, check"):
        run(["--only", "speed", "--out", str(tmp_path / "new")])
    with pytest.raises(EvidenceError, match="--out"):
        run(["--tiny"])


def test_every_step_and_process_has_a_name_of_its_own_and_modules_that_exist():
    for every in (steps.steps_of(jobs=16, is_tiny=False), steps.steps_of(jobs=16, is_tiny=True)):
        commands = [one for step in every for one in step.commands]
        assert len({one.name for one in commands}) == len(commands)
        assert len({step.name for step in every}) == len(every)
        for one in commands:
            module = one.words[2]
            path = Path(steps.ROOT, *module.split("."))
            assert module == "pytest" or path.with_suffix(".py").is_file(), module
    warm = steps.steps_of(jobs=16, is_tiny=False)[0]
    assert len(warm.commands) == 16


BLOCKED = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec

def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {names} else find(name, path, target)

PathFinder.find_spec = find_spec
"""
ABSENT = {"streamlit", "plotly", "duckdb", "rich", "typer", "httpx", "optuna", "IPython",
          "pytest_timeout", "vllm"}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The whole program in its tiny form, in an interpreter that lacks many packages."""
    folder = tmp_path_factory.mktemp("evidence")
    (folder / "sitecustomize.py").write_text(BLOCKED.format(names=ABSENT))
    out = folder / "out"
    paths = f"{folder}:{steps.ROOT}"
    asked = Command(
        name="evidence",
        words=(sys.executable, "-m", "workbench.evidence", "--tiny", "--jobs", "1", "--out",
               str(out), "--limit-s", "1100"),
        environment={"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    run_side_by_side([asked], folder, jobs=1, limit_s=1150)
    return out


@pytest.mark.timeout(1200)
def test_every_step_but_the_tests_runs_without_the_packages_of_pages_and_commands(tiny):
    log = (tiny.parent / "evidence.log").read_text()
    names = ("check", "steps", "steps-float32", "peers", "model", "bench")
    assert states(tiny, *names) == ["done"] * len(names), log
    assert states(tiny, "tests") == ["left out"]
    assert "pytest_timeout" in Ledger(tiny).entry("tests").why


def test_the_packages_that_are_absent_are_and_peers_are_driven_without_them(tiny):
    imports = ("import experiments.targets.peer_target, experiments.targets.peer_worker\n"
               f"for name in {sorted(ABSENT)}:\n"
               "    try:\n        __import__(name)\n"
               "    except ModuleNotFoundError: pass\n"
               "    else: raise SystemExit(name)")  # fmt: skip
    paths = f"{tiny.parent}:{steps.ROOT}"
    asked = command("imports", imports, environment={"PYTHONPATH": paths})
    [ended] = run_side_by_side([asked], tiny.parent, jobs=1, limit_s=60)
    assert ended.exit_code == 0, (tiny.parent / "imports.log").read_text()


def test_all_that_the_steps_wrote_is_stored_by_an_import_of_the_folder(tiny, tmp_path):
    found = import_files([tiny], Store(tmp_path))
    assert {run.origin["tool"] for run in found.runs} == {
        "kernels.check", "engine.step_bench", "engine.model_bench", "kernels.bench",
    }  # fmt: skip
    assert all(run.points()["valid"].all() for run in found.runs)
    [peers] = found.taken
    assert peers.summary.counts["ok"] == 2
    assert found.refused == {}
    assert {path.suffix for path in found.left_out if path.name != NAME} <= {".log"}
    assert len(Store(tmp_path).runs()) == 5


def test_what_the_steps_wrote_is_small(tiny):
    assert sum(path.stat().st_size for path in tiny.rglob("*") if path.is_file()) < 1_000_000
