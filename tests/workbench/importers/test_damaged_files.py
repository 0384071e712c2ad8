"""Whatever stands in a file: it is read, or refused with what is wrong; nothing else happens."""

import copy
import dataclasses
import gzip
import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.foreign_files import FOLDER, document
from tests.workbench.importers.test_aiperf_aggregate import COLLATED, CONFIDENCE, SWEEP
from workbench.errors import ForeignFileError, UnknownFileError
from workbench.importers import document as document_module
from workbench.importers.catalogue import FORMATS
from workbench.importers.document import Document, Form, read_document
from workbench.importers.intake import import_files, read_file
from workbench.store import Store

SMALL = {
    name: (FOLDER / name).read_bytes()
    for name in (
        "inferencex/dsv4_b300_trt_mtp3_fixed_gbs.json",
        "inferencex/agentx_dsv41_flash_h100_conc4.json",
        "inferencex_slo/glm5_fp8_vllm_tp8_isl8192_osl128_conc4.json",
        "sglang/llama_3_3_70b_online_output.jsonl",
        "aiperf/qwen_concurrency1_gpu_telemetry_export.jsonl",
        "genai-perf/profile_genai_perf_cloudai_doc.csv",
        "inference-perf/eagle_stage_0_lifecycle_metrics.json",
        "llmperf/summary_groq_70b.json",
        "llmperf/individual_lepton_7b.json",
        "evalscope/perf-detail.json",
    )
}
DOCUMENTS = {
    name: read_document(FOLDER / name)
    for name in (
        *SMALL,
        "aiperf/qwen_concurrency1_profile_export_aiperf.json",
        "guidellm/guidellm_report_v2.json",
        "inferencex_raw/dsr1_1k1k_fp4_sglang_tp8_ep1_dpa_false_conc4_b200.json",
    )
    if not name.endswith(".csv")
} | {"aggregate": document(CONFIDENCE), "sweep": document(SWEEP), "collated": document(COLLATED)}
RULES = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([math.nan, math.inf, -math.inf, 0, -1, 10**400, 1e308, -0.0, 2**63]),
    st.sampled_from(["", "inf", "NaN", "-1", "\x00", "=cmd()", "<img onerror=x>", "\ud800"]),
    st.just("9" * 500),
    st.just([]),
    st.just({}),
    st.just([[1], {"a": None}]),
)  # fmt: skip


def tried(path):
    """The results of a file, all of them storable numbers, or None where it is refused."""
    try:
        found = read_file(path).foreign
    except ForeignFileError as error:
        assert error.what
        assert str(path) in str(error)
        return None
    for point in found.points:
        for one in point.numbers:
            assert one.value is None or isinstance(one.value, float | str)
            assert not isinstance(one.value, float) or math.isfinite(one.value)
    return found


@RULES
@given(name=st.sampled_from(sorted(SMALL)), data=st.data())
def test_a_file_that_was_cut_or_overwritten_is_read_or_refused(tmp_path, name, data):
    content = bytearray(SMALL[name])
    cut = data.draw(st.integers(0, len(content)))
    del content[cut:]
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "result"
    path.write_bytes(bytes(content))
    tried(path)


def places(value, path=()):
    """The path of every cell of a document, lists by their first three items."""
    if isinstance(value, dict):
        for name, cell in value.items():
            yield from places(cell, (*path, name))
    elif isinstance(value, list):
        for place, cell in enumerate(value[:3]):
            yield from places(cell, (*path, place))
    if path:
        yield path


PLACES = {name: list(places(found.value)) for name, found in DOCUMENTS.items()}


@RULES
@given(name=st.sampled_from(sorted(DOCUMENTS)), data=st.data())
def test_a_cell_of_another_type_is_missing_and_not_a_crash(name, data):
    found = DOCUMENTS[name]
    value = copy.deepcopy(found.value)
    for _ in range(data.draw(st.integers(1, 3))):
        change(value, data.draw(st.sampled_from(PLACES[name])), data.draw(ODD))
    altered = dataclasses.replace(found, value=value)
    for one in FORMATS:
        if one.recognises(altered):
            try:
                points = one.read(altered).points
            except ForeignFileError:
                continue
            for number in (number for point in points for number in point.numbers):
                assert not isinstance(number.value, float) or math.isfinite(number.value)


def change(value, path, cell):
    """Put `cell` where the path leads, if an earlier change has left the way there."""
    *way, last = path
    for part in way:
        value = at_place(value, part)
    if at_place(value, last, absent := object()) is not absent:
        value[last] = cell


def at_place(value, part, absent=None):
    try:
        return value[part]
    except (TypeError, LookupError):
        return absent


@RULES
@given(value=st.recursive(ODD, lambda inner: st.lists(inner, max_size=3)
                          | st.dictionaries(st.text(max_size=5), inner, max_size=3)),
       form=st.sampled_from(list(Form)))  # fmt: skip
