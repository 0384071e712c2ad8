"""COMPLAINTS.md of kernels: a bug is answered by a test that exists, or says what its state is."""

import re
from pathlib import Path

import pytest

from tests.test_complaints import names_in

ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in Path(__file__).with_name("COMPLAINTS.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d+ \|", line)
]


def test_every_bug_has_one_row():
    assert [int(row[0]) for row in ROWS] == list(range(1, 51))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_test_that_is_named_exists_and_what_has_none_says_why(row):
    *_, answer = row
    named = re.findall(r"`([^`]+::[^`]+)`", answer)
    assert named or answer.startswith(("does not apply: ", "open: "))
    for one in named:
        path, name = one.split("::")
        assert name in names_in(path), f"{one} does not exist"
