"""Sets that users write, and the judgement of rules on them."""

import json

import pytest

from experiments.errors import WorkloadError
from experiments.evals.questions import AnswerKind, read_questions
from experiments.evals.rules import expected, is_right
from experiments.evals.sets import load_set, set_hash, shuffled

ROWS = [
    {"id": "a", "question": "How many?", "answer": 42, "kind": "integer"},
    {"id": "b", "question": "How much?", "answer": "1,000.5", "kind": "number"},
    {"id": "c", "question": "Which?", "answer": "B", "kind": "choice", "choices": ["x", "y", "z"]},
    {
        "id": "d",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Who?"},
        ],
        "answer": "Emmy Noether",
        "kind": "exact",
    },
    {"id": "e", "question": "What?", "answer": {"a": [1, True]}, "kind": "json"},
    {
        "id": "f",
        "question": "Write f.",
        "answer": "",
        "kind": "code",
        "entry_point": "f",
        "test": "def check(f):\n    assert f() == 1",
    },
]
BAD = [
    ({"answer": 1000}, "no whole number from 0 to 999"),
    ({"answer": "many"}, "no whole number"),
    ({"answer": True}, "not a text or a number"),
    ({"kind": "riddle"}, "kind"),
    ({"question": None}, "a question or messages"),
    ({"choices": ["x"]}, "if, and only if, its kind is choice"),
    ({"kind": "choice"}, "if, and only if, its kind is choice"),
    ({"kind": "choice", "choices": ["x", "x"], "answer": "A"}, "two choices are equal"),
    ({"kind": "choice", "choices": ["x", "y"], "answer": "C"}, "none of the choices"),
    ({"kind": "code"}, "has a test and an entry_point"),
    ({"kind": "exact", "answer": " "}, "answer is empty"),
    ({"extra": 1}, "extra"),
    ({"messages": [{"role": "assistant", "content": "x"}], "question": None}, "not the user's"),
]
RIGHT = {
    "a": (["42", "84/2"], ["43", "-42"]),
    "b": (["2001/2", "1000.50"], ["1000", "x"]),
    "c": (["B"], ["A", "C"]),
    "d": (["emmy  noether.", "**Emmy Noether**"], ["Noether", ""]),
    "e": (['{"a": [1, true]}'], ['{"a": [1, 1]}', '{"a": [1, true], "b": 0}']),
}


def written(tmp_path, rows):
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def questions(tmp_path):
    return {q.id: q for q in read_questions(written(tmp_path, ROWS))}


@pytest.mark.parametrize("name", RIGHT)
def test_equal_answers_are_right_in_any_spelling_and_no_others(questions, name):
    good, bad = RIGHT[name]
    assert [is_right(questions[name], one) for one in good] == [True] * len(good)
    assert [is_right(questions[name], one) for one in bad] == [False] * len(bad)


@pytest.mark.parametrize(("change", "words"), BAD)
def test_a_wrong_line_is_refused_by_its_number(tmp_path, change, words):
    row = {key: value for key, value in {**ROWS[0], **change}.items() if value is not None}
    with pytest.raises(WorkloadError, match=words) as caught:
        read_questions(written(tmp_path, [ROWS[1], row]))
    assert "set.jsonl:2" in str(caught.value.where)


@pytest.mark.parametrize(("rows", "words"), [([], "no question"), ([ROWS[0]] * 2, "the id 'a'")])
def test_an_empty_set_and_one_with_an_id_twice_are_refused(tmp_path, rows, words):
    with pytest.raises(WorkloadError, match=words):
        read_questions(written(tmp_path, rows))


def test_choices_are_shuffled_by_the_seed_alone_and_the_right_one_stays_right(questions):
    question = questions["c"]
    orders = {shuffled([question], seed)[0].choices for seed in range(20)}
    assert len(orders) == 6
    for seed in range(20):
        one = shuffled([question], seed)[0]
        assert one == shuffled([question], seed)[0]
        assert one.choices[ord(one.letter) - ord("A")] == "y"
        assert expected(one) == one.letter


def test_a_set_is_known_by_what_it_asks_and_what_is_right(questions):
    found = list(questions.values())
    assert set_hash(found) == set_hash(list(found))
    assert set_hash(found) != set_hash(found[::-1])


def test_an_unknown_set_is_refused_with_the_nearest_name():
    with pytest.raises(WorkloadError, match="no set") as caught:
        load_set("gsm8")
    assert "gsm8k" in str(caught.value.remedy)


def test_the_shipped_set_holds_three_kinds_and_every_answer_is_right_by_the_rules():
    questions = load_set("nano")
    assert len(questions) == 120
    kinds = {question.kind for question in questions}
    assert kinds == {AnswerKind.NUMBER, AnswerKind.EXACT, AnswerKind.JSON}
    assert all(is_right(question, expected(question)) for question in questions)
    assert {question.instruction for question in questions} == {""}
