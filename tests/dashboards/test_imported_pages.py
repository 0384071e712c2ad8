"""Results of other tools on every page, beside ours on one picture, and taken in by a page."""

import json

import pandas as pd
import pytest

import workbench as wb
from dashboards.views import imports
from tests.dashboards.conftest import shown, walk
from tests.fakes import measured, records
from tests.fakes.foreign_files import FOLDER
from workbench.exports.vllm_json import vllm_files
from workbench.figures import cell_words

RAW = "inferencex_raw/dsr1_1k1k_fp4_sglang_tp8_ep1_dpa_false_conc4_b200.json"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Runs of our own, one of them also as vLLM would have written it, and others' files."""
    folder = tmp_path_factory.mktemp("imported")
    run = records.fill_store(folder, [measured.trial(count=240)])
    (content,) = vllm_files(run).values()
    path = folder.parent / "ours-as-vllm.json"
    path.write_text(json.dumps(json.loads(content) | {"<img onerror=alert(1)>": "<script>x"}))
    files = ("inferencex/agg_dsr1_1k1k.json", "guidellm/guidellm_report_v2.json",
             "aiperf/qwen_concurrency1_gpu_telemetry_export.jsonl")  # fmt: skip
    wb.import_files([path, *(FOLDER / name for name in files)], wb.Store(folder), devices=None)
    return folder


def runs_of(store):
    return {run.run_id.split("-", 2)[2]: run.run_id for run in wb.Store(store).runs()}


def named(store, part):
    return next(run_id for name, run_id in runs_of(store).items() if part in name)


def ours_of(store):
    return next(run.run_id for run in wb.Store(store).runs() if run.engine != "imported")


def test_every_page_opens_on_an_imported_run(store):
    """The newest run of the store is one of them: pages choose it by themselves."""
    assert wb.Store(store).runs()[0].engine == "imported"
    for page, app in walk(store, skipped=("live",)):
        assert not app.exception, (page, app.exception)
        assert not app.error, (page, app.error)


@pytest.mark.parametrize("page", ["overview", "pareto", "sweep_explorer", "run", "compare"])
def test_rows_without_a_count_of_samples_are_shown(store, open_page, page):
    app = open_page(store, page, run=named(store, "inferencex"))
    assert not app.exception, app.exception
    assert not app.error


def test_the_page_says_what_was_recognised_and_what_was_dropped(store, open_page):
    text = shown(open_page(store, "imports", run=named(store, "inferencex")))
    assert "InferenceX" in text
    assert "std_intvty was dropped" in text
    assert "agg_dsr1_1k1k.json" in text
    assert "checked on a real file" in text


def test_the_page_shows_how_the_tool_came_by_a_metric(store, open_page):
    app = open_page(store, "imports", run=named(store, "inferencex"), by="tok_s_user_p50")
    text = shown(app)
    assert "InferenceX median_intvty: 1 / median((E2E - TTFT) / (output tokens - 1)" in text
    assert "median over requests of 1 / TPOT" in text


def test_each_setting_of_a_result_has_a_column_of_its_own(tmp_path, open_page):
    """In one sentence what tells the results apart was cut off."""
    files = [*(FOLDER / "sglang").glob("*.jsonl")]
    wb.import_files(files, wb.Store(tmp_path))
    (table,) = [one.value for one in open_page(tmp_path, "imports").dataframe]
    columns = list(table.columns)
    assert {"Load", "Rate", "Most prompt tokens"} <= {*columns[: columns.index("State")]}
    assert table["Most prompt tokens"].dtype.kind in "if"
    assert len(table.drop_duplicates(columns[: columns.index("State")])) == len(table)


def test_a_choice_that_is_too_long_for_its_box_is_told_below_it(tmp_path, open_page):
    run = records.fill_store(tmp_path, name="a-plan-of-a-long-name")
    text = shown(open_page(tmp_path, "pareto", run=run.run_id))
    (told,) = [line for line in text.splitlines() if "wb-cut" in line and "of-a-long-name" in line]
    assert f"{run.run_id[-4:]}</p>" in told


def test_texts_of_a_foreign_file_stay_text(store, open_page):
    text = shown(open_page(store, "imports", run=named(store, "vllm")))
    assert "<img" not in text.replace("<img ", "<IMG ") or "&lt;img" in text
    assert "<script>x" not in text


def test_files_that_are_dropped_become_runs(tmp_path, monkeypatch, open_page):
    folder = tmp_path / "store"
    app = open_page(folder, "imports")
    assert "No other tool" in shown(app)
    (uploader,) = app.get("file_uploader")
    assert uploader.proto.multiple_files
    monkeypatch.setattr(imports.reading, "store_path", lambda: str(folder))
    paths = [("../../escape.json", (FOLDER / RAW).read_bytes())]
    imports._take_in(paths, 8)
    (run,) = wb.Store(folder).runs()
    assert wb.Store(folder).run(run.run_id).origin["files"][0]["name"] == "escape.json"
    assert not (tmp_path / "escape.json").exists()


