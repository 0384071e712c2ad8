"""What a plan asks of a valid trial, and of a request that counts as goodput."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self, cast

from pydantic import Field, field_validator, model_validator

from experiments.border import Border
from experiments.records import AxisValue


class GateLimits(Border):
    """What a valid trial meets. None switches a gate off. Shares are of 1."""

    error_rate: float | None = Field(default=0.01, ge=0, le=1)
    output_length_mismatch: float | None = Field(default=0.01, ge=0, le=1)
    prompt_length_mismatch: float | None = Field(default=0.01, ge=0, le=1)
    repeated_prompts: float | None = Field(default=0.01, ge=0, le=1)
    cache_hit_rate: float | None = Field(default=0.01, ge=0, le=1)  # above what is meant
    cache_hit_shortfall: float | None = Field(default=0.05, ge=0, le=1)  # below what is meant
    rate_shortfall: float | None = Field(default=0.01, ge=0, le=1)
    littles_law: float | None = Field(default=0.1, ge=0)
    client_lag_s: float | None = Field(default=0.005, ge=0)  # p99 of sent - intended
    client_cpu_percent: float | None = Field(default=80.0, ge=0)  # of one core, the busiest client
    drift: float | None = Field(default=0.05, ge=0)  # of throughput over the window
    throttled: float | None = Field(default=0.0, ge=0, le=1)  # of the samples of devices
    foreign_processes: int | None = Field(default=0, ge=0)
    foreign_cpu_percent: float | None = Field(default=None, ge=0, le=100)  # of all processors
    clock_spread: float | None = Field(default=0.1, ge=0)  # of a device, to its median
    environment_changes: int | None = Field(default=0, ge=0)  # since the run began
    energy_agreement: float | None = Field(default=0.05, ge=0)  # integral against counter
    agreement: float | Literal["by_precision"] | None = Field(default="by_precision")
    """Token flips that arms which must agree may have, per token compared. `by_precision`: none
    where float32 or float64 is computed on a CPU, 0.02 elsewhere."""

    @model_validator(mode="before")
    @classmethod
    def _drop_what_older_plans_switched_off(cls, value: object) -> object:
        """`half_drift: null` is in every plan stored before `drift` took its place."""
        if not isinstance(value, Mapping):
            return value
        told = dict(cast("Mapping[str, object]", value))
        if told.get("half_drift", 0) is None:
            del told["half_drift"]
        return told

    @field_validator("agreement")
    @classmethod
    def _agreement_is_a_share(cls, value: float | str | None) -> float | str | None:
        if isinstance(value, float) and not 0 <= value <= 1:
            raise ValueError("is a share from 0 to 1, by_precision or null")
        return value


class Slo(Border):
    """How fast a request must be to count as goodput. Seconds; None sets no limit."""

    ttft_s: float | None = Field(default=None, gt=0)
    tpot_s: float | None = Field(default=None, gt=0)
    e2e_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.ttft_s is None and self.tpot_s is None and self.e2e_s is None:
            raise ValueError("needs at least one of ttft_s, tpot_s and e2e_s")
        return self

    def limits(self) -> dict[str, AxisValue]:
        """The limits that are set, as a record's workload names them: `slo_ttft_s`."""
        return {f"slo_{k}": v for k, v in self.model_dump(exclude_none=True).items()}
