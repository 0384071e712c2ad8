"""A set of questions as a workload: every one is asked, `samples` times, and no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from experiments.chat import ChatForm
from experiments.errors import WorkloadError
from experiments.evals.llm_judge import JudgeSettings, judge_settings
from experiments.evals.prompts import Prompter, PromptForm, prompt_form
from experiments.evals.questions import Question
from experiments.evals.scores import scores
from experiments.evals.sets import load_set, set_hash, shuffled
from experiments.identity import seed_of
from experiments.records import AxisValue, EvalAnswer, MetricValue
from experiments.targets.base import TargetFacts
from experiments.training.chat_format import THINK_END
from experiments.workload import Whole, WorkItem, Workload, check_fit
from experiments.workload_specs import EvalSpec


@dataclass(frozen=True, kw_only=True)
class EvalWorkload(Workload):
    """Request i asks question i modulo their number; its lap is the sample."""

    spec: EvalSpec
    questions: tuple[Question, ...] = field(repr=False)
    prompts: tuple[tuple[int, ...], ...] = field(repr=False)
    form: PromptForm
    think_end_id: int | None = None  # what parts thoughts from the answer, where it is one token

    def __post_init__(self) -> None:
        where = f"workload {self.spec.name}"
        check_fit(self.longest, self.facts, where, "Lower output_tokens, or take another set.")

    @property
    def rows(self) -> int:
        """The questions."""
        return len(self.questions)

    @property
    def whole(self) -> Whole:
        """Every question as often as it is sampled."""
        return Whole(requests=self.rows * self.spec.samples, limit_s=self.spec.limit_s)

    @property
    def longest(self) -> int:
        """Of the questions, with the longest answer."""
        return max(map(len, self.prompts)) + self.spec.output_tokens

    @property
    def shortest_prompt(self) -> int:
        """Of the questions."""
        return min(map(len, self.prompts))

    def _asked(self) -> list[object]:
        return [set_hash(self.questions), self.prompts, self.spec.samples, self.spec.output_tokens]

    def description(self) -> dict[str, AxisValue]:
        """Also how questions are put; they may share a beginning, and samples share it all."""
        judge = self.judge()
        return {
            **super().description(),
            "content": "eval",
            "rows": self.rows,
            "asked_requests": self.whole.requests,
            "prompt_form": str(self.form),
            "renders_chat": self.form is PromptForm.SERVER,
            "judge_model": None if judge is None else judge.model,
            "shared_prefixes": True,
        }

    def item(self, index: int, salt: str) -> WorkItem:
        """The same questions whatever the salt; it sets how answers are drawn."""
        return WorkItem(
            index=index,
            prompt_token_ids=self.prompts[index % self.rows],
            output_tokens=self.spec.output_tokens,
            seed=seed_of(salt, index),
            kind="eval",
            so_args=self.spec.so_args,
            keeps_text=True,
        )

    def warm_up_item(self, index: int, salt: str) -> WorkItem:
        """A prompt backwards: of the same length, and never asked again."""
        item = super().warm_up_item(index, salt)
        return replace(item, prompt_token_ids=item.prompt_token_ids[::-1], keeps_text=False)

    def question(self, index: int) -> tuple[Question, int]:
        """What request `index` asked, and which sample of it that was, from 0."""
        return self.questions[index % self.rows], index // self.rows

    def scores(
        self, answers: Sequence[EvalAnswer], *, draws: int, seed: int
    ) -> dict[str, MetricValue]:
        """What its judged answers come to."""
        return scores(answers, pass_k=self.spec.pass_k or self.spec.samples, draws=draws, seed=seed)

    def judge(self) -> JudgeSettings | None:
        """The other model that judges; None where rules alone do. ConfigError: not set up."""
        return judge_settings() if self.spec.judge == "llm" else None


def prepare_eval(
    spec: EvalSpec, facts: TargetFacts, encode: Callable[[str], list[int]]
) -> EvalWorkload:
    """Read the set and put its questions in the form that this target takes.

    WorkloadError, MissingPackageError or ConfigError say why that set, or that judge, cannot be.
    """
    _check_asked(spec, facts)
    questions = shuffled(load_set(spec.set)[: spec.max_questions], spec.shuffle_seed)
    chat = ChatForm(facts=facts, encode=encode)
    form = prompt_form(chat)
    if spec.thinking and not (form is PromptForm.CHAT and chat.takes_thinking):
        raise WorkloadError(
            "asks for thinking, and this target's prompts are in no chat form that has it",
            where=f"workload {spec.name}",
            remedy="Take `thinking` out; ask a server for it by http.body.",
        )
    prompter = Prompter(form=form, chat=chat, thinking=spec.thinking)
    end = encode(THINK_END) if form is PromptForm.CHAT else []
    workload = EvalWorkload(
        spec=spec,
        facts=facts,
        questions=questions,
        prompts=tuple(prompter.ids(question) for question in questions),
        form=form,
        think_end_id=end[0] if len(end) == 1 else None,
    )
    workload.judge()
    return workload


def _check_asked(spec: EvalSpec, facts: TargetFacts) -> None:
    where = f"workload {spec.name}"
    if facts.simulated:
        raise WorkloadError(
            "a simulated engine answers no question",
            where=where,
            remedy="Use target: in_process or http.",
        )
    if spec.samples > 1 and not spec.temperature:
        raise WorkloadError(
            f"asks for {spec.samples} samples at temperature 0, which are all alike",
            where=where,
            remedy="Set temperature above 0, or samples to 1.",
        )
