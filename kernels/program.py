"""A program that is begun as `python -m NAME`: errors in words, and options that it can run."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable

import torch

from kernels.errors import WorkbenchError
from kernels.interrupt import EXIT_INTERRUPTED


def ended(command: Callable[[], int], *, interrupted: str = "") -> int:
    """Run it: its exit code. What a user can mend is told in words, as an interrupt is.

    `interrupted`: what to do after an interrupt.
    """
    try:
        return command()
    except WorkbenchError as error:
        sys.stderr.write(f"error {error}\n")
        return error.exit_code
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        place = "" if error.filename is None else f"{error.filename}: "
        sys.stderr.write(f"error {place}{error.strerror}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted{interrupted and '; '}{interrupted}\n")
        return EXIT_INTERRUPTED


def device_here(name: str) -> torch.device:
    """For `type=` of an option: a device that torch can put a tensor on."""
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise argparse.ArgumentTypeError(
            f"torch finds no device {name!r} here; `--device cpu` runs on the processor"
        ) from error
    return torch.device(name)


def positive_count(text: str) -> int:
    """For `type=` of an option: a whole number of at least 1."""
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def seconds(text: str) -> float:
    """For `type=` of an option: a time above 0."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return found


def share(text: str) -> str:
    """For `type=` of an option: `I/N`, one of N shares, counted from 1."""
    number, slash, of = text.partition("/")
    if not (slash and positive_count(number) <= positive_count(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is no share such as 1/4")
    return text
