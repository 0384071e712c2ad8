"""Another model as judge of answers, over an OpenAI-compatible server.

EVAL_JUDGE_BASE_URL (up to and with /v1), EVAL_JUDGE_MODEL and EVAL_JUDGE_API_KEY say which. The
key and the address are stored nowhere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.environment import read_variable
from experiments.evals.questions import AnswerKind, Question
from experiments.evals.rules import expected
from experiments.records import EvalVerdict
from experiments.targets.http_json import dig, items, text

if TYPE_CHECKING:
    import httpx

BASE_URL, MODEL, API_KEY = "EVAL_JUDGE_BASE_URL", "EVAL_JUDGE_MODEL", "EVAL_JUDGE_API_KEY"
JUDGED_KINDS = frozenset(
    {AnswerKind.INTEGER, AnswerKind.NUMBER, AnswerKind.CHOICE, AnswerKind.EXACT}
)
"""What another model can judge; JSON values and programs are compared and run."""
MOST_TOKENS = 2048
MOST_READ = 20_000  # characters of an output, from its end
TRIES, PAUSE_S, TIMEOUT_S, AT_ONCE = 3, 1.0, 120.0, 8
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_VERDICT = re.compile(r"VERDICT:\W*(CORRECT|WRONG|NONE)\b", re.IGNORECASE)
_VERDICTS = {
    "CORRECT": EvalVerdict.CORRECT,
    "WRONG": EvalVerdict.WRONG,
    "NONE": EvalVerdict.NO_ANSWER,
}

_ASK = """You compare an answer with the correct one. Do not solve the question, and do not argue
with the correct answer. The answer is right if its final result means the same: other wording,
units or notation do not matter, and neither does rounding in the last digit. If it commits itself
to no final result, there is none.

<question>
{question}
</question>

<correct>
{correct}
</correct>

<answer>
{answer}
</answer>

Give one sentence of reason, then a last line that is exactly VERDICT: CORRECT, VERDICT: WRONG or
VERDICT: NONE."""


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """Which model judges."""

    base_url: str = field(repr=False)
    model: str
    api_key: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """What the judge said; `verdict` None: nothing that counts, for `reason`."""

    verdict: EvalVerdict | None
    reason: str


Asked = tuple[Question, str]  # and the output


def judge_settings(environ: Mapping[str, str] | None = None) -> JudgeSettings:
    """From the environment. ConfigError names the variable that is not set."""
    why = "`judge: llm` asks the model that it names"
    url, model, key = (read_variable(name, why, environ) for name in (BASE_URL, MODEL, API_KEY))
    return JudgeSettings(base_url=url.rstrip("/"), model=model, api_key=key)


class LlmJudge:
    """Judges outputs one by one. `transport` replaces the network, `pause` the wait."""

    def __init__(
        self,
        settings: JudgeSettings,
        *,
        transport: httpx.BaseTransport | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        import httpx  # not needed to measure speed

        self._settings = settings
        self._pause = pause
        self._failures = (httpx.HTTPError, httpx.InvalidURL, ValueError)
        self._client = httpx.Client(transport=transport, timeout=TIMEOUT_S, trust_env=False)

    @property
    def name(self) -> str:
        """As answers name it."""
        return f"llm:{self._settings.model}"

    def judge(self, asked: Sequence[Asked]) -> list[Opinion]:
        """An opinion of each, a few at a time, in order. One that failed says so."""
        with self._client, ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(self._one, asked))

    def _one(self, asked: Asked) -> Opinion:
        question, output = asked
        try:
            said = self._said(_prompt(question, output))
        except self._failures as error:
            what = f"{type(error).__name__}: {error}".replace(self._settings.api_key, "...")
            what = what.replace(self._settings.base_url, "the judge")
            return Opinion(verdict=None, reason=f"the judge failed: {what}")
        found = _VERDICT.findall(said)
        if not found:
            return Opinion(verdict=None, reason=f"the judge gave no verdict: {said[-200:]!r}")
        return Opinion(verdict=_VERDICTS[found[-1].upper()], reason=said.strip()[:1000])

    def _said(self, prompt: str) -> str:
        settings = self._settings
        body = {
            "model": settings.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": MOST_TOKENS,
        }
        headers = {"authorization": f"Bearer {settings.api_key}"}
        url = f"{settings.base_url}/chat/completions"
        answer = self._client.post(url, json=body, headers=headers)
        for attempt in range(TRIES - 1):
            if answer.status_code not in _BUSY:
                break
            self._pause(PAUSE_S * 2**attempt)
            answer = self._client.post(url, json=body, headers=headers)
        answer.raise_for_status()
        choices = items(dig(answer.json(), "choices"))
        return text(dig(choices[0], "message", "content")) if choices else ""


def _prompt(question: Question, output: str) -> str:
    from experiments.evals.prompts import asked

    return _ASK.format(
        question=asked(question), correct=_correct(question), answer=output[-MOST_READ:]
    )


def _correct(question: Question) -> str:
    if question.kind is AnswerKind.CHOICE:
        return f"({expected(question)}) {question.answer}"
    return question.answer
