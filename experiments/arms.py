"""Arms of a plan: whom each of them asks. A plan without arms is one arm itself."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from experiments.border import Border
from experiments.records import AxisValue
from experiments.targets.http_spec import HttpSpec
from experiments.targets.server_spec import ServerSpec

ARM_AXIS = "arm"

TargetKind = Literal["in_process", "simulated", "http", "server", "transformers", "vllm"]
OURS = ("in_process", "simulated")
"""Kinds whose `engine` fields are those of our own engine's configuration."""


class Arm(Border):
    """One engine under test: `engine`, `http` and `server` hold the fields of its kind."""

    target: TargetKind = "in_process"
    engine: dict[str, AxisValue] = Field(default_factory=dict)
    simulation: dict[str, AxisValue] = Field(default_factory=dict)
    http: HttpSpec | None = None
    server: ServerSpec | None = None
    optional: bool = False  # left out, with its reason, where its program is not there

    @model_validator(mode="after")
    def _parts_belong_to_the_target(self) -> Self:
        if self.simulation and self.target != "simulated":
            raise ValueError("simulation is only read with target: simulated")
        if (self.http is None) == (self.target == "http"):
            raise ValueError("target: http and the field http (url, model, ...) go together")
        if (self.server is None) == (self.target == "server"):
            raise ValueError("target: server and the field server (launcher, ...) go together")
        return self

    @property
    def over_http(self) -> bool:
        """Whether clients send its load."""
        return self.target in ("http", "server")

    def located(self, base_dir: Path | None) -> Arm:
        """The same with absolute paths."""
        if self.http is None:
            return self
        return self.model_copy(update={"http": self.http.located(base_dir)})

    def field_names(self) -> set[str]:
        """The fields that `engine` may have, and that an axis may vary."""
        if self.target in ("transformers", "vllm"):
            from experiments.targets.peer_configs import CONFIGS

            return set(CONFIGS[self.target].model_fields)
        if self.server is not None:
            return {"model", *self.server.flags}
        from engine.config import describe_fields

        return {field.name for field in describe_fields()}

    def identity(self) -> tuple[object, ...]:
        """What makes two measurements the same ask, beside the engine's configuration."""
        parts: tuple[object, ...] = (self.target, self.simulation)
        if self.http is not None:
            parts = (*parts, self.http.identity())
        if self.server is not None:
            parts = (*parts, self.server.identity())
        return parts
