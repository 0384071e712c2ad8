"""The metrics of evals as rows."""

from __future__ import annotations

from experiments.metric_rows import Rows

EVALS: Rows = (
    (
        "accuracy",
        "Accuracy",
        "",
        "max",
        "mean of questions",
        "share of right answers; the mean over questions where each has several samples. An "
        "output without an answer is not right (eval_no_answer counts them); what was not judged "
        "is left out. 95 % interval: Wilson's, or a bootstrap over questions with several samples",
    ),
    (
        "accuracy_of_answers",
        "Accuracy of answers found",
        "",
        "max",
        "mean of questions",
        "accuracy without the outputs in which no answer was found",
    ),
    (
        "pass_at_k",
        "Pass@k",
        "",
        "max",
        "mean of questions",
        "chance that one of k = pass_k samples is right, 1 - C(n - c, k) / C(n, k) of a question "
        "with n judged samples and c right ones; the mean over questions with n >= k",
    ),
    (
        "eval_questions",
        "Questions",
        "",
        "none",
        "count of questions",
        "questions that were asked, each as often as the workload's samples",
    ),
    (
        "eval_no_answer",
        "Outputs without an answer",
        "requests",
        "min",
        "count of requests",
        "outputs in which no rule, or the judge, found an answer",
    ),
    (
        "eval_truncated",
        "Truncated outputs",
        "requests",
        "min",
        "count of requests",
        "outputs that ended at output_tokens, whatever they answered",
    ),
    (
        "eval_unanswered",
        "Requests without an output",
        "requests",
        "min",
        "count of requests",
        "requests that failed or were given up; in no accuracy",
    ),
    (
        "eval_unjudged",
        "Answers not judged",
        "requests",
        "min",
        "count of requests",
        "outputs that could not be judged: code that may not run, a judge that failed; in no "
        "accuracy",
    ),
    (
        "eval_output_tokens_mean",
        "Output length",
        "tok",
        "none",
        "mean of requests",
        "output tokens of a request that was answered, thoughts included",
    ),
)
