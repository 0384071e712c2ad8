"""What a plan asks of a valid trial, and of a request that counts as goodput."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from experiments.border import Border
from experiments.records import AxisValue


class GateLimits(Border):
    """What a valid trial meets. None switches a gate off."""

    error_rate: float | None = Field(default=0.01, ge=0, le=1)
    output_length_mismatch: float | None = Field(default=0.01, ge=0, le=1)
    cache_hit_rate: float | None = Field(default=0.01, ge=0, le=1)
    littles_law: float | None = Field(default=0.1, ge=0)
    half_drift: float | None = Field(default=None, ge=0)


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
