"""COMPLAINTS.md: a complaint is answered by a test that exists, or says why it need not be."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (HERE / "COMPLAINTS.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d+ \|", line)
]


@cache
def names_in(path):
    """Names of the test functions of a file."""
    tree = ast.parse((HERE / path).read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return {function.name for function in functions}


def test_every_complaint_has_one_row():
    assert [int(row[0]) for row in ROWS] == list(range(1, 109))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_test_that_is_named_exists(row):
    *_, answer = row
    named = re.findall(r"`([^`]+)`", answer)
    assert named or "does not apply: " in answer
    for one in named:
        path, name = one.split("::")
        assert name in names_in(path), f"{one} does not exist"
