"""From the requests of a trial to judged answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.request import FinishReason
from experiments.evals.code_run import REFUSED, program, run_program
from experiments.evals.extraction import NEED_THE_END, Extraction
from experiments.evals.llm_judge import JUDGED_KINDS, LlmJudge, Opinion
from experiments.evals.questions import AnswerKind, Question
from experiments.evals.rules import JUDGE, expected, found_answer, is_right
from experiments.evals.workload import EvalWorkload
from experiments.measurement import succeeded
from experiments.records import EvalAnswer, EvalVerdict, RequestRecord
from experiments.training.chat_format import THINK, THINK_END

UNJUDGED = EvalVerdict.UNJUDGED
Decode = Callable[[Sequence[int]], str]
"""Text of output ids, without special tokens."""

_NO_DECODER = "this target gives ids, and no text for them"


def graded(
    workload: EvalWorkload,
    requests: Sequence[RequestRecord],
    decode: Decode | None,
    judge: LlmJudge | None = None,
) -> tuple[EvalAnswer, ...]:
    """One judged answer a request that is not warm-up, in the order of the questions asked.

    With `judge` its verdict counts where it gave one, and the rules' stands beside it.
    """
    asked = sorted((r for r in requests if not r.warm_up), key=lambda r: r.index)
    answers = [_by_rules(workload, request, decode) for request in asked]
    if judge is None:
        return tuple(answers)
    return _with_opinions(workload, answers, asked, judge)


def _by_rules(workload: EvalWorkload, request: RequestRecord, decode: Decode | None) -> EvalAnswer:
    question, sample = workload.question(request.index)
    truncated = request.finish_reason == FinishReason.LENGTH
    answer = EvalAnswer(
        question_id=question.id,
        sample=sample,
        request_id=request.request_id,
        kind=str(question.kind),
        expected=expected(question),
        output_text=None,
        extracted=None,
        rule=None,
        verdict=EvalVerdict.UNANSWERED,
        reason=None,
        judge=JUDGE,
        output_tokens=request.output_tokens,
        truncated=truncated,
    )
    if not succeeded(request):
        return replace(answer, reason=request.error or f"ended by {request.finish_reason}")
    output = answer_text(request, decode, workload.think_end_id if workload.spec.thinking else None)
    if output is None:
        return replace(answer, verdict=UNJUDGED, reason=_NO_DECODER)
    found = _found(question, output, truncated)
    answer = replace(answer, output_text=output, extracted=found.value)
    if question.kind is AnswerKind.CODE and not workload.spec.allow_code:
        return replace(answer, rule=found.value and found.rule, verdict=UNJUDGED, reason=REFUSED)
    if found.value is None:
        return replace(answer, verdict=EvalVerdict.NO_ANSWER, reason=found.rule)
    verdict, reason = _verdict(question, found.value)
    return replace(answer, rule=found.rule, verdict=verdict, reason=reason, rule_verdict=verdict)


def answer_text(
    request: RequestRecord, decode: Decode | None, think_end_id: int | None
) -> str | None:
    """What the request answered, thoughts left out; None where there are ids and no decoder.

    Thoughts that never end are all there is: then the answer is empty.
    """
    if request.output_text is not None:
        thought, end, said = request.output_text.rpartition(THINK_END)
        return said if end or THINK not in said else thought
    ids = list(request.output_token_ids or ())
    if decode is None:
        return None
    if think_end_id is not None:
        ends = [at for at, token in enumerate(ids) if token == think_end_id]
        ids = ids[ends[-1] + 1 :] if ends else []
    return decode(ids)


def _found(question: Question, output: str, truncated: bool) -> Extraction:
    found = found_answer(question, output)
    if truncated and found.rule in NEED_THE_END:
        return Extraction(None, "it was cut off before it named an answer")
    return found


def _verdict(question: Question, extracted: str) -> tuple[EvalVerdict, str | None]:
    if question.kind is not AnswerKind.CODE:
        right = is_right(question, extracted)
        return EvalVerdict.CORRECT if right else EvalVerdict.WRONG, None
    assert question.test is not None, "a question of code has a test"
    ran = run_program(program(question.test, extracted))
    return EvalVerdict.CORRECT if ran.passed else EvalVerdict.WRONG, ran.reason


def _with_opinions(
    workload: EvalWorkload,
    answers: Sequence[EvalAnswer],
    requests: Sequence[RequestRecord],
    judge: LlmJudge,
) -> tuple[EvalAnswer, ...]:
    questions = [workload.question(request.index)[0] for request in requests]
    judged = [
        at
        for at, question in enumerate(questions)
        if question.kind in JUDGED_KINDS and answers[at].output_text
    ]
    asked = [(questions[at], answers[at].output_text or "") for at in judged]
    found = dict(zip(judged, judge.judge(asked), strict=True))
    return tuple(
        _overruled(answer, found[at], judge.name) if at in found else answer
        for at, answer in enumerate(answers)
    )


def _overruled(answer: EvalAnswer, opinion: Opinion, name: str) -> EvalAnswer:
    """The answer with the other judge's verdict; unjudged where that judge gave none."""
    verdict = opinion.verdict if opinion.verdict is not None else UNJUDGED
    return replace(
        answer,
        judge=name,
        verdict=verdict,
        reason=opinion.reason,
        rule_verdict=answer.verdict,
        llm_verdict=opinion.verdict,
    )
