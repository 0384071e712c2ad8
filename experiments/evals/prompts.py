"""How a question is put: its words, its choices, and how its answer is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from experiments.chat import ChatForm
from experiments.errors import WorkloadError
from experiments.evals.questions import LETTERS, AnswerKind, Question

INSTRUCTIONS = {
    AnswerKind.INTEGER: "Put the final answer, a whole number from 0 to 999, into \\boxed{}.",
    AnswerKind.NUMBER: 'End with one line "The answer is N", where N is a number.',
    AnswerKind.CHOICE: 'End with one line "The answer is (X)", where X is the letter of a choice.',
    AnswerKind.EXACT: 'End with one line "Answer: " and the answer, as short as it can be.',
    AnswerKind.JSON: "Reply with JSON alone.",
    AnswerKind.CODE: "Complete this Python function. Reply with the whole function in one block "
    "of code.",
}
"""Where a question says nothing else."""


class PromptForm(StrEnum):
    """Who lays the question into the form of a chat."""

    SERVER = "server chat"  # the server, with its own template
    CHAT = "chat"  # we, in the form of the checkpoint
    PLAIN = "plain"  # nobody: it has none


@dataclass(frozen=True, kw_only=True)
class Prompter:
    """Puts questions in one form."""

    form: PromptForm
    chat: ChatForm
    thinking: bool = False

    def ids(self, question: Question) -> tuple[int, ...]:
        """The prompt. WorkloadError where the form cannot hold the question's turns."""
        place = f"question {question.id}"
        turns = [*question.messages[:-1], ("user", asked(question))]
        if self.form is PromptForm.CHAT:
            messages = [{"role": role, "content": content} for role, content in turns]
            return tuple(self.chat.ids(messages, place, thinking=self.thinking))
        if len(turns) > 1:
            raise WorkloadError(
                "has several messages, and this target is sent one text",
                where=place,
                remedy="Put it into one `question`.",
            )
        text = turns[0][1]
        return tuple(self.chat.encode(text if self.form is PromptForm.SERVER else f"{text}\n"))


def prompt_form(chat: ChatForm) -> PromptForm:
    """The form that the target and its checkpoint leave."""
    if chat.facts.renders_chat:
        return PromptForm.SERVER
    return PromptForm.CHAT if chat.is_known else PromptForm.PLAIN


def asked(question: Question) -> str:
    """The words of the last turn: the question, its choices by letter, the instruction."""
    told = question.instruction
    instruction = INSTRUCTIONS[question.kind] if told is None else told
    choices = "\n".join(
        f"({letter}) {choice}" for letter, choice in zip(LETTERS, question.choices, strict=False)
    )
    return "\n\n".join(part for part in (question.text, choices, instruction) if part)
