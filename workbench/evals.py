"""Judged answers in a store: one row an answer, and what they come to in a few lines."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.evals.agreement import JudgeAgreement, judge_agreement
from experiments.evals.sets import ABOUT as SETS
from experiments.records import EvalAnswer, EvalVerdict

if TYPE_CHECKING:
    import pyarrow

EVALS = "evals.parquet"

__all__ = [
    "EVALS", "SETS", "JudgeAgreement", "eval_rows", "eval_schema", "judge_agreement",
    "read_evals", "verdict_counts",
]  # fmt: skip


def eval_rows(answers: Sequence[EvalAnswer]) -> list[dict[str, object]]:
    """Answers as the rows of evals.parquet."""
    return [dataclasses.asdict(answer) for answer in answers]


def read_evals(folder: Path) -> list[dict[str, object]]:
    """The rows of a trial folder; none where no question was asked."""
    import pyarrow.parquet

    path = folder / EVALS
    return pyarrow.parquet.read_table(path).to_pylist() if path.exists() else []


def verdict_counts(answers: Sequence[EvalAnswer]) -> dict[EvalVerdict, int]:
    """How many answers got each verdict, every verdict named."""
    counts = Counter(answer.verdict for answer in answers)
    return {verdict: counts[verdict] for verdict in EvalVerdict}


@cache
def eval_schema() -> pyarrow.Schema:
    """Columns of evals.parquet."""
    import pyarrow as pa

    text, count = pa.string(), pa.int64()
    return pa.schema(
        {
            "question_id": text,
            "sample": count,
            "request_id": text,
            "kind": text,
            "expected": text,
            "output_text": text,
            "extracted": text,
            "rule": text,
            "verdict": text,
            "reason": text,
            "judge": text,
            "output_tokens": count,
            "truncated": pa.bool_(),
            "rule_verdict": text,
            "llm_verdict": text,
        }
    )
