"""Ours against another tool's result: what blocks, what may differ, what has no partner."""

import json

import pytest

import workbench as wb
from tests.fakes import measured, records
from tests.fakes.foreign_files import FOLDER, imported, written
from workbench.arms import parse_arm
from workbench.errors import ComparisonError
from workbench.exports.vllm_json import vllm_files
from workbench.report_content import gather

ROWS = "inferencex/agg_dsr1_1k1k.json"


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return records.fill_store(tmp_path_factory.mktemp("ours"), [measured.trial(count=240)])


@pytest.fixture(scope="module")
def theirs(ours, tmp_path_factory):
    """The same trial, as `vllm bench serve` would have told it."""
    folder = tmp_path_factory.mktemp("theirs")
    (content,) = vllm_files(ours).values()
    return imported(folder, written(folder, "r.json", content.decode()))


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return imported(tmp_path_factory.mktemp("rows"), FOLDER / ROWS)


def single(run):
    return parse_arm(wb.Store(run.folder.parent), f"{run.run_id}:trial={min(run.trial_ids())}")


def test_equal_measurements_told_by_two_tools_differ_in_nothing(ours, theirs):
    found = wb.compare(single(ours), single(theirs), accept=[])
    assert not found.blocked
    told = found.overall.set_index("metric")
    for name in ("output_tok_s", "ttft_s_mean", "tpot_compat_s_mean", "e2e_s_p50"):
        assert told.loc[name, "ratio"] == pytest.approx(1.0)
        assert told.loc[name, "verdict"] == "not judged"
    assert "imported" in told.loc["ttft_s_mean", "sentence"]


def test_the_basis_of_either_side_is_told(ours, theirs):
    bases = wb.compare(single(ours), single(theirs)).bases.set_index("metric")
    assert bases.loc["ttft_s_mean", "a"].startswith("measured here: first chunk that bears")
    assert bases.loc["ttft_s_mean", "b"].startswith("vLLM bench serve mean_ttft_ms")


def test_what_only_one_side_tells_is_listed_with_its_reason(ours, theirs):
    apart = wb.compare(single(ours), single(theirs)).apart.set_index("label")
    assert "only A tells it" in apart.loc["TPOT p50", "why"]
    per_device = apart.loc["Output throughput per device", "why"]
    assert "--gpus" in per_device


def test_what_a_file_does_not_tell_is_one_warning(ours, theirs):
    found = wb.compare(single(ours), single(theirs))
    (origin,) = [one for one in found.differences if one.name == "origin"]
    assert origin.sentence.startswith("B was imported from vLLM bench serve, whose file does not")
    assert "tokenizer" in origin.sentence
    assert not [one for one in found.differences if one.name == "tokenizer"]


def test_another_model_blocks_and_says_so_before_any_pairing(ours, rows):
    found = wb.compare(ours, rows)
    assert {"model", "dtype"} <= {one.name for one in found.blocked}
    with pytest.raises(ComparisonError, match="another model is other work"):
        found.overall  # noqa: B018 - reading refuses


def test_rows_of_one_file_are_matched_by_what_they_were_asked(rows):
    a, b = (wb.select(rows, accelerator="h200", framework=name) for name in ("trt", "sglang"))
    found = wb.compare(a, b)
    assert len(found.matches.rows) == 5
    points = found.points[found.points["metric"] == "total_tok_s_device"]
    assert len(points) == 5
    assert (points["ratio"] > 1).all()
    assert found.bases["b"].eq("the same").all()


def test_two_single_points_make_a_pair_whatever_differs(rows):
    ids = sorted(rows.trial_ids())
    store = wb.Store(rows.folder.parent)
    a, b = (parse_arm(store, f"{rows.run_id}:trial={name}") for name in ids[:2])
    found = wb.compare(a, b, accept=["device", "model", "dtype"])
    assert len(found.matches.rows) == 1
    values = rows.points().set_index("trial_id")["total_tok_s_device"]
    told = found.overall.set_index("metric").loc["total_tok_s_device", "ratio"]
    assert told == pytest.approx(values[ids[1]] / values[ids[0]])


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (["NVIDIA H200"], ("h200",), True),
        (["NVIDIA B200"], ("gb200",), False),
        (["NVIDIA B200"], ("b200-trt",), True),
        (["NVIDIA H100 80GB HBM3"], ["NVIDIA H100 PCIe"], False),
        (["NVIDIA H200"], ("h200", "mi300x"), False),
    ],
)
def test_a_device_is_known_by_another_tools_word_for_it(first, second, same):
    from workbench.comparability_rules import _same_device

    assert _same_device(first, second) is same


def test_the_total_per_device_of_ours_is_derived_beside_a_tool_that_reports_it(ours, rows):
    points = wb.joint([ours, rows])
    mine = points[points["run_id"] == ours.run_id].iloc[0]
    assert mine["total_tok_s_device"] == pytest.approx(mine["total_tok_s"])  # one device
    assert mine["total_tok_s_device.n"] == mine["total_tok_s.n"]
    assert "total_tok_s_device" not in wb.joint([ours])


def test_a_report_lists_files_notes_and_bases(ours, rows):
    content = gather([ours, rows], static=True)
    ((run_id, tool, file, *_, notes),) = content.imports.rows
    assert (run_id, file) == (rows.run_id, "agg_dsr1_1k1k.json")
    assert "std_intvty was dropped" in notes
    assert any("median_intvty" in how for _, how in content.bases.rows)
    assert any("passed no gate" in limit for limit in content.limits)
    assert any(line.startswith("workbench import agg_dsr1_1k1k.json") for line in content.reproduce)
    assert "<rect" in content.drawn.svg
    assert tool.startswith("InferenceX")


def test_a_report_of_ours_alone_says_nothing_of_imports(ours):
    content = gather([ours], static=True)
    assert not content.imports.rows
    assert not content.bases.rows
    assert "<rect" not in content.drawn.svg


def test_an_imported_run_is_not_told_as_if_it_had_been_measured_here(theirs):
    from workbench.cli_report import _exported
    from workbench.errors import UsageError

    for form in ("vllm", "llm-d"):
        with pytest.raises(UsageError, match="was imported"):
            _exported(theirs, form)
    assert b"vLLM bench serve" in _exported(theirs, "csv")["points.csv"]


def test_an_imported_file_says_what_it_measured_in_json(theirs):
    document = json.loads((theirs.folder / "run.json").read_text())
    assert document["origin"]["format"] == "vllm-serve"
    assert document["planned"] == 1


def test_what_has_a_name_of_several_differs_in_the_plural(ours, theirs):
    told = {one.name: one.sentence for one in wb.compare(single(ours), single(theirs)).differences}
    assert told["labels"].startswith("The labels differ: ")


def test_a_report_counts_its_matched_points_and_names_the_only_configuration(ours, theirs):
    verdict = " ".join(gather([ours, theirs], static=True).verdicts)
    assert "1 matched point:" in verdict
    assert "with the only configuration" in verdict
    assert "with —" not in verdict
