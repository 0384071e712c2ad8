"""How a simulated engine behaves, as a plan says under `simulation`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from experiments.border import brief
from experiments.errors import PlanError
from experiments.records import AxisValue
from kernels.near_names import nearest


@dataclass(frozen=True, kw_only=True)
class SimulatedProfile:
    """What the simulated engine does. Seconds; `every` counts requests from 1, warm-up too.

    The first chunk holds `first_chunk_tokens` and arrives `ttft_s` after the request. The j-th
    token after it is made `tpot_s` j later; a chunk arrives when its last token is made. With
    drafts a verify step takes `tpot_s` and makes 1 + `accepted_drafts` tokens.
    """

    start_s: float = 0.0
    ttft_s: float = 0.020
    tpot_s: float = 0.005
    tpot_per_request_s: float = 0.0  # added for every other request in flight when it is sent
    first_chunk_tokens: int = 1
    tokens_per_chunk: int | None = None  # None: 1 + accepted drafts
    accepted_drafts: int = 2  # of a draft of at least that length, in every verify step
    stall_s: float = 0.0  # before the chunk that holds token `stall_at`
    stall_at: int = 10
    fail_every: int | None = None  # the request fails after its first chunk
    stop_early_every: int | None = None  # the request ends one token short
    lose_every: int | None = None  # the request is never answered
    die_after: int | None = None  # the engine dies when it is sent one request more
    capacity: int | None = None  # most requests in flight
    cached_share: float = 0.0  # of every prompt
    random_weights: bool = False
    vocab_size: int = 512
    window: int = 128
    draft_block: int = 5
    max_positions: int = 4096

    @classmethod
    def from_mapping(cls, values: Mapping[str, AxisValue]) -> SimulatedProfile:
        """PlanError for an unknown name or a value that is no number."""
        known = {f.name for f in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise PlanError(
                    "is no field of a simulation",
                    where=f"simulation: {name}",
                    remedy=nearest(name, known),
                )
            if not isinstance(value, int | float | None):
                raise PlanError(f"is {brief(value)}, not a number", where=f"simulation: {name}")
            _refuse_wrong(name, value)
        return cls(**values)  # type: ignore[arg-type]


_LEAST = {
    "first_chunk_tokens": 1, "tokens_per_chunk": 1, "fail_every": 1, "stop_early_every": 1,
    "lose_every": 1, "capacity": 1, "vocab_size": 3, "window": 1, "max_positions": 2,
}  # fmt: skip
"""Of the fields that may not be 0. Two ids of the vocabulary are reserved."""
_MOST = {"cached_share": 1.0}
_LARGEST = 1e9  # of any other field: seconds, tokens or requests


def _refuse_wrong(name: str, value: float | None) -> None:
    """PlanError for a value of another type than the field's, or out of its range."""
    kind = str(next(f.type for f in fields(SimulatedProfile) if f.name == name))
    least, most = _LEAST.get(name, 0), _MOST.get(name, _LARGEST)
    if value is None:
        right, wanted = "None" in kind, "a number"
    elif kind == "bool":
        right, wanted = isinstance(value, bool), "true or false"
    elif kind == "float":
        right, wanted = not isinstance(value, bool), "a number"
    else:
        right, wanted = type(value) is int, "a whole number"
    if not right or (value is not None and not least <= value <= most):
        raise PlanError(
            f"is {brief(value)}, not {wanted}" if not right else f"is {brief(value)}",
            where=f"simulation: {name}",
            remedy=f"Use {wanted}" + ("." if kind == "bool" else f" from {least} to {most:g}."),
        )
