"""Text files as prompts: a whole file, or the rows of a JSONL."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from experiments.border import brief
from experiments.chat import ChatForm
from experiments.errors import WorkloadError
from experiments.traces import json_rows, read_text, token_count


class TextRow(NamedTuple):
    """One prompt in ids, and how many tokens its row asks for; None: as the workload says."""

    prompt: tuple[int, ...]
    output_tokens: int | None


def is_jsonl(path: Path) -> bool:
    """True where each line is a row."""
    return path.suffix == ".jsonl"


def text_rows(path: Path, chat: ChatForm) -> list[TextRow]:
    """The prompts of a JSONL file, or the one text of any other.

    WorkloadError names the line that has neither `prompt` nor `messages`, or both.
    """
    text = read_text(path)
    if not is_jsonl(path):
        return [TextRow(tuple(chat.encode(text)), None)]
    return [_row(place, row, chat) for place, row in json_rows(path, text.split("\n"))]


def _row(place: str, row: dict[str, object], chat: ChatForm) -> TextRow:
    prompt, messages = row.get("prompt"), row.get("messages")
    if (prompt is None) == (messages is None):
        what = "has no text field `prompt`" if prompt is None else "has `prompt` and `messages`"
        raise WorkloadError(what, where=place, remedy="Give one of `prompt` and `messages`.")
    if prompt is not None and not isinstance(prompt, str):
        what = f"has no text field `prompt`: it is {brief(prompt)}"
        raise WorkloadError(what, where=place)
    ids = chat.encode(prompt) if prompt is not None else chat.ids(messages, place)
    asked = row.get("output_tokens")
    count = None if asked is None else token_count(asked, "output_tokens", place)
    return TextRow(tuple(ids), count)
