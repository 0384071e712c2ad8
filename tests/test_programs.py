"""Programs that are begun as `python -m NAME`: what they refuse, and how they end."""

import argparse
import errno

import pytest
import torch

from engine import host_bench, model_bench, step_bench
from engine.errors import ConfigError
from kernels import aot, bench, check, warm
from kernels.errors import WorkbenchError
from kernels.program import EXIT_INTERRUPTED, device_here, ended, positive_count, seconds, share
from workbench.evidence import __main__ as evidence

CPU = ("--device", "cpu")


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
