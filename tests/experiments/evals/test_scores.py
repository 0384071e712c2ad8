"""What judged answers come to, with numbers worked by hand."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.evals.agreement import judge_agreement
from experiments.evals.scores import scores
from experiments.metric_rows_evals import EVALS
from experiments.records import EvalVerdict
from tests.fakes.answers import answer

CORRECT, WRONG, NO_ANSWER = EvalVerdict.CORRECT, EvalVerdict.WRONG, EvalVerdict.NO_ANSWER
UNJUDGED, UNANSWERED = EvalVerdict.UNJUDGED, EvalVerdict.UNANSWERED


def of(verdicts, pass_k=1):
    found = [answer(f"q{i}", verdict=verdict) for i, verdict in enumerate(verdicts)]
    return scores(found, pass_k=pass_k, draws=200, seed=1)


def sampled(*questions, pass_k):
    """Of each question which of its samples are right."""
    found = [
        answer(f"q{i}", sample, CORRECT if right else WRONG)
        for i, rights in enumerate(questions)
        for sample, right in enumerate(rights)
    ]
    return scores(found, pass_k=pass_k, draws=500, seed=1)


def test_the_metrics_are_those_that_are_listed():
    assert set(of([CORRECT])) == {row[0] for row in EVALS}


def test_accuracy_counts_outputs_without_an_answer_and_leaves_out_what_was_not_judged():
    found = of([CORRECT] * 6 + [WRONG] * 2 + [NO_ANSWER] * 2 + [UNJUDGED] * 3 + [UNANSWERED] * 4)
    assert (found["accuracy"].value, found["accuracy"].n) == (0.6, 10)
    assert (found["accuracy_of_answers"].value, found["accuracy_of_answers"].n) == (0.75, 8)
    counts = ("eval_questions", "eval_no_answer", "eval_unjudged", "eval_unanswered")
    assert [found[name].value for name in counts] == [17, 2, 3, 4]


def test_the_interval_of_one_sample_a_question_is_wilsons():
    found = of([CORRECT] * 8 + [WRONG] * 2)["accuracy"]
    assert (found.low, found.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_all_right_is_not_certain():
    found = of([CORRECT] * 10)["accuracy"]
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.7225, abs=1e-4)


def test_nothing_judged_is_no_accuracy_and_says_so():
    found = of([UNJUDGED, UNANSWERED])
    assert found["accuracy"].value is None
    assert found["accuracy"].reason == "no answer was judged"


def test_pass_at_k_is_the_chance_that_a_draw_of_k_holds_a_right_one():
    found = sampled([1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 0], pass_k=2)
    assert found["pass_at_k"].value == pytest.approx((1 / 2 + 0 + 1) / 3)
    assert found["accuracy"].value == pytest.approx((0.25 + 0 + 0.75) / 3)
    assert found["accuracy"].n == found["pass_at_k"].n == 3


@given(st.lists(st.booleans(), min_size=2, max_size=7), st.integers(1, 7))
def test_pass_at_k_is_what_counting_every_draw_gives(rights, k):
    found = sampled(rights, pass_k=k)["pass_at_k"]
    draws = list(itertools.combinations(rights, k))
    if draws:
        assert found.value == pytest.approx(sum(map(any, draws)) / len(draws))
    else:
        assert found.value is None
        assert found.reason


def test_pass_at_k_needs_several_samples():
    assert of([CORRECT, WRONG])["pass_at_k"].reason == "there is one sample a question"


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=12))
def test_an_interval_holds_its_value_and_is_no_point_where_questions_are_few(questions):
    found = sampled(*questions, pass_k=3)["accuracy"]
    assert 0 <= found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high <= 1
    assert found.low < found.high


def test_samples_of_one_question_are_no_more_questions():
    once = of([CORRECT, WRONG] * 5)["accuracy"]
    often = sampled(*([1] * 20, [0] * 20) * 5, pass_k=1)["accuracy"]
    assert often.n == once.n == 10
    assert often.high - often.low > (once.high - once.low) / 2


def test_lengths_count_what_was_answered_and_truncated_outputs_are_counted():
    found = scores(
        [
            answer("a", output_tokens=10, truncated=True),
            answer("b", output_tokens=20),
            answer("c", verdict=UNANSWERED, output_tokens=5, truncated=True),
        ],
        pass_k=1,
        draws=50,
        seed=1,
    )
    assert found["eval_output_tokens_mean"].value == 15
    assert found["eval_truncated"].value == 1


def both(*pairs):
    return [
        answer(f"q{i}", verdict=model, rule_verdict=rules, llm_verdict=model)
        for i, (rules, model) in enumerate(pairs)
    ]


def test_kappa_is_cohens():
    found = judge_agreement(
        both(
            *[(CORRECT, CORRECT)] * 20,
            *[(CORRECT, WRONG)] * 5,
            *[(WRONG, CORRECT)] * 10,
            *[(WRONG, WRONG)] * 15,
        )
    )
    assert found.answers == 50
    assert found.agreed == pytest.approx(0.7)
    assert found.kappa == pytest.approx(0.4)
    assert found.counts[CORRECT, WRONG] == 5
    assert len(found.disagreements) == 15


def test_kappa_is_missing_where_chance_agrees_in_all():
    found = judge_agreement(both((CORRECT, CORRECT), (CORRECT, CORRECT)))
    assert (found.agreed, found.kappa) == (1.0, None)
    assert found.kappa_reason


def test_answers_that_one_judge_did_not_judge_are_in_no_agreement():
    one_sided = [
        answer("a", verdict=UNJUDGED, rule_verdict=CORRECT),
        answer("b", verdict=CORRECT, rule_verdict=UNJUDGED, llm_verdict=CORRECT),
    ]
    assert judge_agreement(one_sided) is None
    assert judge_agreement([*one_sided, *both((NO_ANSWER, WRONG))]).answers == 1
