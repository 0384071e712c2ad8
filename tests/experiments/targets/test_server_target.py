"""Servers that a plan starts: every launcher, and every way in which a server may go wrong."""

import os
import socket
import sys
import time
from pathlib import Path

import psutil
import pytest

from experiments.errors import MissingProgramError, PlanError, TargetDiedError, TargetError
from experiments.observe import NoObserver
from experiments.plan import load_plan
from experiments.records import FailureKind, TokenSource, TrialState
from experiments.sweep import run
from experiments.targets.factory import check_programs, target_factory
from experiments.targets.launchers import LAUNCHERS
from experiments.targets.server import ServerTarget
from experiments.targets.server_spec import ServerSpec, as_arguments

PROGRAM = Path("tests/fakes/engine_program.py").resolve()


def spec(mode="well", **fields):
    command = [sys.executable, str(PROGRAM), mode, "--port", "{port}"]
    named = {"launcher": "command", "command": command, "start_s": 120.0, "stop_s": 1.0}
    return ServerSpec.model_validate(
        {**named, "usage": "each_chunk", "api": "completions", **fields}
    )


@pytest.fixture
def opened(model_folder):
    """Opens targets, and closes what is left of them."""
    targets = []

    def open_one(mode="well", **fields):
        target = ServerTarget(spec(mode, **fields))
        targets.append(target)
        target.open({"model": str(model_folder)})
        return target

    yield open_one
    for target in targets:
        target.close()