def test_no_importer_takes_what_it_does_not_know(value, form):
    found = Document(path=FOLDER / "x", sha256="0", size_bytes=0, form=form, value=value)
    assert not [one.name for one in FORMATS if one.recognises(found)]


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_what_odd_cells_leave_can_be_stored_and_read(tmp_path, name):
    """Every number of the file is written as text that no number is, or NaN."""
    value = json.loads(json.dumps(DOCUMENTS[name].value, allow_nan=True))
    for path in PLACES[name]:
        cell = "NaN" if len(path) % 2 else math.nan
        owner = value
        for part in path[:-1]:
            owner = owner[part]
        if isinstance(owner[path[-1]], int | float):
            owner[path[-1]] = cell
    path = tmp_path / "r.json"
    lines = DOCUMENTS[name].form is Form.LINES
    text = "\n".join(map(json.dumps, value)) if lines else json.dumps(value)
    path.write_text(text, encoding="utf-8")
    found = import_files([path], Store(tmp_path / "store"))
    if found.refused:
        assert isinstance(found.refused[path], ForeignFileError)
        return
    (run,) = found.runs
    points = run.points()
    assert len(points)
    assert len(run.judged()) == len(points)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"{", "damaged JSON"),
        (b'{"a": 1}', "the keys 'a'"),
        (b"[]", "0 items"),
        (b"[1, 2]", "2 items"),
        (b'{"a": 1}\n{"a"', "line 2"),
        (b"\xff\xfe\x00", "utf-16"),
        (b"\x80abc", "no text in utf-8"),
        (b"\x1f\x8bnot packed", "damaged gzip"),
        (b"some words without a form", "neither JSON, JSON lines, YAML nor CSV"),
        (b"a,b\n1,2\n", "the columns 'a', 'b'"),
        (b"version: '9'\nother: 1\n", "the keys 'version', 'other'"),
        (b"a: [", "damaged YAML"),
        (b"# Results\n\nWhat was seen, in words.\n", "begins with '# Results"),
        (b"[" * 100_000, "damaged JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "damaged JSON"),
        (b'"text"', "neither JSON"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_says_what_was_expected_and_found(tmp_path, content, told):
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(ForeignFileError, match=told):
        read_file(path)


@pytest.mark.parametrize("text", ["# Notes\n\nSome words.\n", "# Notes\n\nSeen: [a](b) *c\n"])
def test_a_page_of_markdown_that_is_called_json_is_told_what_can_be_imported(tmp_path, text):
    path = tmp_path / "notes.json"
    path.write_text(text)
    with pytest.raises(UnknownFileError, match="is no result of a known tool") as caught:
        read_file(path)
    assert "workbench import --formats" in caught.value.remedy


def test_an_unknown_file_is_told_what_it_is_closest_to_and_where_the_rest_is_listed(tmp_path):
    path = tmp_path / "r.json"
    path.write_text('{"completed": 1, "duration": 2.0, "other": 3}')
    with pytest.raises(UnknownFileError, match="the keys 'completed', 'duration'") as caught:
        read_file(path)
    assert caught.value.remedy.startswith("Closest is a `vllm bench serve` result")
    path.write_text('{"a": 1}')
    with pytest.raises(UnknownFileError) as caught:
        read_file(path)
    assert caught.value.remedy == "`workbench import --formats` lists what can be imported."


def test_a_folder_and_a_file_that_is_not_there_are_refused(tmp_path):
    with pytest.raises(ForeignFileError, match="is a folder"):
        read_file(tmp_path)
    with pytest.raises(ForeignFileError, match="No such file"):
        read_file(tmp_path / "absent.json")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_marks_of_an_encoding_and_gzip_are_undone(tmp_path, encoding, packed):
    name = "llmperf/summary_groq_70b.json"
    content = SMALL[name].decode().encode(encoding)
    path = tmp_path / "no.suffix"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert read_file(path).foreign == read_file(FOLDER / name).foreign


def test_a_file_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(document_module, "MOST_BYTES", 1 << 16)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b"[" + b"1," * (1 << 20)))
    with pytest.raises(ForeignFileError, match="holds more than"):
        read_file(path)


def test_a_cell_that_names_one_list_a_billion_times_is_told_in_a_few_characters(tmp_path):
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 10)]
    report = "metrics: {requests: {}, latency: {request_latency: {units: s, mean: *a9}}, "
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(["version: 1", "scenario: {}", *levels, report + "throughput: {}}"]))
    (point,) = tried(path).points
    (mean,) = [one for one in point.numbers if one.key == "request_latency.mean"]
    assert mean.value is None
    assert len(mean.reason) < 80


def test_a_line_that_is_no_object_is_damage_and_is_not_passed_over(tmp_path):
    path = tmp_path / "mixed.jsonl"
    path.write_text('{"backend": "sglang"}\n[1, 2]\n')
    with pytest.raises(ForeignFileError, match="line 2 that is not empty is no object"):
        read_document(path)


def test_a_device_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(document_module, "MOST_BYTES", 1 << 20)
    with pytest.raises(ForeignFileError, match="more than 1 MiB"):
        read_document(Path("/dev/zero"))


def test_yaml_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(document_module, "MOST_YAML_CHARACTERS", 100)
    path = tmp_path / "report.yaml"
    path.write_text("version: 1\n" + "# " * 60)
    with pytest.raises(ForeignFileError, match="write JSON"):
        read_document(path)
