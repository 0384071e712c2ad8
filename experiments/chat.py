"""Chat turns as a prompt, in the form that the checkpoint learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from engine.errors import CheckpointError
from experiments.border import brief
from experiments.chat_template import ChatTemplate, read_chat_template
from experiments.errors import WorkloadError
from experiments.targets.base import TargetFacts
from experiments.targets.checkpoint import model_directory
from experiments.training.chat_format import (
    ASSISTANT,
    BOS,
    EOS,
    SYSTEM,
    THINK,
    THINK_END,
    USER,
    thinking_system,
)

Encode = Callable[[str], list[int]]
Turn = Mapping[str, str]

_OPENINGS = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT + THINK_END}


@dataclass(frozen=True, kw_only=True)
class ChatForm:
    """How one checkpoint is asked: by its own template, else by the tokens of the V4.1 release."""

    facts: TargetFacts
    encode: Encode

    @cached_property
    def template(self) -> ChatTemplate | None:
        """None: the checkpoint brings none, or lies on a server's disk.

        WorkloadError where it is there and cannot be read.
        """
        if self.facts.fingerprint is not None:
            with suppress(CheckpointError):  # no folder, as of a simulated engine
                return read_chat_template(model_directory(self.facts.model))
        return None

    @property
    def is_known(self) -> bool:
        """Whether the checkpoint has a form at all."""
        return self.template is not None or self._has_released_tokens

    @property
    def takes_thinking(self) -> bool:
        """Whether an answer can be made to begin with thoughts."""
        return self._has_released_tokens if self.template is None else self.template.takes_thinking

    def ids(self, messages: object, place: str, *, thinking: bool = False) -> list[int]:
        """Ids of a chat (a list of `role` and `content`) that the assistant answers next.

        With `thinking` it is told to think, and how hard where the form has words for it.
        WorkloadError where it is no such list, or where the checkpoint has no chat form: a prompt
        in plain text is what it can be asked.
        """
        turns = _turns(messages, place)
        if self.template is not None:
            return self.encode(self.template.text(turns, thinking=thinking))
        if not self._has_released_tokens:
            raise WorkloadError(
                "has `messages`, and this checkpoint has no chat template and no chat tokens",
                where=place,
                remedy="Render the chat yourself and give it as `prompt`.",
            )
        return self.encode(_released(turns, thinking=thinking))

    @cached_property
    def _has_released_tokens(self) -> bool:
        with suppress(WorkloadError):  # a server that is sent text, which special tokens are not
            return all(len(self.encode(token)) == 1 for token in (USER, ASSISTANT, EOS))
        return False


def _released(turns: Sequence[Turn], *, thinking: bool) -> str:
    """In the form of V4.1."""
    ends = {"assistant": EOS}
    text = "".join(
        _OPENINGS[turn["role"]] + turn["content"] + ends.get(turn["role"], "") for turn in turns
    )
    if thinking:
        return BOS + thinking_system(text) + ASSISTANT + THINK
    return BOS + text + ASSISTANT + THINK_END


def _turns(messages: object, place: str) -> list[Turn]:
    if not isinstance(messages, list) or not messages:
        what = f"messages is {brief(cast('object', messages))}, not a list of turns"
        raise WorkloadError(what, where=place)
    return [_turn(turn, place) for turn in cast("list[object]", messages)]


def _turn(turn: object, place: str) -> Turn:
    fields = cast("dict[str, object]", turn) if isinstance(turn, dict) else {}
    role, content = fields.get("role"), fields.get("content")
    if not isinstance(role, str) or role not in _OPENINGS or not isinstance(content, str):
        shown = brief(cast("object", turn))
        what = f"the turn {shown} has no role of {', '.join(_OPENINGS)} with a text as content"
        raise WorkloadError(what, where=place)
    return {"role": role, "content": content}
