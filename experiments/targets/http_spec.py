"""A server as a plan names it, and what the plan knows of it."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, field_validator

from experiments.border import Border, brief
from experiments.records import AxisValue

NOT_OURS = "this target's engine is not started by us"
DECLARE = "Start the server with it, and say so under http.declared."
MOST_IDS = 10_000_000
"""Entries of a vocabulary: several times the largest that there are."""
OWN_HEADERS = frozenset({"accept-encoding", "connection", "content-length", "transfer-encoding"})
OWN_FIELDS = frozenset({"best_of", "input", "messages", "model", "n", "prompt", "stream"})
"""What the client settles for each request, or what would make several answers of one."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
SECRET_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "cookie"})


ServerPath = Annotated[str, Field(pattern=r"^/[!-~]*$")]
"""A path on the server, from its first slash on."""


class Api(StrEnum):
    """How the server is spoken to."""

    CHAT_COMPLETIONS = "chat_completions"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    LLAMA_CPP = "llama_cpp"  # the completions of llama-server itself, which name every token

    @property
    def takes_ids(self) -> bool:
        """The prompt may be token ids; the other faces take text alone."""
        return self in (Api.COMPLETIONS, Api.LLAMA_CPP)


def as_api(value: object) -> object:
    """The API of that name; anything else as it is, for pydantic to refuse."""
    return Api(value) if value in list(Api) else value


def _leaves_the_ask_alone(body: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for name in sorted(OWN_FIELDS & body.keys()):
        raise ValueError(f"{name} is settled by the workload, and by the server's own name")
    return body


RequestBody = Annotated[dict[str, JsonValue], AfterValidator(_leaves_the_ask_alone)]
"""Fields that are laid over every request."""


class HttpSpec(Border):
    """A running server and its client. What is None is not known, and never guessed.

    The key is read from the environment variable `key_env` when the target opens: its name is
    stored, its value nowhere.
    """

    url: str = Field(pattern=r"^https?://[^\s/]+(/\S*)?$")  # up to, and without, /v1
    model: str = Field(min_length=1)
    api: Annotated[Api, BeforeValidator(as_api)] = Api.CHAT_COMPLETIONS
    prompt: Literal["ids", "text"] | None = None  # None: ids where the API takes them
    tokenizer: str | None = None  # tokenizer.json, or the directory that holds one
    vocab_size: int | None = Field(default=None, ge=3, le=MOST_IDS)  # of random ids
    stream: bool = True
    usage: Literal["each_chunk", "last", "none"] = "each_chunk"
    """What the server is asked to say of its counts; some refuse to say it with each chunk."""
    body: RequestBody = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    timeout_s: float = Field(default=600.0, gt=0)  # of a whole request
    resend_unanswered: bool = True
    """Once, on a fresh connection, what a kept one lost before one byte of an answer came."""
    ready_path: ServerPath = "/v1/models"
    reset_path: ServerPath | None = None  # posted to before every trial, to empty caches
    metrics_path: ServerPath | None = None  # counters in the Prometheus text format
    max_positions: int | None = Field(default=None, ge=2)
    devices: int | None = Field(default=None, ge=1)
    accelerator: str | None = None
    declared: dict[str, AxisValue] = Field(default_factory=dict)
    """What the server was started with, as the user says: engine, version, tp, ..."""

    @field_validator("url")
    @classmethod
    def _without_version(cls, url: str) -> str:
        _check_address(url)
        return url.rstrip("/").removesuffix("/v1").rstrip("/")

    @field_validator("headers")
    @classmethod
    def _holds_no_secret(cls, headers: dict[str, str]) -> dict[str, str]:
        for name in headers:
            if name.lower() in SECRET_HEADERS:
                raise ValueError(f"{name} would be stored; put the key in a variable: key_env")
            if name.lower() in OWN_HEADERS:
                raise ValueError(f"{name} is set by the client for each request")
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(headers[name]):
                raise ValueError(f"{brief(name)} or its value holds what no header may hold")
        return headers

    @property
    def sends_ids(self) -> bool:
        """Prompts go as token ids."""
        return self.api.takes_ids if self.prompt is None else self.prompt == "ids"

    def identity(self) -> dict[str, object]:
        """What makes two measurements the same ask; the tokenizer counts by its content."""
        return self.model_dump(mode="json", exclude={"tokenizer", "key_env", "ready_path"})

    def located(self, base_dir: Path | None) -> HttpSpec:
        """The same with an absolute path to the tokenizer."""
        if self.tokenizer is None:
            return self
        path = ((base_dir or Path.cwd()) / Path(self.tokenizer).expanduser()).resolve()
        return self.model_copy(update={"tokenizer": str(path)})


def _check_address(url: str) -> None:
    """ValueError for an address that no request can be sent to, or that holds more than one."""
    try:
        parts = urlsplit(url)
        _, host = parts.port, (parts.hostname or "").encode("idna")
    except (ValueError, UnicodeError) as error:
        raise ValueError(f"{brief(url)} is no address: {error}") from error
    if not host:
        raise ValueError(f"{brief(url)} names no host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a user or password would be stored; put the key in a variable: key_env")
    if parts.query or parts.fragment:
        raise ValueError(f"{brief(url)} goes on after the path; leave out what follows it")
