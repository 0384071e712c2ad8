"""Sets by the name or path that a plan gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from random import Random

from experiments.errors import WorkloadError
from experiments.evals.packages import ABOUT_PACKAGED, PACKAGED
from experiments.evals.questions import Question, read_questions
from experiments.identity import digest
from experiments.workload_specs import JSONL
from kernels.near_names import nearest

NANO = "nano"
ABOUT = {
    NANO: "120 that ship, for the checkpoint nano: sums, stories, lists, facts; it saw none",
    **ABOUT_PACKAGED,
}
"""What each named set holds."""


def is_file(name: str) -> bool:
    """Whether a plan names a file of its own, not a set that is known here."""
    return name.endswith(JSONL)


def load_set(name: str) -> tuple[Question, ...]:
    """The questions of a named set or of a JSONL file.

    WorkloadError for an unknown name or a damaged file, MissingPackageError where the package
    that holds the set is not installed.
    """
    if is_file(name):
        return read_questions(Path(name))
    if name == NANO:
        return read_questions(Path(str(files("experiments.evals") / "nano.jsonl")))
    if name not in PACKAGED:
        raise WorkloadError(
            f"there is no set {name!r}",
            where="workloads.set",
            remedy=f"{nearest(name, ABOUT)} A set of your own is a file that ends in .jsonl.",
        )
    return PACKAGED[name]()


def shuffled(questions: Sequence[Question], seed: int) -> tuple[Question, ...]:
    """The same questions with their choices in an order drawn by the seed and the question's id.

    Sets tend to have the right choice in one place; every arm sees the same order.
    """
    return tuple(_shuffled(question, seed) for question in questions)


def _shuffled(question: Question, seed: int) -> Question:
    choices = list(question.choices)
    Random(f"{seed} {question.id}").shuffle(choices)
    return replace(question, choices=tuple(choices))


def set_hash(questions: Sequence[Question]) -> str:
    """Identity of a set: what is asked, in which order, and what is right."""
    return digest([repr(question) for question in questions])
