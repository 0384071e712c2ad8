"""How far two judges of the same answers agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import EvalAnswer, EvalVerdict

JUDGEMENTS = (EvalVerdict.CORRECT, EvalVerdict.WRONG, EvalVerdict.NO_ANSWER)


@dataclass(frozen=True, kw_only=True)
class JudgeAgreement:
    """Two verdicts on each answer, the rules' and the other model's."""

    counts: dict[tuple[EvalVerdict, EvalVerdict], int]  # (rules, model) -> answers
    agreed: float  # share of equal verdicts
    kappa: float | None  # Cohen's: 1 agrees in all, 0 as by chance
    kappa_reason: str | None
    disagreements: tuple[EvalAnswer, ...]

    @property
    def answers(self) -> int:
        """Answers on which both gave a verdict."""
        return sum(self.counts.values())


def judge_agreement(answers: Sequence[EvalAnswer]) -> JudgeAgreement | None:
    """Of the answers that both judged; None where no other model judged any.

    Kappa is (agreed - by chance) / (1 - by chance) on right, wrong and no answer; missing where
    both gave one and the same verdict throughout, since chance agrees in all of it.
    """
    both = [a for a in answers if a.llm_verdict is not None and a.rule_verdict in JUDGEMENTS]
    if not both:
        return None
    pairs = [(EvalVerdict(str(a.rule_verdict)), EvalVerdict(str(a.llm_verdict))) for a in both]
    agreed = sum(x is y for x, y in pairs) / len(pairs)
    ours, theirs = Counter(x for x, _ in pairs), Counter(y for _, y in pairs)
    chance = sum(ours[v] * theirs[v] for v in JUDGEMENTS) / len(pairs) ** 2
    return JudgeAgreement(
        counts=dict(Counter(pairs)),
        agreed=agreed,
        kappa=None if chance == 1 else (agreed - chance) / (1 - chance),
        kappa_reason="both judges gave one verdict throughout" if chance == 1 else None,
        disagreements=tuple(a for a, (x, y) in zip(both, pairs, strict=True) if x is not y),
    )