def plan(model_folder, **fields):
    document = {
        "name": "served",
        "protocol": {"name": "quick", "measured_s": 0.2, "warm_up_output_tokens": 2},
        "workloads": [{"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 4}],
        "gates": dict.fromkeys(("client_lag_s", "client_cpu_percent", "littles_law")),
        "target": "server",
        "engine": {"model": str(model_folder)},
        **fields,
    }
    return load_plan(document)


def swept(built):
    return list(run(built, target_factory(built), observer=NoObserver()))


@pytest.fixture
def as_program(tmp_path):
    """A program that any launcher can start: what it does not know of its options it ignores."""
    path = tmp_path / "engine"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAM} well "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_starts_speaks_and_stops(name, model_folder, as_program, tmp_path):
    weights = tmp_path / "model.gguf"
    weights.touch()
    server = {"launcher": name, "program": str(as_program), "weights": str(weights)}
    [record] = swept(plan(model_folder, server={**server, "start_s": 120.0, "stop_s": 1.0}))
    assert record.state is TrialState.OK, record.reason
    measured = [r for r in record.requests if not r.warm_up]
    assert {r.output_token_ids for r in measured} == {(0, 1, 2, 3)}
    assert {r.token_source for r in measured} == {TokenSource.USAGE}
    assert {r.server_prompt_tokens for r in measured} == {8}
    assert record.point.engine["launcher"] == name
    assert "serves on" in record.engine_log


def test_flags_are_settings_and_may_be_axes(model_folder):
    command = [sys.executable, str(PROGRAM), "well", "--port", "{port}"]
    server = {
        "launcher": "command", "command": command, "start_s": 120.0, "stop_s": 1.0,
        "flags": {"max-num-seqs": 1, "quiet": True}, "environment": {"SOME_SETTING": "7"},
    }  # fmt: skip
    axes = [{"product": {"max-num-seqs": [2, 4]}}]
    found = swept(plan(model_folder, server=server, axes=axes))
    assert [r.state for r in found] == [TrialState.OK] * 2, [r.reason for r in found]
    assert {r.point.engine["max-num-seqs"] for r in found} == {2, 4}
    assert {r.point.engine["env_SOME_SETTING"] for r in found} == {"7"}
    with pytest.raises(PlanError, match="is no axis"):
        swept(plan(model_folder, server=server, axes=[{"product": {"min-num-seqs": [2, 4]}}]))


def test_flags_are_written_as_the_engines_read_them():
    flags = {"a": 1, "b": True, "c": False, "d": "x y"}
    assert as_arguments(flags) == ["--a", "1", "--b", "--no-c", "--d", "x y"]


def test_a_launchers_own_flag_can_be_left_out():
    named = ServerSpec.model_validate(
        {"launcher": "vllm", "flags": {"enable-prefix-caching": None}}
    )
    assert named.all_flags() == {}


def test_a_server_that_ends_before_it_is_ready_says_why(opened):
    with pytest.raises(TargetDiedError, match="ended with code 1; its last words: no such model"):
        opened("crashes")


def test_a_slow_start_is_waited_for(opened):
    began = time.monotonic()
    opened("slow").stats()
    assert time.monotonic() - began > 1.0


def test_a_server_that_hangs_is_stopped_at_its_deadline(opened):
    with pytest.raises(TargetError, match=r"was not ready after 0\.5 s"):
        opened("hangs", start_s=0.5)
    assert not children()


def test_a_flood_of_log_lines_blocks_nothing_and_is_cut(opened):
    target = opened("floods")
    deadline = time.monotonic() + 20
    while "serves on" not in target.log_tail() and time.monotonic() < deadline:
        time.sleep(0.05)
    log = target.log_tail()
    assert log.startswith("line 0 ")
    assert "lines left out" in log
    assert len(log) < 60_000


def test_a_server_deaf_to_sigterm_is_killed(opened):
    target = opened("deaf", stop_s=0.5)
    began = time.monotonic()
    target.close()
    assert time.monotonic() - began < 5
    assert not children()


def test_what_a_server_started_ends_with_it(opened):
    target = opened("parent")
    started = int(target.log_tail().partition("child ")[2].split()[0])
    assert psutil.pid_exists(started)
    target.close()
    assert not running(started)


def test_a_taken_port_is_refused_before_anything_starts(opened):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(TargetError, match="is taken"):
            opened(port=taken.getsockname()[1])
    assert not children()


def test_the_log_stays_readable_after_the_end(opened):
    target = opened()
    target.close()
    assert "serves on" in target.log_tail()


def test_a_server_that_dies_under_load_fails_its_trial_and_is_started_again(model_folder):
    command = [sys.executable, str(PROGRAM), "dies", "--port", "{port}"]
    server = {"launcher": "command", "command": command, "start_s": 120.0, "stop_s": 1.0}
    [record] = swept(plan(model_folder, server=server))
    assert record.state is TrialState.FAILED
    assert record.failure is FailureKind.CRASH
    assert record.attempts == 2
    assert "out of luck" in record.engine_log
    assert not children()


def test_a_program_that_is_missing_is_named_with_the_line_that_installs_it(
    model_folder, monkeypatch, tmp_path
):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in LAUNCHERS:
        if (
            name == "sglang"
        ):  # any Python is its program; that the package is missing it says itself
            continue
        with pytest.raises(MissingProgramError) as caught:
            check_programs(plan(model_folder, server={"launcher": name}))
        assert "install" in str(caught.value.remedy).casefold()


def test_missing_weights_are_named_with_the_line_that_makes_them(model_folder, as_program):
    built = plan(model_folder, server={"launcher": "llama.cpp", "program": str(as_program)})
    with pytest.raises(MissingProgramError) as caught:
        check_programs(built)
    assert f"workbench peers convert {model_folder}" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"launcher": "vlm"}, "Did you mean vllm"),
        ({"launcher": "command"}, "command go together"),
        ({"launcher": "command", "command": ["x"]}, "where {port} goes"),
        ({"launcher": "command", "command": ["x", "{port}", "{prot}"]}, "{prot}"),
        ({"launcher": "vllm", "flags": {"--tp": 1}}, "without its dashes"),
        ({"launcher": "vllm", "environment": {"A B": "1"}}, "no environment variable"),
        ({"launcher": "vllm", "body": {"stream": False}}, "settled by the workload"),
        ({"launcher": "vllm", "port": 70000}, "port"),
    ],
)
def test_a_wrong_field_is_refused_by_name(model_folder, fields, words):
    with pytest.raises(PlanError) as caught:
        plan(model_folder, server=fields)
    assert words in f"{caught.value} {caught.value.remedy}"


def children():
    mine = psutil.Process(os.getpid()).children(recursive=True)
    return [one for one in mine if PROGRAM.name in " ".join(one.cmdline())]


def running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
