"""What the judged answers of a trial come to, in tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.cli_output import say, show_table
from workbench.evals import JudgeAgreement, judge_agreement, verdict_counts
from workbench.figures_text import interval, number, short

if TYPE_CHECKING:
    from experiments.records import EvalAnswer, MetricValue, TrialRecord

MOST_LISTED = 10
"""Answers that a table lists; evals.parquet holds them all."""
MOST_SHOWN = 60
SHOWN = (
    "accuracy", "accuracy_of_answers", "pass_at_k", "eval_questions", "eval_no_answer",
    "eval_truncated", "eval_unanswered", "eval_unjudged", "eval_output_tokens_mean",
    "output_tok_s", "tok_s_user",
)  # fmt: skip


def show_answers(record: TrialRecord) -> None:
    """Accuracy beside speed, the first answers that were not right, and how judges agree."""
    rows = [(name, *_cells(record.metrics[name])) for name in SHOWN if name in record.metrics]
    show_table("eval", ("metric", "value", "95 %", "n"), rows)
    told = [f"{count} {_words(verdict)}" for verdict, count in verdict_counts(record.evals).items()]
    say(f"answers: {', '.join(told)}")
    _list("not right", [answer for answer in record.evals if answer.verdict != "correct"])
    found = judge_agreement(record.evals)
    if found is not None:
        _show_agreement(found)


def _show_agreement(found: JudgeAgreement) -> None:
    kappa = found.kappa_reason if found.kappa is None else f"{found.kappa:.2f}"
    say(
        f"rules and the judge model agree on {found.agreed:.1%} of {found.answers} answers; "
        f"Cohen's kappa: {kappa}"
    )
    counts = [(_words(x), _words(y), str(n)) for (x, y), n in sorted(found.counts.items())]
    show_table("two judges", ("rules", "judge model", "answers"), counts)
    _list("disagreements", found.disagreements)


def _words(verdict: str) -> str:
    return verdict.replace("_", " ")


def _cells(metric: MetricValue) -> tuple[str, str, str]:
    if metric.value is None:
        return f"missing: {metric.reason}", "", str(metric.n)
    return number(metric.value), interval(metric.low, metric.high), str(metric.n)


def _list(title: str, answers: Sequence[EvalAnswer]) -> None:
    rows = [
        (
            answer.question_id,
            _words(answer.verdict),
            _line(answer.expected),
            _line(answer.extracted or answer.reason or ""),
            _line(answer.output_text or ""),
        )
        for answer in answers[:MOST_LISTED]
    ]
    if rows:
        headers = ("question", "verdict", "right", "answered", "output")
        show_table(f"{title}: {len(rows)} of {len(answers)}", headers, rows, whole=("question",))


def _line(text: str) -> str:
    return short(" ".join(text.split()), MOST_SHOWN)
