"""Questions, the requests that asked them and judged answers, made by hand."""

from engine.request import FinishReason
from experiments.evals.prompts import PromptForm
from experiments.evals.questions import AnswerKind, CodeTest, Question
from experiments.evals.workload import EvalWorkload
from experiments.records import Chunk, EvalAnswer, EvalVerdict, RequestRecord
from experiments.workload_specs import EvalSpec
from tests.fakes.workloads import FACTS

KINDS = {
    AnswerKind.NUMBER: ("How many?", "42"),
    AnswerKind.EXACT: ("Who?", "Emmy Noether"),
    AnswerKind.JSON: ("What?", '{"a": 1}'),
}


def question(id="q1", kind=AnswerKind.NUMBER, **fields):
    text, answer = KINDS.get(kind, ("Which?", ""))
    known = {"messages": (("user", text),), "answer": answer, **fields}
    return Question(id=id, kind=kind, **known)


def choice_question(id="c"):
    return question(id, AnswerKind.CHOICE, choices=("red", "green", "blue"), answer="blue")


def code_question(id="p"):
    test = CodeTest(
        prompt="def f():\n", entry_point="f", source="def check(f):\n    assert f() == 1"
    )
    return question(id, AnswerKind.CODE, answer="    return 1", test=test)


def workload(*questions, facts=FACTS, form=PromptForm.PLAIN, think_end_id=None, **fields):
    spec = EvalSpec(name="w", kind="eval", set="x.jsonl", **fields)
    prompts = tuple((3, 4, 5 + at) for at in range(len(questions)))
    return EvalWorkload(
        spec=spec,
        facts=facts,
        questions=questions,
        prompts=prompts,
        form=form,
        think_end_id=think_end_id,
    )


def request(index=0, text=None, ids=(7, 8), finish=FinishReason.STOP, error=None, **fields):
    """A request that ended so; its text is what a server sent, or its ids are all there is."""
    done = error is None
    known = {
        "request_id": f"r{index}",
        "index": index,
        "intended_s": 0.0,
        "dispatched_s": 0.0,
        "sent_s": 0.0,
        "chunks": (Chunk(time_s=1.0, tokens=len(ids)),) if done else (),
        "ended_s": 1.0,
        "finish_reason": str(finish) if done else "error",
        "error": error,
        "prompt_tokens": 3,
        "output_tokens": len(ids),
        "requested_output_tokens": 16,
        "output_text": text,
        "output_token_ids": tuple(ids),
    }
    return RequestRecord(**{**known, **fields})


def answer(question_id="q1", sample=0, verdict=EvalVerdict.CORRECT, **fields):
    known = {
        "question_id": question_id,
        "sample": sample,
        "request_id": f"r-{question_id}-{sample}",
        "kind": "number",
        "expected": "42",
        "output_text": "42",
        "extracted": "42",
        "rule": "last",
        "verdict": verdict,
        "reason": None,
        "judge": "rules",
        "output_tokens": 4,
        "truncated": False,
        "rule_verdict": verdict,
    }
    return EvalAnswer(**{**known, **fields})
