"""The chat template that a checkpoint in Hugging Face form brings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

from experiments.border import brief
from experiments.errors import WorkloadError

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

FILE = "chat_template.jinja"
CONFIG_FILE = "tokenizer_config.json"

_THINKS = "enable_thinking"  # as Qwen3 names the choice


@dataclass(frozen=True, kw_only=True)
class ChatTemplate:
    """Jinja of a checkpoint, rendered in a sandbox: it reads no file and changes nothing."""

    source: str
    special_tokens: Mapping[str, str]  # `bos_token` and its like, which templates name
    where: str

    @property
    def takes_thinking(self) -> bool:
        """Whether it can be asked for thoughts, and for none."""
        return _THINKS in self.source

    def text(self, turns: Sequence[Mapping[str, str]], *, thinking: bool) -> str:
        """The chat up to where the assistant answers. WorkloadError where the template fails.

        The clock is not given, so that a prompt is the same on another day.
        """
        try:
            return (
                _environment()
                .from_string(self.source)
                .render(
                    {
                        **self.special_tokens,
                        "messages": turns,
                        "tools": None,
                        "documents": None,
                        "add_generation_prompt": True,
                        _THINKS: thinking,
                    }
                )
            )
        except Exception as error:  # whatever the code inside a template raises
            raise WorkloadError(
                f"the checkpoint's chat template refuses the chat: {error}",
                where=self.where,
                remedy="Change its turns, or render the chat yourself and give it as `prompt`.",
            ) from error


def read_chat_template(folder: Path) -> ChatTemplate | None:
    """Of `chat_template.jinja`, else of `tokenizer_config.json`; None: it has none.

    WorkloadError where one of them cannot be read.
    """
    config_file, file = folder / CONFIG_FILE, folder / FILE
    config = _object(config_file) if config_file.is_file() else {}
    source = _read(file) if file.is_file() else _default(config.get("chat_template"), config_file)
    if source is None:
        return None
    return ChatTemplate(
        source=source,
        special_tokens=_special_tokens(config),
        where=str(file if file.is_file() else config_file),
    )


def _environment() -> ImmutableSandboxedEnvironment:
    """As Hugging Face renders chat templates: what they may rely on."""
    # Here, since a plan without a template is measured where jinja2 is not installed.
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _json
    environment.globals["raise_exception"] = _refuse
    return environment


def _json(value: object, indent: int | None = None) -> str:
    """Unlike Jinja's own, which is for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _default(stored: object, where: Path) -> str | None:
    """The template, or of several by name the one that is called default."""
    if isinstance(stored, list):
        named = [one for one in cast("list[object]", stored) if isinstance(one, dict)]
        each = cast("list[dict[str, object]]", named)
        stored = next((one.get("template") for one in each if one.get("name") == "default"), None)
    if stored is None or isinstance(stored, str):
        return stored
    raise WorkloadError(f"chat_template is {brief(stored)}, not a text", where=str(where))


def _special_tokens(config: Mapping[str, object]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in config.items():
        inner = (
            cast("dict[str, object]", value).get("content") if isinstance(value, dict) else value
        )
        if name.endswith("_token") and isinstance(inner, str):
            found[name] = inner
    return found


def _object(path: Path) -> Mapping[str, object]:
    try:
        document: object = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"cannot be read: {error}", where=str(path)) from error
    if not isinstance(document, dict):
        raise WorkloadError("is no JSON object", where=str(path))
    return cast("dict[str, object]", document)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise WorkloadError(f"cannot be read: {error}", where=str(path)) from error
