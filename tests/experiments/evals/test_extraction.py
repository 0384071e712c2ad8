"""Tables of outputs and of what they answer."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.evals.extraction import boxed, extract
from experiments.evals.numerals import number, numbers
from experiments.evals.questions import AnswerKind

CHOICES = ("72 years", "81 years", "a bush of herbs", "77 years")
NUMBERS = [
    ("42", 42), ("1,234", 1234), ("1,234,567.5", Fraction(2469135, 2)), ("1 234 567", 1234567),
    ("1\u202f234", 1234), ("1{,}234", 1234), ("1_000", 1000), ("007", 7), ("3.50", Fraction(7, 2)),
    (".5", Fraction(1, 2)), ("2e3", 2000), ("-12", -12), ("\u221212", -12), ("+7", 7),
    ("3/4", Fraction(3, 4)), ("\u00bd", Fraction(1, 2)), ("\\frac{3}{4}", Fraction(3, 4)),
    ("-\\dfrac{1}{2}", Fraction(-1, 2)), ("$1,000.50", Fraction(2001, 2)), ("-$5", -5), ("12%", 12),
    ("12\\%", 12), ("\uff11\uff12", 12), ("\u0663\u0664", 34), ("**18**", 18), ("$70$.", 70),
    ("1,2", None), ("10-5", None), ("a5b", None), ("", None), ("1/0", None), ("7 cats", None),
]  # fmt: skip
NUMBER_OUTPUTS = [
    ("so \\boxed{\\text{070}}", "70", "boxed"),
    ("\\boxed{1} no, \\boxed{\\frac{1}{2}}", "1/2", "boxed"),
    ("\\boxed{x = 5}", "5", "boxed"),
    ("\\boxed{5\\text{ cm}}", "5", "boxed"),
    ("\\boxed{12} and then \\boxed{34", "12", "boxed"),
    ("The answer is 5, since x = 7", "5", "marked"),
    ("the answer is 12 + 7 = 19.", "19", "marked"),
    ("**Final Answer:** $1,234$", "1234", "marked"),
    ("The answer is: 3. I hope 4 people agree", "3", "marked"),
    ("So she has 5.\n#### 1,234", "1234", "marked"),
    ("The answer is 4. No: the answer is 6.", "6", "marked"),
    ("3 - 5 = -2", "-2", "last"),
    ("12 - 7 = 5", "5", "last"),
    ("first 1, then 2", "2", "last"),
]
CHOICE_OUTPUTS = [
    ("The answer is (C).", "C", "marked"),
    ("The answer is \\boxed{\\text{(B)}}", "B", "boxed"),
    ("**Answer:** B", "B", "marked"),
    ("Answer: d", "D", "marked"),
    ("The correct option is D because it fits", "D", "marked"),
    ("The answer is option (D), because", "D", "marked"),
    ("The answer is A. 72 years", "A", "marked"),
    ("The answer is a bush of herbs", "C", "marked"),
    ("It is long.\n\n(D)", "D", "alone"),
    ("**C**\nThat is all there is to say.", "C", "alone"),
    ("I think it takes 81 years.", "B", "words"),
]
NO_CHOICE = ["The answer is E", "The answer is not B, it is C", "72 years or 81 years", "I see", ""]


@pytest.mark.parametrize(("text", "value"), NUMBERS)
def test_a_number_is_read_in_every_spelling_and_no_list_is_one(text, value):
    assert number(text) == value


def test_numbers_of_a_text_come_in_order_and_a_minus_between_two_takes_none_away():
    assert numbers("from 1,000 to 3 - 5, then -7 and 2\u00bd") == [
        1000, 3, 5, -7, 2, Fraction(1, 2),
    ]  # fmt: skip


@given(st.integers(-(10**12), 10**12))
def test_grouped_and_plain_digits_are_one_number(value):
    assert number(f"{value:,}") == value == number(str(value))


@pytest.mark.parametrize(("text", "value", "rule"), NUMBER_OUTPUTS)
@pytest.mark.parametrize("kind", [AnswerKind.NUMBER, AnswerKind.INTEGER])
def test_a_number_is_found_by_the_first_rule_that_holds_one(kind, text, value, rule):
    found = extract(kind, text)
    assert (found.value, found.rule) == (value, rule)


@pytest.mark.parametrize(("text", "letter", "rule"), CHOICE_OUTPUTS)
def test_a_choice_is_found_by_its_letter_or_its_words(text, letter, rule):
    found = extract(AnswerKind.CHOICE, text, CHOICES)
    assert (found.value, found.rule) == (letter, rule)


@pytest.mark.parametrize("text", NO_CHOICE)
def test_an_output_that_names_no_one_choice_has_no_answer_and_says_why(text):
    found = extract(AnswerKind.CHOICE, text, CHOICES)
    assert found.value is None
    assert found.rule


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("\\boxed{a{b}{c{d}}e}", "a{b}{c{d}}e"),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
        ("\\fbox{x} \\boxed {y}", "y"),
        ("\\boxed{open", None),
        ("\\boxed{}", None),
        ("no box", None),
    ],
)
def test_a_box_holds_all_up_to_its_own_brace(text, value):
    assert boxed(text) == value


@pytest.mark.parametrize(
    ("text", "value", "rule"),
    [
        ('Here: ```json\n{"b": 2.0, "a": [true]}\n```', '{"a": [true], "b": 2}', "fenced"),
        ('{"a": 1} or rather {"a": 2}', '{"a": 2}', "found"),
        ('the list ["x", {"y": null}] it is', '["x", {"y": null}]', "found"),
        ("42", "42", "found"),
        ("no value {here}", None, "there is no JSON value in the output"),
        ("NaN", None, "there is no JSON value in the output"),
    ],
)
def test_json_is_found_whole_and_spelled_in_one_way(text, value, rule):
    found = extract(AnswerKind.JSON, text)
    assert (found.value, found.rule) == (value, rule)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Sure:\n```python\ndef f():\n    return 1\n```\nDone.", "def f():\n    return 1\n"),
        ("```\nx = 1\n```\n```py\nx = 2\n```", "x = 2\n"),
        ("    return [n for n in numbers]", "    return [n for n in numbers]"),
        ("Sure:\n```python\ndef f(): pass", "def f(): pass"),
        ("I cannot do that.", None),
    ],
)
def test_code_is_the_last_block_or_an_output_that_is_code(text, value):
    assert extract(AnswerKind.CODE, text).value == value


@pytest.mark.parametrize(
    ("text", "value", "rule"),
    [
        ("It was long ago.\nAnswer: the Treaty of Rome", "the Treaty of Rome", "marked"),
        ("\\boxed{x^2}", "x^2", "boxed"),
        ("wheel", "wheel", "whole"),
        ("one line\nand another", None, "no answer is marked, and the output is no single line"),
        ("x" * 201, None, "no answer is marked, and the output is no single line"),
    ],
)
def test_a_short_answer_is_marked_or_is_all_there_is(text, value, rule):
    found = extract(AnswerKind.EXACT, text)
    assert (found.value, found.rule) == (value, rule)


@given(st.sampled_from(AnswerKind), st.text(max_size=200))
def test_no_text_breaks_the_rules(kind, text):
    found = extract(kind, text, CHOICES)
    assert found.rule
