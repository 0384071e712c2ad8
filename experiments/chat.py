"""Chat turns as a prompt, in the form that the released model reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from experiments.border import brief
from experiments.errors import WorkloadError
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

_OPENINGS = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT + THINK_END}


def rendered(messages: object, encode: Encode, place: str, *, thinking: bool = False) -> list[int]:
    """Ids of a chat (a list of `role` and `content`) that the assistant answers next.

    With `thinking` it is told how hard to think, and its turn begins with its thoughts.
    WorkloadError where it is no such list, or where the checkpoint's tokenizer knows no chat
    tokens: it has not learned the form, and a prompt in plain text is what it can be asked.
    """
    turns = _turns(messages, place)
    text = "".join(_turn(turn, place) for turn in turns)
    if not has_chat_tokens(encode):
        raise WorkloadError(
            "has `messages`, and this checkpoint's tokenizer has no chat tokens",
            where=place,
            remedy="Render the chat yourself and give it as `prompt`.",
        )
    if thinking:
        return encode(BOS + thinking_system(text) + ASSISTANT + THINK)
    return encode(BOS + text + ASSISTANT + THINK_END)


def has_chat_tokens(encode: Encode) -> bool:
    """Whether the tokenizer knows the turns of the released chat form."""
    return all(len(encode(token)) == 1 for token in (USER, ASSISTANT, EOS))


def _turns(messages: object, place: str) -> list[object]:
    if not isinstance(messages, list) or not messages:
        what = f"messages is {brief(cast('object', messages))}, not a list of turns"
        raise WorkloadError(what, where=place)
    return cast("list[object]", messages)


def _turn(turn: object, place: str) -> str:
    fields = cast("dict[str, object]", turn) if isinstance(turn, dict) else {}
    role, content = fields.get("role"), fields.get("content")
    if not isinstance(role, str) or role not in _OPENINGS or not isinstance(content, str):
        shown = brief(cast("object", turn))
        what = f"the turn {shown} has no role of {', '.join(_OPENINGS)} with a text as content"
        raise WorkloadError(what, where=place)
    return _OPENINGS[role] + content + (EOS if role == "assistant" else "")
