"""A question with its answer, and the sets that users write: JSONL, one question a line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from experiments.border import Border, brief
from experiments.errors import WorkloadError
from experiments.evals.numerals import number
from experiments.traces import json_rows, read_text

AIME_MOST = 999
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class AnswerKind(StrEnum):
    """What an answer is, which sets how it is asked for, extracted and judged."""

    INTEGER = "integer"  # AIME: 0 to 999
    NUMBER = "number"  # GSM8K: any number
    CHOICE = "choice"  # GPQA: one of several, by its letter
    EXACT = "exact"  # HLE: a few words, or a number
    JSON = "json"  # a JSON value, equal as a value
    CODE = "code"  # Python that must pass a test


@dataclass(frozen=True, kw_only=True)
class CodeTest:
    """What a program must pass: `source` defines `check(candidate)`."""

    prompt: str  # the beginning of the program that the answer completes
    entry_point: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question of a set. Of a CHOICE, `answer` is the right choice in words."""

    id: str
    kind: AnswerKind
    messages: tuple[tuple[str, str], ...]  # (role, content), the last one the user's
    answer: str
    choices: tuple[str, ...] = ()
    instruction: str | None = None  # how to answer; None: as the kind is asked for, "": nothing
    test: CodeTest | None = None

    @property
    def text(self) -> str:
        """What is asked, in its last turn."""
        return self.messages[-1][1]

    @property
    def letter(self) -> str:
        """The letter of the right choice."""
        return LETTERS[self.choices.index(self.answer)]


class _Turn(Border):
    role: str
    content: str


def _as_kind(value: object) -> object:
    return AnswerKind(value) if value in list(AnswerKind) else value


class QuestionRow(Border):
    """One line of a set as a user writes it."""

    id: str = Field(min_length=1)
    question: str | None = Field(default=None, min_length=1)
    messages: list[_Turn] | None = Field(default=None, min_length=1)
    answer: object
    kind: Annotated[AnswerKind, BeforeValidator(_as_kind)]
    choices: list[str] = Field(default_factory=list)
    instruction: str | None = None
    prompt: str = ""
    entry_point: str | None = None
    test: str | None = None

    @field_validator("choices")
    @classmethod
    def _choices_differ(cls, choices: list[str]) -> list[str]:
        if len(set(choices)) < len(choices):
            raise ValueError("two choices are equal")
        if len(choices) > len(LETTERS):
            raise ValueError(f"has {len(choices)} choices, more than there are letters")
        return choices

    @model_validator(mode="after")
    def _is_asked_once(self) -> Self:
        if (self.question is None) == (self.messages is None):
            raise ValueError("has a question or messages, one of the two")
        if self.messages is not None and self.messages[-1].role != "user":
            raise ValueError("the last of its messages is not the user's")
        if bool(self.choices) != (self.kind is AnswerKind.CHOICE):
            raise ValueError("has choices if, and only if, its kind is choice")
        if (self.test is None) == (self.kind is AnswerKind.CODE) or (
            (self.entry_point is None) != (self.test is None)
        ):
            raise ValueError("has a test and an entry_point if, and only if, its kind is code")
        return self

    def asked(self) -> Question:
        """The same as a question; ValueError where the answer is none of its kind."""
        turns = [(t.role, t.content) for t in self.messages or ()]
        test = None
        if self.test is not None and self.entry_point is not None:
            test = CodeTest(prompt=self.prompt, entry_point=self.entry_point, source=self.test)
        return Question(
            id=self.id,
            kind=self.kind,
            messages=tuple(turns) or (("user", self.question or ""),),
            answer=_answer(self),
            choices=tuple(self.choices),
            instruction=self.instruction,
            test=test,
        )


def _answer(row: QuestionRow) -> str:
    """The answer as it is compared; ValueError where it is none of the row's kind."""
    value, kind = row.answer, row.kind
    if kind is AnswerKind.JSON:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"answer is {brief(value)}, not a text or a number")  # noqa: TRY004
    text = str(value).strip()
    if kind is AnswerKind.CHOICE:
        return _choice(text, row.choices)
    found = number(text)
    if kind is AnswerKind.NUMBER and found is None:
        raise ValueError(f"answer is {brief(value)}, no number")
    if kind is AnswerKind.INTEGER and (
        found is None or found.denominator != 1 or not 0 <= found <= AIME_MOST
    ):
        raise ValueError(f"answer is {brief(value)}, no whole number from 0 to {AIME_MOST}")
    if not text and kind is not AnswerKind.CODE:
        raise ValueError("answer is empty")
    return text


def _choice(text: str, choices: Sequence[str]) -> str:
    """The right choice in words; it may be given so, or as its letter in the order written."""
    if text in choices:
        return text
    if len(text) == 1 and text.upper() in LETTERS[: len(choices)]:
        return choices[LETTERS.index(text.upper())]
    raise ValueError(f"answer is {brief(text)}, none of the choices and none of their letters")


def read_questions(path: Path) -> tuple[Question, ...]:
    """The questions of a JSONL file. WorkloadError names the line and what is wrong with it."""
    rows = json_rows(path, read_text(path).split("\n"))
    found = [_question(place, row) for place, row in rows]
    return checked_set(found, str(path))


def _question(place: str, row: dict[str, object]) -> Question:
    try:
        return QuestionRow.model_validate(row).asked()
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        what = first["msg"].removeprefix("Value error, ")
        raise WorkloadError(f"{field}: {what}" if field else what, where=place) from error
    except ValueError as error:
        raise WorkloadError(str(error), where=place) from error


def checked_set(questions: Sequence[Question], where: str) -> tuple[Question, ...]:
    """The questions; WorkloadError where there is none, or where two share an id."""
    if not questions:
        raise WorkloadError("has no question", where=where)
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise WorkloadError(f"two questions have the id {brief(question.id)}", where=where)
        seen.add(question.id)
    return tuple(questions)
