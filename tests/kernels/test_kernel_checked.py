"""What devices have checked: one document of many, and the registry that follows it."""

import json
from dataclasses import replace

import pytest

from kernels import checked, registry
from kernels.agreement import EVERY_CASE
from kernels.bench_document import DocumentError
from kernels.check import case_key
from kernels.checked import differences, document_of, merged
from kernels.registry import IMPLEMENTATIONS
from kernels.sources import Sources

KEYS = [case_key(case) for case in EVERY_CASE if case.op == "swiglu"]
SMALL, LARGE = KEYS


def files(text="import triton"):
    return {"kernels/registry.py": "", "kernels/activation/triton_cuda.py": text}.get


def sources(text="import triton"):
    return Sources(files(text))


SAME = {"a": sources(), "b": sources()}


def document(commit, cases, *, checks=14, passed=None, error=1e-6, begun="1"):
    common = {"op": "swiglu", "implementation": "triton", "checks": checks, "worst_limit": 3e-6,
              "passed": checks if passed is None else passed, "worst_error": error,
              "worst_case": "width 300", "worst_rows": 3}  # fmt: skip
    return {
        "format": "kernel check", "device": "H", "driver": "1", "torch": "2", "triton": "3",
        "arch": 90, "commit": commit, "started_at": begun, "cases": list(cases),
        "results": [{**common, "dtype": dtype} for dtype in ("float32", "bfloat16")],
    }  # fmt: skip


def row_of(document):
    return next(row for row in document["results"] if row["op"] == "swiglu")


def is_checked(document):
    return ("swiglu", "triton") in checked.checked(document)


def test_the_registry_follows_what_is_committed():
    architectures = {name for one in IMPLEMENTATIONS for name in one.checked_on}
    assert architectures == {file.stem for file in checked.FOLDER.glob("*.json")}
    for architecture in architectures:
        assert list(differences(document_of(architecture))) == []


def test_what_is_committed_names_cases_that_there_are_and_no_two_rows_of_a_kind():
    names = {(case.op, case.name) for case in EVERY_CASE}
    rows = document_of("sm_90")["results"]
    ran = [row for row in rows if row["checks"]]
    assert {(row["op"], row["worst_case"]) for row in ran} <= names
    kinds = [(row["op"], row["implementation"], row["dtype"]) for row in rows]
    assert len(kinds) == len(set(kinds))


def test_shares_of_a_run_are_added_up_and_what_nobody_ran_is_lacking():
    shares = [document("a", [SMALL], checks=7, error=1e-7), document("a", [LARGE], checks=7)]
    found = merged(shares, SAME)
    row = row_of(found)
    assert (row["checks"], row["passed"], row["due"]) == (14, 14, 14)
    assert (row["worst_error"], row["commits"]) == (1e-6, ["a"])
    assert is_checked(found)
    assert not set(KEYS) & set(found["lacking"])
    assert set(found["lacking"]) == {case_key(case) for case in EVERY_CASE} - set(KEYS)
    assert not is_checked(merged(shares[:1], SAME))


def test_a_later_run_of_the_same_cases_counts_in_place_of_an_earlier():
    failed = document("a", KEYS, passed=13, error=None)
    mended = document("b", KEYS, begun="2")
    assert not is_checked(merged([failed], SAME))
    found = merged([mended, failed], SAME)
    assert is_checked(found)
    assert row_of(found)["commits"] == ["b"]
    assert [run["commit"] for run in found["runs"]] == ["b"]


def test_runs_that_share_a_case_and_each_have_another_are_refused(monkeypatch):
    monkeypatch.setattr(checked, "_keys", lambda op: {*KEYS, "swiglu: more"})
    both = [document("a", [SMALL, LARGE]), document("b", [LARGE, "swiglu: more"], begun="2")]
    with pytest.raises(DocumentError, match="width 2048"):
        merged(both, SAME)


