"""Chat turns as a prompt, in the form that the released model reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from experiments.border import brief
from experiments.errors import WorkloadError
from experiments.training.chat_format import ASSISTANT, BOS, EOS, SYSTEM, THINK_END, USER

_OPENINGS = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT + THINK_END}


def rendered(messages: object, encode: Callable[[str], list[int]], place: str) -> list[int]:
    """Ids of a chat (a list of `role` and `content`) that the assistant answers next.

    WorkloadError where it is no such list, or where the checkpoint's tokenizer knows no chat
    tokens: it has not learned the form, and a prompt in plain text is what it can be asked.
    """
    text = BOS + "".join(_turn(turn, place) for turn in _turns(messages, place))
    if any(len(encode(token)) != 1 for token in (USER, ASSISTANT, EOS)):
        raise WorkloadError(
            "has `messages`, and this checkpoint's tokenizer has no chat tokens",
            where=place,
            remedy="Render the chat yourself and give it as `prompt`.",
        )
    return encode(text + ASSISTANT + THINK_END)


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
