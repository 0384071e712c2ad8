"""The V4.1 chat form: its special tokens, and chats as deepseek-recipe 0.2.0 (MIT) renders them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
PAD = "<｜▁pad▁｜>"
SYSTEM = "<｜System｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
THINK = "<think>"
THINK_END = "</think>"
DSML = "｜DSML｜"
IMAGE = "<｜image｜>"
DSPARK_NOISE = "<｜dspark▁noise｜>"

FIRST_TOKENS = (BOS, EOS, PAD)
"""Ids 0, 1 and 2, in the order of the release."""

LAST_TOKENS = (
    SYSTEM,
    USER,
    ASSISTANT,
    THINK,
    THINK_END,
    DSML,
    "<｜latest_reminder｜>",
    "<｜ref｜>",
    "<｜/ref｜>",
    "<｜box｜>",
    "<｜/box｜>",
    "<｜point｜>",
    "<｜/point｜>",
    "<｜polygon｜>",
    "<｜/polygon｜>",
    IMAGE,
    DSPARK_NOISE,
)
"""The last ids: every other token of the V4.1 rendering, then the noise token of DSpark."""

_EFFORT = (
    "Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
)
_TOOLS_HEAD = (
    "\n\n## Tools\n\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools by "
    'writing a "<｜DSML｜ calls>" block like the following:\n\n'
    "<｜DSML｜ calls>\n"
    '<｜DSML｜ invoke name="$TOOL_NAME">\n'
    '<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE'
    "</｜DSML｜ parameter>\n...\n</｜DSML｜ invoke>\n"
    '<｜DSML｜ invoke name="$TOOL_NAME2">\n...\n</｜DSML｜ invoke>\n</｜DSML｜ calls>\n\n'
    'String parameters should be specified as is and set `string="true"`. For all other types '
    "(numbers, booleans, arrays, objects), pass the value in JSON format and set "
    '`string="false"`.\n\n'
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning "
    "inside <think>...</think> BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n"
)
_TOOLS_TAIL = (
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n"
)
_RESPONSE_FORMAT = (
    "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
)


@dataclass(frozen=True)
class Call:
    """One tool call of the assistant, and what the tool answered."""

    tool: str
    arguments: Mapping[str, object]
    result: str


@dataclass(frozen=True)
class Exchange:
    """A question and its answer, a call between them. `thought` shows in thinking chats only."""

    question: str
    answer: str
    thought: str = ""
    call: Call | None = None


@dataclass(frozen=True)
class Chat:
    """A whole conversation, before it is rendered."""

    exchanges: Sequence[Exchange]
    system: str = ""
    thinking: bool = False
    tools: Sequence[Mapping[str, object]] = ()
    response_schema: Mapping[str, object] | None = None


def thinking_system(text: str) -> str:
    """The turns of a chat, with the word on effort that begins a thinking one."""
    return SYSTEM + _EFFORT + text.removeprefix(SYSTEM)


def render(chat: Chat) -> str:
    """Return the text of the conversation without the leading BOS and the closing EOS.

    In a thinking chat without tools the thoughts of earlier turns are left out, as the renderer
    does.
    """
    system = (_EFFORT if chat.thinking else "") + chat.system
    if chat.tools:
        schemas = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in chat.tools)
        system += _TOOLS_HEAD + schemas + _TOOLS_TAIL
    if chat.response_schema is not None:
        system += _RESPONSE_FORMAT + json.dumps(chat.response_schema, ensure_ascii=False)
    text = SYSTEM + system if system else ""
    last = len(chat.exchanges) - 1
    for number, exchange in enumerate(chat.exchanges):
        shown = chat.thinking and (number == last or bool(chat.tools))
        text += _render_exchange(exchange, shown) + (EOS if number < last else "")
    return text


def _render_exchange(exchange: Exchange, thought_shown: bool) -> str:
    opening = ASSISTANT + (THINK + exchange.thought if thought_shown else "") + THINK_END
    text = USER + exchange.question + opening
    if exchange.call is not None:
        text += "\n\n" + render_call(exchange.call) + EOS
        text += f"{USER}<tool_result>{exchange.call.result}</tool_result>"
        text += ASSISTANT + (THINK if thought_shown else "") + THINK_END
    return text + exchange.answer


def render_call(call: Call) -> str:
    """Return the DSML block of one call."""
    lines = [f"<{DSML} calls>", f'<{DSML} invoke name="{call.tool}">']
    for name, value in call.arguments.items():
        text = isinstance(value, str)
        spelled = value if text else json.dumps(value, ensure_ascii=False)
        flag = "true" if text else "false"
        lines.append(
            f'<{DSML} parameter name="{name}" string="{flag}">{spelled}</{DSML} parameter>'
        )
    return "\n".join([*lines, f"</{DSML} invoke>", f"</{DSML} calls>"])