def test_fewer_checks_than_there_are_do_not_count():
    assert is_checked(merged([document("a", KEYS)], SAME))
    assert not is_checked(merged([document("a", KEYS, checks=13)], SAME))


def test_parts_of_a_run_on_two_states_of_the_sources_do_not_count():
    parts = [document("a", [SMALL], checks=7), document("b", [LARGE], checks=7)]
    assert is_checked(merged(parts, SAME))
    assert not is_checked(merged(parts, {**SAME, "b": sources("import triton\n1")}))


def test_operations_that_no_document_holds_are_kept_and_others_are_not():
    norm = dict(row_of(merged([document("a", KEYS)], SAME)), op="rms_norm")
    run = {**document("c", []), "device": "old"}
    before = {"runs": [run], "results": [{**norm, "commits": ["c"]}, {**norm, "op": "swiglu"}],
              "lacking": ["rotate: one"]}  # fmt: skip
    found = merged([document("a", KEYS)], SAME, before)
    by_op = {row["op"]: row for row in found["results"] if row["checks"]}
    assert (by_op["rms_norm"]["commits"], by_op["swiglu"]["commits"]) == (["c"], ["a"])
    assert ("rms_norm", "triton") in checked.checked(found)
    assert [one["device"] for one in found["runs"]] == ["H", "old"]
    assert not any(key.startswith("rms_norm") for key in found["lacking"])
    assert any(key.startswith("rotate") for key in found["lacking"])


def test_what_differs_from_the_registry_is_told(monkeypatch):
    found = merged([document("a", KEYS, passed=13)], SAME)
    (one,) = [i for i in IMPLEMENTATIONS if i.op == "swiglu"]
    monkeypatch.setattr(checked, "IMPLEMENTATIONS", (one,))
    assert list(differences(found)) == ["swiglu triton is not checked on sm_90"]
    monkeypatch.setattr(checked, "IMPLEMENTATIONS", (replace(one, checked_on=()),))
    told = "swiglu triton is checked, and the registry does not say so on sm_90"
    assert list(differences(merged([document("a", KEYS)], SAME))) == [told]


def test_a_kernel_has_changed_where_its_sources_differ_from_the_checked_ones(monkeypatch):
    (one,) = [i for i in IMPLEMENTATIONS if i.op == "swiglu"]
    here = Sources(checked.on_disk).digest(one.address)
    for digest, is_changed in ((here, False), ("0" * 16, True)):
        row = {"op": "swiglu", "implementation": "triton", "sources": digest}
        monkeypatch.setattr(checked, "document_of", lambda name, row=row: {"results": [row]})
        assert checked.changed_since(one) is is_changed
    assert not checked.changed_since(replace(one, checked_on=()))


def test_the_command_writes_what_it_reads_and_tells_what_is_not_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(checked, "FOLDER", tmp_path / "checked")
    document_of.cache_clear()
    monkeypatch.setattr(checked, "at_commit", lambda commit: files())
    file = tmp_path / "check.json"
    file.write_text(json.dumps(document("a", KEYS)))
    assert checked.main([str(file), "--write"]) == 1
    told = capsys.readouterr().out
    assert "swiglu triton float32: 14 of 14 passed, 14 were due" in told
    assert "rms_norm triton is not checked on sm_90" in told
    assert "\nswiglu triton is" not in told
    document_of.cache_clear()
    assert is_checked(document_of("sm_90"))
    document_of.cache_clear()


def test_a_run_on_a_commit_that_git_does_not_have_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checked, "at_commit", lambda commit: {}.get)
    file = tmp_path / "check.json"
    file.write_text(json.dumps(document("abc", KEYS)))
    with pytest.raises(DocumentError, match="abc"):
        checked.main([str(file)])


def test_every_implementation_has_sources_that_can_be_read():
    here = Sources(checked.on_disk)
    assert all(here.digest(one.address) for one in registry.IMPLEMENTATIONS)
