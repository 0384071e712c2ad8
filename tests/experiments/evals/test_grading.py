"""From requests to judged answers: what counts, what does not, and why."""

import pytest

from engine.request import FinishReason
from experiments.evals.grading import graded
from experiments.evals.llm_judge import Opinion
from experiments.records import EvalVerdict
from tests.fakes import answers as made

CORRECT, WRONG, NO_ANSWER = EvalVerdict.CORRECT, EvalVerdict.WRONG, EvalVerdict.NO_ANSWER
UNJUDGED, UNANSWERED = EvalVerdict.UNJUDGED, EvalVerdict.UNANSWERED


class Judge:
    """Says one thing of everything, and remembers what it was asked."""

    name = "llm:m"

    def __init__(self, verdict):
        self.verdict, self.asked = verdict, []

    def judge(self, asked):
        self.asked += [(question.id, output) for question, output in asked]
        return [Opinion(verdict=self.verdict, reason="because") for _ in asked]


def one(question, decode=None, judge=None, fields=None, **request):
    (found,) = graded(
        made.workload(question, **(fields or {})), [made.request(**request)], decode, judge
    )
    return found


@pytest.mark.parametrize(
    ("text", "verdict", "extracted", "rule"),
    [
        ("The answer is 42.", CORRECT, "42", "marked"),
        ("It is 41", WRONG, "41", "last"),
        ("I do not know", NO_ANSWER, None, None),
        ("   ", NO_ANSWER, None, None),
    ],
)
def test_an_output_is_right_wrong_or_holds_no_answer(text, verdict, extracted, rule):
    found = one(made.question(), text=text)
    assert (found.verdict, found.extracted, found.rule) == (verdict, extracted, rule)
    assert found.judge == "rules"
    assert (found.reason is None) == (verdict is not NO_ANSWER)


def test_an_output_that_was_cut_off_is_not_searched_for_an_answer_it_had_not_come_to():
    cut = {"finish": FinishReason.LENGTH}
    found = one(made.question(), text="First I take 42", **cut)
    assert (found.verdict, found.truncated, found.extracted) == (NO_ANSWER, True, None)
    assert "cut off" in found.reason
    named = one(made.question(), text="The answer is 42, because", **cut)
    assert (named.verdict, named.truncated) == (CORRECT, True)
    begun = "```python\ndef f():\n    return 1"
    code = one(made.code_question(), text=begun, fields={"allow_code": True}, **cut)
    assert code.verdict is NO_ANSWER


def test_a_request_that_failed_is_unanswered_and_says_why():
    found = one(made.question(), error="the engine died")
    assert (found.verdict, found.reason) == (UNANSWERED, "the engine died")
    given_up = one(made.question(), text="42", finish=FinishReason.ABORT)
    assert given_up.verdict is UNANSWERED


def test_ids_become_text_by_the_targets_decoder_and_are_not_judged_without_one():
    decode = {(7, 8): "42"}
    found = one(made.question(), decode=lambda ids: decode[tuple(ids)])
    assert (found.verdict, found.output_text) == (CORRECT, "42")
    assert one(made.question()).verdict is UNJUDGED


def test_thoughts_are_left_out_and_thoughts_without_an_end_answer_nothing():
    texts = {(9,): "42", (): ""}
    thinks = {"think_end_id": 5, "thinking": True}

    def decode(ids):
        return texts[tuple(ids)]

    assert one(made.question(), decode, fields=thinks, ids=(1, 5, 2, 5, 9)).verdict is CORRECT
    assert one(made.question(), decode, fields=thinks, ids=(1, 2)).verdict is NO_ANSWER
    assert one(made.question(), text="It is 7</think>42").output_text == "42"
    assert one(made.question(), text="<think>It is 42").verdict is NO_ANSWER


def test_a_choice_is_judged_in_the_order_in_which_it_was_asked():
    assert one(made.choice_question(), text="The answer is (C)").verdict is CORRECT
    assert one(made.choice_question(), text="The answer is (A)").verdict is WRONG
    assert one(made.choice_question(), text="blue").extracted == "C"


def test_code_is_listed_but_not_run_unless_that_is_allowed():
    listed = one(made.code_question(), text="    return 1")
    assert (listed.verdict, listed.extracted) == (UNJUDGED, "    return 1")
    assert "--allow-code" in listed.reason
    assert one(made.code_question(), text="I cannot").verdict is UNJUDGED  # nor is what has none
    allowed = {"allow_code": True}
    assert one(made.code_question(), text="    return 1", fields=allowed).verdict is CORRECT
    failed = one(made.code_question(), text="    return 2", fields=allowed)
    assert (failed.verdict, "AssertionError" in failed.reason) == (WRONG, True)


def test_answers_come_in_the_order_of_asking_with_their_sample_and_without_the_warm_up():
    source = made.workload(made.question("a"), made.question("b"), samples=2, temperature=1.0)
    requests = [made.request(index, text="42") for index in (3, 0, 2, 1)]
    requests.append(made.request(-1, text="42", warm_up=True))
    found = graded(source, requests, None)
    assert [(a.question_id, a.sample) for a in found] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_the_other_judge_counts_and_the_rules_stand_beside_it():
    judge = Judge(CORRECT)
    found = one(made.question(), judge=judge, text="forty-two")
    assert (found.verdict, found.rule_verdict, found.llm_verdict) == (CORRECT, NO_ANSWER, CORRECT)
    assert (found.judge, found.reason) == ("llm:m", "because")
    assert judge.asked == [("q1", "forty-two")]


def test_an_answer_on_which_the_other_judge_failed_is_unjudged_not_wrong():
    found = one(made.question(), judge=Judge(None), text="42")
    assert (found.verdict, found.rule_verdict, found.llm_verdict) == (UNJUDGED, CORRECT, None)


def test_json_code_and_requests_without_an_output_are_no_matter_of_the_other_judge():
    judge = Judge(WRONG)
    questions = [made.question("j", made.AnswerKind.JSON), made.code_question(), made.question("n")]
    requests = [
        made.request(0, text='{"a": 1}'),
        made.request(1, text="    return 1"),
        made.request(2, error="died"),
    ]
    found = graded(made.workload(*questions), requests, None, judge)
    assert [a.verdict for a in found] == [CORRECT, UNJUDGED, UNANSWERED]
    assert judge.asked == []
