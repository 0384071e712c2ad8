"""A server that a plan has started: which engine, with which flags, and how it is spoken to."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from experiments.border import Border, brief
from experiments.records import AxisValue
from experiments.targets.http_spec import Api, HttpSpec, RequestBody, ServerPath, as_api
from experiments.targets.launchers import COMMAND, HOST, LAUNCHERS, Launcher
from kernels.near_names import nearest

PLACES = ("program", "model", "weights", "name", "host", "port")
_FLAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(r"\{([^{}]*)\}")


class ServerSpec(Border):
    """What to start, and what to change of how its launcher does it. None: as the launcher says.

    `flags` become `--name value`; true is `--name`, false `--no-name`, null leaves a flag of
    the launcher out. `command` is the whole argument list of an engine that has no launcher.
    """

    launcher: str
    program: str | None = None  # a path, or a name on the PATH
    command: list[str] | None = None
    weights: str | None = None
    flags: dict[str, AxisValue] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)
    port: int | None = Field(default=None, ge=1, le=65535)  # None: one that is free
    start_s: float = Field(default=900.0, gt=0)  # until it is ready
    stop_s: float = Field(default=20.0, gt=0)  # after SIGTERM, before SIGKILL
    ready_path: ServerPath | None = None
    metrics_path: ServerPath | None = None
    reset_path: ServerPath | None = None
    api: Annotated[Api | None, BeforeValidator(as_api)] = None
    prompt: Literal["ids", "text"] | None = None
    usage: Literal["each_chunk", "last", "none"] | None = None
    body: RequestBody = Field(default_factory=dict)
    timeout_s: float = Field(default=600.0, gt=0)
    resend_unanswered: bool = True
    max_positions: int | None = Field(default=None, ge=2)
    devices: int = Field(default=1, ge=1)
    accelerator: str = "cpu"

    @field_validator("launcher")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name != COMMAND and name not in LAUNCHERS:
            raise ValueError(
                f"{brief(name)} is no launcher; {nearest(name, [*LAUNCHERS, COMMAND])}"
            )
        return name

    @field_validator("flags")
    @classmethod
    def _names_flags(cls, flags: dict[str, AxisValue]) -> dict[str, AxisValue]:
        for name in flags:
            if not _FLAG.fullmatch(name):
                raise ValueError(f"{brief(name)} is no flag; write it without its dashes")
        return flags

    @field_validator("environment")
    @classmethod
    def _names_variables(cls, environment: dict[str, str]) -> dict[str, str]:
        for name, value in environment.items():
            if not _VARIABLE.fullmatch(name) or "\0" in value:
                raise ValueError(f"{brief(name)} or its value is no environment variable")
        return environment

    @model_validator(mode="after")
    def _command_has_its_launcher(self) -> Self:
        if (self.launcher == COMMAND) != (self.command is not None):
            raise ValueError(f"launcher: {COMMAND} and the field command go together")
        for part in self.command or ():
            for place in _PLACE.findall(part):
                if place not in PLACES:
                    raise ValueError(f"{{{place}}} in command is none of {', '.join(PLACES)}")
        if self.command is not None and not any("{port}" in part for part in self.command):
            raise ValueError("command must say where {port} goes")
        return self

    @property
    def record(self) -> Launcher:
        """The launcher, or one made of `command`."""
        if self.command is None:
            return LAUNCHERS[self.launcher]
        return Launcher(
            name=COMMAND,
            argv=tuple(self.command),
            program=self.command[0] if self.command else None,
            install="put it there, or correct server.command",
            ready_path="/v1/models",
            metrics_path=None,
            tried="as the plan says",
        )

    def all_flags(self) -> dict[str, AxisValue]:
        """The launcher's, with the plan's laid over them; what is null is left out."""
        merged = {**self.record.flags, **self.flags}
        return {name: value for name, value in merged.items() if value is not None}  # type: ignore[misc]

    def speaks(self, *, name: str, port: int, tokenizer: str | None) -> HttpSpec:
        """How the running server is spoken to."""
        record = self.record
        return HttpSpec(
            url=f"http://{HOST}:{port}",
            model=name,
            api=self.api or record.api,
            prompt=self.prompt,
            tokenizer=tokenizer,
            usage=self.usage or record.usage,
            body={**record.body, **self.body},
            timeout_s=self.timeout_s,
            resend_unanswered=self.resend_unanswered,
            ready_path=self.ready_path or record.ready_path,
            reset_path=self.reset_path,
            metrics_path=self.metrics_path or record.metrics_path,
        )

    def identity(self) -> dict[str, object]:
        """What makes two measurements the same ask: not where things lie, nor how long to wait."""
        places = {"program", "weights", "port", "start_s", "stop_s", "ready_path"}
        return self.model_dump(mode="json", exclude=places)


def as_arguments(flags: dict[str, AxisValue]) -> list[str]:
    """`--name value`, `--name` for true and `--no-name` for false, in the order of the plan."""
    found: list[str] = []
    for name, value in flags.items():
        if isinstance(value, bool):
            found.append(f"--{name}" if value else f"--no-{name}")
        else:
            found += [f"--{name}", str(value)]
    return found
