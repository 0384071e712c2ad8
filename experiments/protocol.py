"""How long and how often a point is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from experiments.border import Border, brief

MEDIAN_NEEDS = 4
"""Requests below which not even a median is shown."""


class Protocol(Border):
    """How long and how often a point is measured. Seconds; counts are per slot in flight.

    A trial stops sending when `measured_s` have passed, and `measured_per_slot` requests a slot
    and `measured_requests` in all (a median needs 4) are complete; at the latest after `limit_s`
    or `max_requests`. Then it drains for at most `drain_s`. `limit_s` bounds the warm-up too.
    `quick` bounds the time and is stamped indicative; `standard` follows the rule 60 s, three
    times the median E2E and 10 requests a slot, warms up until rounds go equally fast, and cuts
    off the part of the window in which the load had not settled.
    """

    name: Literal["quick", "standard"] = "quick"
    warm_up_per_slot: int = Field(default=1, ge=0)
    warm_up_output_tokens: int | None = Field(default=4, ge=1)  # None: as the workload asks
    warm_up_rounds: int = Field(default=1, ge=1)  # at most; each has fresh content
    warm_up_cv: float | None = Field(default=None, gt=0)  # that ends the rounds; None: one is all
    measured_s: float = Field(default=2.0, ge=0)
    measured_e2e: float = Field(default=0.0, ge=0)  # and so many times the median E2E
    measured_per_slot: int = Field(default=1, ge=1)
    measured_requests: int = Field(default=4, ge=1)
    limit_s: float = Field(default=10.0, gt=0)
    max_requests: int = Field(default=10_000, ge=1)
    drain_s: float = Field(default=20.0, gt=0)
    idle_s: float = Field(default=0.5, ge=0)  # of watching idle devices before the load
    drop_ramp: bool = True  # where the window is long enough to tell
    keep_output_tokens: int = Field(default=200_000, ge=0)  # ids kept a trial; hashes always are
    repeats: int = Field(default=1, ge=1)
    bootstrap_draws: int = Field(default=200, ge=20)

    @property
    def indicative(self) -> bool:
        """True when the trial is too short for its numbers to be quoted."""
        longest_s = min(self.measured_s, self.limit_s)
        return self.name == "quick" or longest_s < 60 or self.measured_per_slot < 10

    def needed_requests(self, batch_size: int | None) -> int:
        """Completed requests below which a trial is invalid; `batch_size` None: open loop."""
        floor = MEDIAN_NEEDS if self.name == "quick" else self.measured_requests
        return max(batch_size or 1, floor)


PROTOCOLS = {
    "quick": Protocol(),
    "standard": Protocol(
        name="standard",
        warm_up_per_slot=2,
        warm_up_output_tokens=None,
        warm_up_rounds=10,
        warm_up_cv=0.05,
        measured_s=60.0,
        measured_e2e=3.0,
        measured_per_slot=10,
        measured_requests=200,
        limit_s=600.0,
        max_requests=1_000_000,
        drain_s=300.0,
        idle_s=2.0,
        repeats=3,
        bootstrap_draws=500,
    ),
}


def named_protocol(value: object) -> object:
    """A protocol by its name, or with fields changed from the one that it names."""
    if isinstance(value, str):
        if value not in PROTOCOLS:
            raise ValueError(f"is {brief(value)}, which is none of {', '.join(PROTOCOLS)}")
        return PROTOCOLS[value]
    if isinstance(value, Mapping):
        base = PROTOCOLS.get(str(value.get("name", "quick")))
        return {**base.model_dump(), **value} if base else value
    return value
