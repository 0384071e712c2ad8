"""The judge that is another model: what it is asked, what counts of its reply, what is kept."""

import httpx
import pytest

from engine.errors import ConfigError
from experiments.evals.llm_judge import JudgeSettings, LlmJudge, judge_settings
from experiments.records import EvalVerdict
from experiments.targets.http_answers import Usage, whole
from experiments.targets.null_server import Answer
from tests.fakes import answers as made
from tests.fakes.openai_server import serving

KEY = "sk-secret"
SETTINGS = JudgeSettings(base_url="http://judge/v1", model="m", api_key=KEY)
ENVIRON = {
    "EVAL_JUDGE_BASE_URL": "http://judge/v1/",
    "EVAL_JUDGE_MODEL": "m",
    "EVAL_JUDGE_API_KEY": KEY,
}


class Replies(httpx.BaseTransport):
    """Answers with these statuses and texts in turn, then with the last one."""

    def __init__(self, *replies):
        self.replies, self.requests = list(replies), []

    def handle_request(self, request):
        self.requests.append(request)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        status, said = reply
        body = said if isinstance(said, dict) else {"choices": [{"message": {"content": said}}]}
        return httpx.Response(status, json=body)


def opinion(*replies, question=None, output="It is 42."):
    transport, pauses = Replies(*replies), []
    judge = LlmJudge(SETTINGS, transport=transport, pause=pauses.append)
    (found,) = judge.judge([(question or made.question(), output)])
    return found, transport, pauses


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("Same number.\nVERDICT: CORRECT", EvalVerdict.CORRECT),
        ("VERDICT: CORRECT? No.\n**VERDICT: WRONG**", EvalVerdict.WRONG),
        ("nothing there\nverdict: none", EvalVerdict.NO_ANSWER),
        ("It is correct.", None),
        ("", None),
    ],
)
def test_the_last_verdict_counts_and_a_reply_without_one_does_not(said, verdict):
    found, _, _ = opinion((200, said))
    assert found.verdict is verdict
    assert found.reason


def test_it_is_asked_with_the_question_the_right_answer_and_the_output():
    _, transport, _ = opinion((200, "VERDICT: NONE"), question=made.choice_question(), output="{x}")
    request = transport.requests[0]
    body = request.content.decode()
    assert str(request.url) == "http://judge/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert all(part in body for part in ("(B) green", "(C) blue", "{x}", '"temperature":0'))


def test_a_busy_server_is_asked_again_and_a_refusal_is_not():
    found, transport, pauses = opinion((429, {}), (503, {}), (200, "VERDICT: CORRECT"))
    assert (found.verdict, len(transport.requests), pauses) == (EvalVerdict.CORRECT, 3, [1.0, 2.0])
    found, transport, _ = opinion((401, {}))
    assert (found.verdict, len(transport.requests)) == (None, 1)
    assert "401" in found.reason


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError(f"refused {KEY}"),
        httpx.ReadTimeout("late"),
        (500, {}),
        (200, {"choices": "none"}),
    ],
)
def test_a_judge_that_fails_gives_no_verdict_and_never_tells_the_key(failure):
    found, _, _ = opinion(failure)
    assert found.verdict is None
    assert KEY not in found.reason
    assert "http://judge" not in found.reason


def test_it_is_set_up_by_the_environment_and_the_variable_that_lacks_is_named():
    found = judge_settings(ENVIRON)
    assert (found.base_url, found.model) == ("http://judge/v1", "m")
    assert KEY not in repr(found)
    for name in ENVIRON:
        lacking = {k: v for k, v in ENVIRON.items() if k != name}
        with pytest.raises(ConfigError, match="is not set") as caught:
            judge_settings(lacking)
        assert caught.value.where == name


def test_opinions_come_in_the_order_of_the_answers_from_a_server_on_a_socket():
    def script(ask):
        right = "<answer>\n42\n" in ask.body["messages"][0]["content"]
        said = f"VERDICT: {'CORRECT' if right else 'WRONG'}"
        return Answer(body=whole(ask.api, said, Usage(prompt=5, output=3)))

    outputs = ["42", "41", "42", "40", "42", "1", "2", "3", "42"]
    with serving(script) as server:
        settings = JudgeSettings(base_url=f"{server.url}/v1", model="null", api_key=KEY)
        found = LlmJudge(settings).judge([(made.question(), output) for output in outputs])
    right = [one.verdict is EvalVerdict.CORRECT for one in found]
    assert right == [output == "42" for output in outputs]
    assert {one.verdict for one in found} == {EvalVerdict.CORRECT, EvalVerdict.WRONG}
