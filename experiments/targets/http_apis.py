"""The faces of a model server: how each is asked, and what its answers say.

Chat completions and completions, responses, messages, and the completions of llama.cpp's own
server, as their publishers document them. A whole answer (not streamed) is read by the same
functions as one event that holds everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.request import FinishReason, SamplingParams
from experiments.records import ChunkKind
from experiments.targets.http_json import Json, count, dig, is_mapping, items, mapping, text
from experiments.targets.http_spec import Api, HttpSpec
from experiments.token_counts import Piece

MESSAGES_VERSION = "2023-06-01"
DONE = "[DONE]"
_CUT = ("length", "max_tokens", "max_output_tokens", "model_context_window_exceeded")


@dataclass(frozen=True, kw_only=True)
class Said:
    """What one event says. None: nothing about that."""

    piece: Piece | None = None
    finish: FinishReason | None = None
    error: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class Face:
    """One API: its path, the fields of a request, and how to read an event."""

    path: str
    prompt: Callable[[str | list[int]], dict[str, object]]
    most_tokens: str  # the field that bounds the output
    read: Callable[[Json], Said]


def request_body(
    spec: HttpSpec, prompt: str | list[int], sampling: SamplingParams
) -> dict[str, object]:
    """The JSON of one request; `spec.body` is laid over it."""
    face = FACES[spec.api]
    body: dict[str, object] = {
        "model": spec.model,
        **face.prompt(prompt),
        face.most_tokens: sampling.max_tokens,
        "temperature": sampling.temperature,
        "stream": spec.stream,
    }
    if sampling.ignore_eos:
        body["ignore_eos"] = True
    if sampling.seq_seed is not None and spec.api in (Api.CHAT_COMPLETIONS, Api.COMPLETIONS):
        body["seed"] = sampling.seq_seed
        body |= _usage_wanted(spec)
    return {**body, **spec.body}


def read_event(api: Api, name: str, data: Json) -> Said:
    """What an event, or a whole answer, says. An error in any of the known forms is one."""
    error = data.get("error")
    if error or name == "error" or data.get("type") == "error":
        said = text(dig(error, "message")) or text(error) or text(data.get("message"))
        return Said(error=said or "the server sent an error event without a message")
    return FACES[api].read(data)


def _usage_wanted(spec: HttpSpec) -> dict[str, object]:
    if not spec.stream or spec.usage == "none":
        return {}
    each = {"continuous_usage_stats": True} if spec.usage == "each_chunk" else {}
    return {"stream_options": {"include_usage": True, **each}}


def _read_choices(data: Json) -> Said:
    """Chat completions and completions."""
    found = items(data.get("choices"))
    choice = mapping(found[0] if found else None)
    delta = mapping(choice.get("delta") or choice.get("message"))
    content = text(choice.get("text")) or text(delta.get("content"))
    reasoning = text(delta.get("reasoning_content")) or text(delta.get("reasoning"))
    tools = "".join(map(_tool_text, items(delta.get("tool_calls"))))
    usage = data.get("usage")
    output = count(dig(usage, "completion_tokens"))
    piece = _piece(content, tools, reasoning)
    return Said(
        piece=replace(
            piece,
            token_ids=_token_ids(choice),
            logprobs=_logprobs(choice.get("logprobs")),
            usage=output,
            arrival=bool(found),
        ),
        finish=_finish(choice.get("finish_reason")),
        prompt_tokens=count(dig(usage, "prompt_tokens")),
        output_tokens=output,
        cached_tokens=count(dig(usage, "prompt_tokens_details", "cached_tokens")),
    )


def _read_responses(data: Json) -> Said:
    kind = text(data.get("type"))
    if kind in _RESPONSE_DELTAS:
        return Said(
            piece=Piece(
                text=text(data.get("delta")),
                kind=_RESPONSE_DELTAS[kind],
                logprobs=len(items(data.get("logprobs"))) or None,
            )
        )
    whole = data if data.get("object") == "response" else mapping(data.get("response"))
    status = text(whole.get("status"))
    if status == "failed":
        said = text(dig(whole, "error", "message"))
        return Said(error=said or "the response failed without a message")
    if status not in ("completed", "incomplete"):
        return Said()
    output = count(dig(whole, "usage", "output_tokens"))
    streamed = whole is not data
    return Said(
        piece=None if streamed else replace(_response_piece(whole), usage=output),
        finish=FinishReason.LENGTH if status == "incomplete" else FinishReason.STOP,
        prompt_tokens=count(dig(whole, "usage", "input_tokens")),
        output_tokens=output,
        cached_tokens=count(dig(whole, "usage", "input_tokens_details", "cached_tokens")),
    )


def _read_messages(data: Json) -> Said:
    kind = text(data.get("type"))
    if kind == "content_block_delta":
        delta = mapping(data.get("delta"))
        return Said(
            piece=_piece(
                text(delta.get("text")),
                text(delta.get("partial_json")),
                text(delta.get("thinking")),
            )
        )
    told = mapping(data.get("message")) if kind == "message_start" else data
    usage = told.get("usage")
    output = count(dig(usage, "output_tokens"))
    blocks = _blocks(told.get("content"), "thinking")
    return Said(
        piece=replace(blocks, usage=output) if kind == "message" else None,
        finish=_finish(dig(data, "delta", "stop_reason") or data.get("stop_reason")),
        prompt_tokens=count(dig(usage, "input_tokens")),
        output_tokens=None if kind == "message_start" else output,
        cached_tokens=count(dig(usage, "cache_read_input_tokens")),
    )


def _read_llama_cpp(data: Json) -> Said:
    """Every event holds the new text, its token ids and the counts so far."""
    output = count(data.get("tokens_predicted"))
    ended = data.get("stop") is True
    piece = Piece(
        text=text(data.get("content")),
        token_ids=_token_ids(data, "tokens"),
        usage=output,
        arrival=not ended or bool(data.get("content")),
    )
    cut = data.get("stop_type") == "limit"
    return Said(
        piece=piece,
        finish=(FinishReason.LENGTH if cut else FinishReason.STOP) if ended else None,
        prompt_tokens=count(data.get("tokens_evaluated")),
        output_tokens=output,
    )


def _piece(content: str, tools: str, reasoning: str) -> Piece:
    """The kind of the nearest to an answer that is in it."""
    kind = ChunkKind.REASONING if reasoning else ChunkKind.CONTENT
    kind = ChunkKind.CONTENT if content else ChunkKind.TOOL if tools else kind
    return Piece(text=reasoning + content + tools, kind=kind)


def _blocks(content: object, reasoning: str) -> Piece:
    """A list of typed blocks, as whole answers hold them."""
    blocks = [mapping(block) for block in items(content)]
    return _piece(
        "".join(text(block.get("text")) for block in blocks),
        "",
        "".join(text(block.get(reasoning)) for block in blocks),
    )


def _response_piece(whole: Json) -> Piece:
    parts = [part for item in items(whole.get("output")) for part in items(dig(item, "content"))]
    return _blocks(parts, "reasoning")


def _tool_text(call: object) -> str:
    return text(dig(call, "function", "name")) + text(dig(call, "function", "arguments"))


def _token_ids(choice: Json, name: str = "token_ids") -> tuple[int, ...] | None:
    ids = [token for found in items(choice.get(name)) if (token := count(found)) is not None]
    return tuple(ids) or None


def _logprobs(value: object) -> int | None:
    told = dig(value, "content") or dig(value, "tokens") if is_mapping(value) else None
    return len(items(told)) or None


def _finish(reason: object) -> FinishReason | None:
    if not isinstance(reason, str) or not reason:
        return None
    return FinishReason.LENGTH if reason in _CUT else FinishReason.STOP


_RESPONSE_DELTAS = {
    "response.output_text.delta": ChunkKind.CONTENT,
    "response.reasoning_text.delta": ChunkKind.REASONING,
    "response.reasoning_summary_text.delta": ChunkKind.REASONING,
    "response.function_call_arguments.delta": ChunkKind.TOOL,
}


def _as_messages(prompt: str | list[int]) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": prompt}]}


FACES = {
    Api.CHAT_COMPLETIONS: Face(
        path="/v1/chat/completions",
        prompt=_as_messages,
        most_tokens="max_tokens",
        read=_read_choices,
    ),
    Api.COMPLETIONS: Face(
        path="/v1/completions",
        prompt=lambda prompt: {"prompt": prompt},
        most_tokens="max_tokens",
        read=_read_choices,
    ),
    Api.RESPONSES: Face(
        path="/v1/responses",
        prompt=lambda prompt: {"input": prompt},
        most_tokens="max_output_tokens",
        read=_read_responses,
    ),
    Api.MESSAGES: Face(
        path="/v1/messages",
        prompt=_as_messages,
        most_tokens="max_tokens",
        read=_read_messages,
    ),
    Api.LLAMA_CPP: Face(
        path="/completion",
        prompt=lambda prompt: {"prompt": prompt, "return_tokens": True},
        most_tokens="n_predict",
        read=_read_llama_cpp,
    ),
}
