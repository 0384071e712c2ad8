"""Implementations against their definitions: what is told of each, and how cases are shared."""

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch

from kernels import agreement, check
from kernels.agreement import EVERY_CASE, Outcome
from kernels.bench_document import BenchDocument, DocumentError, earlier
from kernels.cases import SMALL_CASES
from kernels.ops import REFERENCE
from kernels.registry import Implementation
from kernels.shares import share_of

CPU = torch.device("cpu")
NORM = next(case for case in SMALL_CASES if case.op == "rms_norm")
GOOD = Outcome(
    op="rms_norm", case="width 64", implementation="ours", dtype="float32", rows=4, error=1e-7,
    limit=3e-6, repeats_bitwise=True, alone_bitwise=True,
)  # fmt: skip


@pytest.fixture
def implementation(monkeypatch):
    """Makes a function the one implementation of the norm."""

    def become(run):
        ours = Implementation(op="rms_norm", name="ours", address="", unsuited=lambda *_: None)
        monkeypatch.setattr(agreement, "IMPLEMENTATIONS", (ours,))
        monkeypatch.setattr(agreement, "load", lambda implementation: run)

    return become


def outcomes(**options):
    return list(check.check(CPU, rows=(0, 5), reruns=1, cases=(NORM,), **options))


def test_the_definition_agrees_with_itself(implementation):
    implementation(REFERENCE.rms_norm)
    found = outcomes()
    assert [(one.dtype, one.rows) for one in found] == [
        ("float32", 0), ("float32", 5), ("bfloat16", 0), ("bfloat16", 5),
    ]  # fmt: skip
    assert all(one.passed and one.line.startswith("passed rms_norm ours") for one in found)


def test_what_is_off_and_what_raises_has_failed_and_the_rest_goes_on(implementation):
    def broken(x, weight, eps):
        if x.dtype == torch.bfloat16:
            raise RuntimeError("illegal address\nmore")
        return REFERENCE.rms_norm(x, weight, eps) * 1.001

    implementation(broken)
    empty, off, *raised = outcomes()
    assert empty.passed
    assert not off.passed
    assert off.share > 100
    assert [one.raised for one in raised] == ["RuntimeError: illegal address"] * 2
    assert raised[0].line.endswith("RuntimeError: illegal address")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"error": float("nan")}, "error nan"),
        ({"error": 1e-5}, "error 1.00e-05 of 3.0e-06"),
        ({"repeats_bitwise": False}, "differs from run to run"),
        ({"alone_bitwise": False}, "differs beside other rows"),
    ],
)
def test_each_way_to_fail_is_told(change, words):
    failed = replace(GOOD, **change)
    assert GOOD.passed
    assert not failed.passed
    assert failed.line.startswith("FAILED")
    assert words in failed.line


def test_shares_hold_every_case_once_and_large_ones_are_together():
    shares = [
        share_of(EVERY_CASE, f"{number}/5", check._bytes, check.LARGE_BYTES)
        for number in range(1, 6)
    ]
    keys = [check.case_key(case) for share in shares for case in share]
    assert sorted(keys) == sorted(map(check.case_key, EVERY_CASE))
    sizes = [list(map(check._bytes, share)) for share in shares[1:]]
    assert max(map(max, sizes)) <= check.LARGE_BYTES
    ops = [{case.op for case in share} for share in shares[1:]]
    assert sum(map(len, ops)) == len(set().union(*ops))  # what compiles alike is together
    assert max(map(len, shares[1:])) < 2 * min(map(len, shares[1:]))
    assert share_of(EVERY_CASE, "1/1", check._bytes, 0) == list(EVERY_CASE)


def test_no_two_cases_share_a_key_by_which_an_earlier_document_is_asked():
    keys = [check.case_key(case) for case in EVERY_CASE]
    assert [key for key, count in Counter(keys).items() if count > 1] == []


def test_the_document_sums_up_and_names_what_failed(implementation, tmp_path, capsys):
    implementation(lambda x, weight, eps: x)
    document = BenchDocument(tmp_path / "check.json", {"format": check.FORMAT})
    check.run_cases([NORM], CPU, document, (0, 5))
    made = json.loads((tmp_path / "check.json").read_text())
    assert [(row["dtype"], row["checks"], row["passed"]) for row in made["results"]] == [
        ("float32", 2, 1), ("bfloat16", 2, 1),
    ]  # fmt: skip
    assert made["results"][0]["worst_rows"] == 5
    assert [row["rows"] for row in made["failed"]] == [5, 5]
    assert made["cases"] == [check.case_key(NORM)]
    assert capsys.readouterr().out.count("FAILED") == 2


def test_cases_of_an_earlier_document_are_left_out_and_their_failures_count(
    implementation, tmp_path, capsys
):
    implementation(lambda x, weight, eps: x)
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    arguments = ["--device", "cpu", "--small", "--op", "rms_norm", "--rows", "5"]
    assert check.main([*arguments, "--json", str(first)]) == 1
    implementation(REFERENCE.rms_norm)
    assert check.main([*arguments, "--json", str(second), "--beside", str(first)]) == 1
    assert not second.exists()  # there is nothing to tell
    assert check.main([*arguments, "--json", str(second)]) == 0


def test_a_file_of_another_kind_is_refused(tmp_path):
    other = tmp_path / "other.json"
    for text in ("{", '{"format": "kernel bench"}', "[]"):
        other.write_text(text)
        with pytest.raises(DocumentError, match=r"other\.json"):
            list(earlier([other], check.FORMAT))
