"""What a model server answers, in the forms of the APIs: the other side of `http_apis`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.records import ChunkKind
from experiments.targets.http_spec import Api


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens so far."""

    prompt: int
    output: int


def event(document: object, name: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name is not None else ""
    return f"{head}data: {json.dumps(document, ensure_ascii=False)}\n\n".encode()


def opening(api: Api, prompt_tokens: int) -> bytes:
    """What comes before the first token: a role, an empty message."""
    if api is Api.CHAT_COMPLETIONS:
        return _choices({"delta": {"role": "assistant", "content": ""}}, None)
    if api is Api.RESPONSES:
        return _response("created", "in_progress", None)
    if api is Api.MESSAGES:
        usage = {"input_tokens": prompt_tokens, "output_tokens": 1}
        return _typed({"type": "message_start", "message": {"role": "assistant", "usage": usage}})
    return b""  # completions, and those of llama.cpp, begin with the first token


def chunk(
    api: Api,
    text: str,
    kind: ChunkKind = ChunkKind.CONTENT,
    *,
    usage: Usage | None = None,
    token_ids: Sequence[int] | None = None,
) -> bytes:
    """One piece of the answer; the messages and responses APIs have no room for the counts."""
    if api is Api.RESPONSES:
        return _typed({"type": _RESPONSE_DELTA[kind], "delta": text})
    if api is Api.MESSAGES:
        name, field = _MESSAGE_DELTA[kind]
        return _typed({"type": "content_block_delta", "delta": {"type": name, field: text}})
    if api is Api.LLAMA_CPP:
        return event(
            {"content": text, "stop": False, "tokens": list(token_ids or ()), **_so_far(usage)}
        )
    ids = {} if token_ids is None else {"token_ids": list(token_ids)}
    part = {"text": text} if api is Api.COMPLETIONS else {"delta": _chat_delta(text, kind)}
    return _choices({**part, **ids}, usage)


def closing(api: Api, usage: Usage, *, say_usage: bool = True, finish: str = "length") -> bytes:
    """What follows the last token: the reason, the counts, the end."""
    if api is Api.RESPONSES:
        status = "incomplete" if finish == "length" else "completed"
        return _response(status, status, usage if say_usage else None)
    if api is Api.MESSAGES:
        reason = {"length": "max_tokens", "stop": "end_turn"}.get(finish, finish)
        told = {"usage": {"output_tokens": usage.output}} if say_usage else {}
        ended = {"type": "message_delta", "delta": {"stop_reason": reason}, **told}
        return _typed(ended) + _typed({"type": "message_stop"})
    if api is Api.LLAMA_CPP:
        return event(_llama_cpp_end("", usage if say_usage else None, finish))
    empty: dict[str, object] = {"delta": {}} if api is Api.CHAT_COMPLETIONS else {"text": ""}
    last = _choices({**empty, "finish_reason": finish}, None)
    counts = event({"choices": [], "usage": _usage(usage)}) if say_usage else b""
    return last + counts + b"data: [DONE]\n\n"


def whole(api: Api, text: str, usage: Usage) -> bytes:
    """An answer that is not streamed."""
    part = {"type": "output_text" if api is Api.RESPONSES else "text", "text": text}
    in_out = {"input_tokens": usage.prompt, "output_tokens": usage.output}
    forms: dict[Api, object] = {
        Api.CHAT_COMPLETIONS: {
            "choices": [{"message": {"content": text}, "finish_reason": "length"}],
            "usage": _usage(usage),
        },
        Api.COMPLETIONS: {
            "choices": [{"text": text, "finish_reason": "length"}],
            "usage": _usage(usage),
        },
        Api.RESPONSES: {
            "object": "response",
            "status": "incomplete",
            "output": [{"type": "message", "content": [part]}],
            "usage": in_out,
        },
        Api.MESSAGES: {
            "type": "message",
            "content": [part],
            "stop_reason": "max_tokens",
            "usage": in_out,
        },
        Api.LLAMA_CPP: _llama_cpp_end(text, usage, "length"),
    }
    return json.dumps(forms[api]).encode()


def failure(api: Api, message: str) -> bytes:
    """An error inside a stream that began well."""
    if api is Api.MESSAGES:
        return event({"type": "error", "error": {"message": message}}, "error")
    if api is Api.RESPONSES:
        return _typed({"type": "response.failed", "response": _failed(message)})
    return event({"error": {"message": message, "type": "server_error"}})


def _failed(message: str) -> dict[str, object]:
    return {"object": "response", "status": "failed", "error": {"message": message}}


def _typed(document: Mapping[str, object]) -> bytes:
    return event(document, str(document["type"]))


def _response(kind: str, status: str, usage: Usage | None) -> bytes:
    told = usage and {"input_tokens": usage.prompt, "output_tokens": usage.output}
    response = {"object": "response", "status": status, "usage": told}
    return _typed({"type": f"response.{kind}", "response": response})


def _usage(usage: Usage) -> dict[str, int]:
    return {"prompt_tokens": usage.prompt, "completion_tokens": usage.output}


def _so_far(usage: Usage | None) -> dict[str, int]:
    if usage is None:
        return {}
    return {"tokens_evaluated": usage.prompt, "tokens_predicted": usage.output}


def _llama_cpp_end(text: str, usage: Usage | None, finish: str) -> dict[str, object]:
    stop_type = {"length": "limit", "stop": "eos"}.get(finish, finish)
    return {"content": text, "tokens": [], "stop": True, "stop_type": stop_type, **_so_far(usage)}


def _choices(choice: Mapping[str, object], usage: Usage | None) -> bytes:
    told = {} if usage is None else {"usage": _usage(usage)}
    return event({"choices": [{"index": 0, "finish_reason": None, **choice}], **told})


def _chat_delta(text: str, kind: ChunkKind) -> dict[str, object]:
    if kind is ChunkKind.TOOL:
        return {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
    return {"reasoning_content" if kind is ChunkKind.REASONING else "content": text}


_RESPONSE_DELTA = {
    ChunkKind.CONTENT: "response.output_text.delta",
    ChunkKind.REASONING: "response.reasoning_text.delta",
    ChunkKind.TOOL: "response.function_call_arguments.delta",
}
_MESSAGE_DELTA = {
    ChunkKind.CONTENT: ("text_delta", "text"),
    ChunkKind.REASONING: ("thinking_delta", "thinking"),
    ChunkKind.TOOL: ("input_json_delta", "partial_json"),
}