def test_files_of_one_name_are_all_taken_in(tmp_path, monkeypatch):
    """Tools write `result.json` into every folder, and a browser sends no folder."""
    monkeypatch.setattr(imports.reading, "store_path", lambda: str(tmp_path))
    content = (FOLDER / RAW).read_bytes()
    names = ["result.json", "result.json", "..", "\0", "ü" * 300]
    imports._take_in([(name, content + b" " * k) for k, name in enumerate(names)], None)
    (run,) = wb.Store(tmp_path).runs()
    files = [file["name"] for file in wb.Store(tmp_path).run(run.run_id).origin["files"]]
    assert files == ["result.json", "result.json", "file", "file", "ü" * 100]


def test_what_one_dropped_file_is_refused_for_is_told_and_the_others_are_stored(
    tmp_path, monkeypatch
):
    told = []
    monkeypatch.setattr(imports.reading, "store_path", lambda: str(tmp_path))
    monkeypatch.setattr(imports.st, "error", told.append)
    monkeypatch.setattr(imports.parts, "html", told.append)
    names = ("qwen_concurrency1_profile_export_aiperf.json",
             "qwen_concurrency1_gpu_telemetry_export.jsonl")  # fmt: skip
    files = [(name, (FOLDER / "aiperf" / name).read_bytes()) for name in names]
    imports._take_in([("cut.json", b'{"a":'), *files], None)
    (run,) = wb.Store(tmp_path).runs()
    assert run.planned == 1
    assert told[0].startswith("cut.json: is damaged JSON")
    assert f"{names[1]} is telemetry of {names[0]}" in told[1]


def test_a_beaten_result_without_an_interval_has_no_chance_to_be_on_the_front(store, open_page):
    app = open_page(store, "pareto", run=named(store, "inferencex"))
    (table,) = [frame.value for frame in app.dataframe if "P(on front)" in frame.value]
    assert set(table["P(on front)"]) == {"—"}
    assert (table["Front"] == "").any()
    assert "no chance can be told of a point without an interval" in shown(app)


def test_ours_and_theirs_are_on_one_picture_with_shapes_of_their_own(store, open_page):
    ours = ours_of(store)
    theirs = named(store, "vllm")
    query = {"run": ours, "with": theirs, "x": "tpot_compat_s_mean", "y": "output_tok_s"}
    app = open_page(store, "pareto", **query)
    assert not app.exception
    (figure,) = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]
    symbols = set()
    for trace in figure["data"]:
        symbol = trace.get("marker", {}).get("symbol") or []
        symbols |= {symbol} if isinstance(symbol, str) else set(symbol)
    assert {"circle", "square"} <= symbols
    assert "imported, the hover says how their tool measures" in shown(app)
    hovers = [h for trace in figure["data"] for h in (trace.get("hovertext") or []) if h]
    assert any("vLLM bench serve mean_tpot_ms" in hover for hover in hovers)


def test_a_comparison_lists_bases_and_what_has_no_partner(store, open_page):
    a, b = ours_of(store), named(store, "vllm")
    app = open_page(store, "compare", a=a, b=b, a_where="", b_where="")
    assert not app.exception
    labels = [expander.label for expander in app.expander]
    assert any(label.startswith("How either side came by its numbers") for label in labels)
    assert any(label.startswith("What is not comparable, and why") for label in labels)
    assert "whose file does not tell" in shown(app)


def test_a_setting_that_a_result_does_not_tell_is_left_out_of_its_words():
    points = pd.DataFrame({"axis.accelerator": ["h100", None], "axis.batch_size": [1, 2]})
    assert cell_words(points, points) == ["accelerator h100, 1 in flight", "2 in flight"]
    assert cell_words(points[1:], points[1:]) == [""]


def test_a_missing_number_of_a_result_is_a_dash(store, open_page):
    app = open_page(store, "imports", run=named(store, "inferencex"))
    (table,) = app.dataframe
    assert table.proto.placeholder == "—"


def test_two_results_of_one_tool_have_nothing_that_is_not_comparable(store, open_page):
    run = named(store, "guidellm")
    trials = wb.Store(store).run(run).trial_ids()
    sides = {f"{side}_where": f"trial={name}" for side, name in zip("ab", trials, strict=True)}
    labels = [one.label for one in open_page(store, "compare", a=run, b=run, **sides).expander]
    assert any(label.startswith("How either side came by its numbers") for label in labels)
    assert not any(label.startswith("What is not comparable") for label in labels)
