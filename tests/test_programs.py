"""Programs that are begun as `python -m NAME`: what they refuse, and how they end."""

import argparse
import errno
import subprocess
import sys

import pytest
import torch

from engine import host_bench, model_bench, step_bench
from engine.errors import ConfigError
from kernels import aot, bench, check, warm
from kernels.errors import WorkbenchError
from kernels.interrupt import EXIT_INTERRUPTED
from kernels.program import device_here, ended, positive_count, seconds, share
from workbench.evidence import __main__ as evidence

CPU = ("--device", "cpu")
INTERRUPTED_AT = """
import os, runpy, signal, sys
class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Impatient())
signal.signal(signal.SIGINT, {answer})
sys.argv = [{program!r}, "--help"]
runpy.run_module({program!r}, run_name={name!r})
"""
HEARD, IGNORED = "signal.default_int_handler", "signal.SIG_IGN"  # a shell's `&` ignores it


def interrupted(program, module, *, name="__main__", answer=HEARD):
    """`python -m PROGRAM`, interrupted at the moment at which it imports `module`."""
    code = INTERRUPTED_AT.format(program=program, module=module, name=name, answer=answer)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("program", "module"),
    [
        ("kernels.check", "torch"),
        ("kernels.check", "numpy"),  # as torch imports it, which goes on without
        ("kernels.checked", "torch"),
        ("kernels.warm", "torch"),
        ("kernels.bench", "torch"),
        ("kernels.tune", "torch"),
        ("kernels.aot", "torch"),
        ("engine.step_bench", "torch"),
        ("engine.prompt_bench", "numpy"),
        ("engine.host_bench", "numpy"),
        ("engine.model_bench", "torch"),
        ("engine.forward_bench", "torch"),
        ("experiments.peers.random_model", "torch"),
        ("experiments.targets.null_server", "experiments.targets.http_answers"),
        ("experiments.device_check", "engine.accelerator.find"),
        ("workbench.evidence.__main__", "torch"),
    ],
)
def test_an_interrupt_while_a_program_imports_is_quiet(program, module):
    done = interrupted(program, module)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_that_the_caller_ignores_stays_ignored():
    done = interrupted("kernels.check", "torch", answer=IGNORED)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: python -m kernels.check")


def test_an_interrupt_while_a_program_of_others_imports_ours_is_theirs():
    done = interrupted("kernels.check", "torch", name="kernels.check")
    assert "KeyboardInterrupt" in done.stderr


@pytest.mark.parametrize(
    ("program", "arguments", "words"),
    [
        (check, (*CPU, "--op", "rms_nrm"), "rms_nrm"),
        (check, (*CPU, "--share", "5/2"), "5/2"),
        (warm, (*CPU, "--op", "rms_nrm"), "rms_nrm"),
        (warm, (*CPU, "--share", "0/2"), "'0'"),
        (bench, (*CPU, "--op", "rms_nrm"), "rms_nrm"),
        (bench, ("--device", "cuda:99"), "cuda:99"),
        (aot, ("--family", "rotray"), "rotray"),
        (host_bench, ("--steps", "0"), "at least 1"),
        (host_bench, ("--requests", "0"), "at least 1"),
        (step_bench, ("--requests", "-1"), "at least 1"),
        (model_bench, ("--batch", "x"), "at least 1"),
        (evidence, ("--jobs", "0"), "at least 1"),
        (evidence, ("--limit-s", "nan"), "above 0"),
    ],
)
def test_an_option_that_would_run_nothing_is_refused(program, arguments, words, capsys):
    """A check of no case has not passed."""
    command = evidence.run if program is evidence else program.main
    with pytest.raises(SystemExit) as refused:
        command(list(arguments))
    assert refused.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "x", "²"])
def test_a_count_is_a_whole_number_of_at_least_one(text):
    assert positive_count("12") == 12
    with pytest.raises(argparse.ArgumentTypeError):
        positive_count(text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "", "x"])
def test_seconds_are_above_zero(text):
    assert seconds("0.5") == 0.5
    with pytest.raises(argparse.ArgumentTypeError):
        seconds(text)


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/", "/2", "a/b", "1/2/3"])
def test_a_share_is_one_of_as_many(text):
    assert [share("1/1"), share("2/2")] == ["1/1", "2/2"]
    with pytest.raises(argparse.ArgumentTypeError):
        share(text)


def test_a_device_is_one_that_torch_has():
    assert device_here("cpu") == torch.device("cpu")
    for name in ("cuda:99", "nowhere"):
        with pytest.raises(argparse.ArgumentTypeError, match=name):
            device_here(name)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            WorkbenchError("is none", where="x", remedy="Leave it."),
            2,
            "error x: is none. Leave it.",
        ),
        (
            ConfigError("9 is too long", where="draft_length"),
            2,
            "error draft_length: 9 is too long",
        ),
        (OSError(errno.ENOSPC, "No space left", "a.json"), 1, "error a.json: No space left"),
        (OSError(errno.ENOSPC, "No space left"), 1, "error No space left"),
        (KeyboardInterrupt(), 130, "interrupted; again"),
    ],
)
def test_a_program_ends_in_words(error, code, words, capsys):
    def command():
        raise error

    assert ended(command, interrupted="again") == code
    assert capsys.readouterr().err == f"{words}\n"


def test_an_error_of_the_program_itself_keeps_its_traceback():
    def command():
        raise RuntimeError("ours")

    with pytest.raises(RuntimeError, match="ours"):
        ended(command)
    assert ended(lambda: 3) == 3


def test_an_interrupt_promises_nothing_that_the_program_has_not(capsys):
    def command():
        raise KeyboardInterrupt

    assert ended(command) == EXIT_INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"
