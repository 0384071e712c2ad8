"""A processor on which products of torch would come out wrong."""

import os
import subprocess
import sys

import pytest
import torch

from engine.accelerator.cpu import check_products
from engine.environment import openmp_is_dynamic
from engine.errors import ConfigError
from engine.llm import LLM

LIMITED = """
import torch
from engine.accelerator.cpu import check_products
from engine.errors import ConfigError

torch.set_num_threads(2)
torch.manual_seed(0)
rows, weight = (torch.randn(size, 576).bfloat16() for size in (64, 1536))
found = torch.nn.functional.linear(rows, weight).double()
wanted = rows.double() @ weight.double().T
is_wrong = not bool(((found - wanted).abs() < 1).all())
try:
    check_products()
    told = ""
except ConfigError as error:
    told = str(error)
print(is_wrong, told)
"""


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("value", ["true", " TRUE ", "1"])
def test_threads_that_may_not_be_granted_are_refused_before_anything_is_loaded(
    value, monkeypatch, two_threads
):
    monkeypatch.setenv("OMP_DYNAMIC", value)
    with pytest.raises(ConfigError, match=r"OMP_DYNAMIC: lets OpenMP .*num_threads: 1"):
        LLM("nano", accelerator="cpu", num_threads=2)


def test_one_thread_is_always_granted(monkeypatch, two_threads):
    monkeypatch.setenv("OMP_DYNAMIC", "true")
    torch.set_num_threads(1)
    check_products()


@pytest.mark.parametrize("value", [None, "", "false", "FALSE", "0"])
def test_threads_that_are_granted_are_not_refused(value):
    assert not openmp_is_dynamic({} if value is None else {"OMP_DYNAMIC": value})


def test_products_of_this_process_are_right(two_threads):
    check_products()


def test_a_limit_of_openmp_is_refused_where_a_product_comes_out_wrong_of_it():
    """On a processor whose library needs no threads, it does not."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], env={**os.environ, "OMP_THREAD_LIMIT": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    is_wrong, _, told = done.stdout.strip().partition(" ")
    assert (is_wrong == "True") == ("OMP_THREAD_LIMIT" in told), done.stdout
