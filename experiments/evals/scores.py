"""What judged answers come to: accuracy with its interval, and everything counted beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.metric_values import missing
from experiments.proportions import share_between
from experiments.records import EvalAnswer, EvalVerdict, MetricValue

NOT_JUDGED = (EvalVerdict.UNANSWERED, EvalVerdict.UNJUDGED)


def scores(
    answers: Sequence[EvalAnswer], *, pass_k: int, draws: int, seed: int
) -> dict[str, MetricValue]:
    """The metrics of `metric_rows_evals`. What was not judged is counted, and in no accuracy."""
    judged = [a for a in answers if a.verdict not in NOT_JUDGED]
    none = [a for a in answers if a.verdict is EvalVerdict.NO_ANSWER]
    answered = [a for a in answers if a.verdict is not EvalVerdict.UNANSWERED]

    def count(found: Sequence[EvalAnswer]) -> MetricValue:
        return MetricValue(value=float(len(found)), n=len(answers))

    return {
        "accuracy": accuracy(judged, draws=draws, seed=seed),
        "accuracy_of_answers": accuracy(
            [a for a in judged if a not in none], draws=draws, seed=seed
        ),
        "pass_at_k": pass_at_k(judged, pass_k, draws=draws, seed=seed),
        "eval_questions": MetricValue(
            value=float(len({a.question_id for a in answers})), n=len(answers)
        ),
        "eval_no_answer": count(none),
        "eval_truncated": count([a for a in answered if a.truncated]),
        "eval_unanswered": count([a for a in answers if a.verdict is EvalVerdict.UNANSWERED]),
        "eval_unjudged": count([a for a in answers if a.verdict is EvalVerdict.UNJUDGED]),
        "eval_output_tokens_mean": _mean_tokens(answered),
    }


def accuracy(answers: Sequence[EvalAnswer], *, draws: int, seed: int) -> MetricValue:
    """The mean over questions of the share of right samples; n is questions.

    95 % interval: Wilson's with one sample a question, else percentiles of a bootstrap over
    questions; Wilson's too where all questions fare alike, since resamples of them cannot differ.
    """
    right = _right_by_question(answers)
    shares = np.array([c / n for n, c in right])
    return _mean_of(shares, draws, seed, one=all(n == 1 for n, _ in right))


def pass_at_k(answers: Sequence[EvalAnswer], k: int, *, draws: int, seed: int) -> MetricValue:
    """The chance that one of k samples is right: 1 - C(n - c, k) / C(n, k), mean over questions.

    Of a question with n judged samples, c of them right. Questions with fewer than k are left out.
    """
    right = _right_by_question(answers)
    if right and max(n for n, _ in right) < 2:
        return missing("there is one sample a question", len(right))
    chances = np.array([1 - math.comb(n - c, k) / math.comb(n, k) for n, c in right if n >= k])
    if right and not len(chances):
        return missing(f"no question has {k} judged samples", len(right))
    return _mean_of(chances, draws, seed, one=False)


def _right_by_question(answers: Sequence[EvalAnswer]) -> list[tuple[int, int]]:
    """(judged samples, right ones) of each question."""
    found: dict[str, list[bool]] = {}
    for answer in answers:
        found.setdefault(answer.question_id, []).append(answer.verdict is EvalVerdict.CORRECT)
    return [(len(each), sum(each)) for each in found.values()]


def _mean_of(shares: np.ndarray, draws: int, seed: int, *, one: bool) -> MetricValue:
    if not len(shares):
        return missing("no answer was judged")
    value, n = float(shares.mean()), len(shares)
    if one or np.ptp(shares) == 0:
        low, high = share_between(float(shares.sum()), n)
        return MetricValue(value=value, n=n, low=low, high=high)
    means = _resampled(shares, draws, seed).mean(axis=1)
    low, high = (float(q) for q in np.quantile(means, [0.025, 0.975]))
    return MetricValue(value=value, n=n, low=low, high=high)


def _resampled(shares: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """[draws, questions] drawn with replacement."""
    drawn = np.random.default_rng(seed).integers(0, len(shares), size=(draws, len(shares)))
    return shares[drawn]


def _mean_tokens(answers: Sequence[EvalAnswer]) -> MetricValue:
    if not answers:
        return missing("nothing was answered")
    return MetricValue(value=sum(a.output_tokens for a in answers) / len(answers), n=len(answers))
