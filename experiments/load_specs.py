"""How a plan says that requests are sent: in flight, at a rate, or as a trace did."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from experiments.border import Border


class ClosedLoad(Border):
    """A fixed number of requests in flight: each one that ends is replaced at once."""

    kind: Literal["closed"] = "closed"
    batch_size: int = Field(default=1, ge=1, le=100_000)


class RateLoad(Border):
    """Requests sent at a rate, whatever the engine does; absolute times, drawn beforehand."""

    kind: Literal["poisson", "constant"]
    rate: float = Field(gt=0)  # requests a second


class TraceLoad(Border):
    """Requests sent when the trace says; `time_scale` 2 plays it twice as fast."""

    kind: Literal["trace"]
    time_scale: float = Field(default=1.0, gt=0)


Load = Annotated[ClosedLoad | RateLoad | TraceLoad, Field(discriminator="kind")]
