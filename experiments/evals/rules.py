"""The rule-based judge: an extracted answer against the one of the set."""

from __future__ import annotations

import json

from experiments.evals.extraction import Extraction, extract
from experiments.evals.numerals import number
from experiments.evals.questions import AnswerKind, Question
from experiments.evals.short_answers import canonical, normalised

JUDGE = "rules"


def found_answer(question: Question, text: str) -> Extraction:
    """What the output answers. Choices are lettered in the order of `question.choices`."""
    return extract(question.kind, text, question.choices)


def is_right(question: Question, extracted: str) -> bool:
    """Whether an extracted answer is the right one; not for code, which is run.

    Numbers are equal as fractions, choices by their letter, JSON as values, and short answers
    either as numbers or as normalised text.
    """
    kind = question.kind
    assert kind is not AnswerKind.CODE, "code is run, not compared"
    if kind is AnswerKind.CHOICE:
        return extracted == question.letter
    if kind is AnswerKind.JSON:
        return extracted == expected(question)
    ours, theirs = number(question.answer), number(extracted)
    if ours is not None and theirs is not None:
        return ours == theirs
    return kind is AnswerKind.EXACT and normalised(extracted) == normalised(question.answer)


def expected(question: Question) -> str:
    """The right answer, spelled as an extracted one is; of code, the name of what is tested."""
    if question.kind is AnswerKind.CHOICE:
        return question.letter
    if question.kind is AnswerKind.JSON:
        return canonical(json.loads(question.answer))
    if question.test is not None:
        return question.test.entry_point
    return question.answer
