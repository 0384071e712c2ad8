"""A target with no engine: token times known in advance, on whatever clock it is given.

It is the yardstick of the load generator and of the metrics: what they report must equal what
the profile says. On a virtual clock it costs no time; on the system clock it sleeps.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from engine.config import EngineConfig
from engine.request import FinishReason, Request, RequestId, RequestOutput
from engine.resolution import resolve
from experiments.border import brief, nearest
from experiments.clock import Clock
from experiments.errors import PlanError, TargetCapacityError, TargetError
from experiments.records import AxisValue
from experiments.targets.base import Received, TargetFacts, in_force


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


class SimulatedTarget:
    """Serves by the profile. Same requests and same clock, same times."""

    def __init__(self, profile: SimulatedProfile, clock: Clock) -> None:
        self._profile = profile
        self._clock = clock
        self._due: list[tuple[int, int, RequestOutput]] = []  # (when, order, what), a heap
        self._live: set[RequestId] = set()
        self._replica: dict[RequestId, int] = {}
        self._settings: dict[str, AxisValue] | None = None
        self._draft_length = 0
        self._sent = 0
        self._order = 0
        self._log: list[str] = []

    def settings(self, engine: Mapping[str, AxisValue]) -> dict[str, AxisValue]:
        """As the real engine fills them in; the model is called `simulated`."""
        return dict(EngineConfig.from_mapping({"model": "simulated", **engine}).as_mapping())

    def describe(self, engine: Mapping[str, AxisValue]) -> TargetFacts:
        """The profile's facts, held against the configuration by the real engine's rules."""
        settings = self.settings(engine)
        profile = self._profile
        replicas = settings["data_parallel_size"]
        assert isinstance(replicas, int)
        facts = TargetFacts(
            model=str(settings["model"]),
            fingerprint="simulated",
            configuration={},
            vocab_size=profile.vocab_size,
            eos_token_id=1,
            reserved_token_ids=(0, 1),
            window=profile.window,
            draft_block=profile.draft_block,
            can_truncate=True,
            max_positions=profile.max_positions,
            devices=replicas,
            accelerator="simulated",
            random_weights=profile.random_weights,
            tokenizer_hash="bytes",
            simulated=True,
        )
        resolved = resolve(EngineConfig.from_mapping(settings), facts)
        self._draft_length = resolved.draft_length
        return replace(
            facts, max_positions=resolved.max_model_len, configuration=in_force(resolved)
        )

    def encode(self, engine: Mapping[str, AxisValue], text: str) -> list[int]:
        """One id a byte."""
        del engine
        return list(text.encode())

    def open(self, engine: Mapping[str, AxisValue]) -> TargetFacts:
        """Takes `start_s`."""
        facts = self.describe(engine)
        self._settings = self.settings(engine)
        self._clock.sleep(self._profile.start_s)
        self._log.append("event=open")
        return facts

    def submit(self, request: Request) -> None:
        """Fixes every output of the request at once."""
        if self._settings is None:
            raise TargetError("the simulated engine is not open")
        self._sent += 1
        profile = self._profile
        if profile.die_after is not None and self._sent > profile.die_after:
            self._settings = None
            self._log.append(f"event=died requests={self._sent}")
            raise TargetError(f"the simulated engine died at request {self._sent}")
        if profile.capacity is not None and len(self._live) >= profile.capacity:
            raise TargetCapacityError(f"there is room for {profile.capacity} requests")
        self._replica[request.request_id] = self._sent % (self._replicas or 1)
        outputs = self._outputs(request, self._clock.now_ns())
        self._live.add(request.request_id)
        if not _every(self._sent, profile.lose_every):
            for output in outputs:
                self._order += 1
                heapq.heappush(self._due, (output.time_ns, self._order, output))

    def poll(self, timeout_s: float) -> Sequence[Received]:
        """Waits on the clock until the next output is due, or until the time is up."""
        now = self._clock.now_ns()
        until = now + max(0, round(timeout_s * 1e9))
        if self._due:
            until = min(until, self._due[0][0])
        self._clock.sleep((until - now) / 1e9)
        now = self._clock.now_ns()
        outputs = []
        while self._due and self._due[0][0] <= now:
            output = heapq.heappop(self._due)[2]
            if output.request_id in self._live:
                outputs.append(Received(output=output, received_ns=now))
                if output.finished:
                    self._live.discard(output.request_id)
        return outputs

    def abort(self, request_id: RequestId) -> None:
        """Drops what was still due; a request that was lost is not even acknowledged."""
        if any(output.request_id == request_id for _, _, output in self._due):
            self._order += 1
            now_ns = self._clock.now_ns()
            aborted = RequestOutput(
                request_id=request_id,
                token_ids=(),
                time_ns=now_ns,
                finish_reason=FinishReason.ABORT,
            )
            heapq.heappush(self._due, (now_ns, self._order, aborted))

    def reset(self) -> None:
        """There is no cache."""

    def replica_of(self, request_id: RequestId) -> int | None:
        """Replicas take turns."""
        return self._replica.get(request_id) if self._replicas else None

    def stats(self) -> dict[str, float]:
        """Requests taken so far."""
        return {"requests": float(self._sent)}

    def log_tail(self) -> str:
        """What happened to the engine."""
        return "\n".join(self._log)

    def close(self) -> None:
        """Forgets everything that was due."""
        self._settings = None
        self._due.clear()
        self._live.clear()

    @property
    def _replicas(self) -> int | None:
        size = (self._settings or {}).get("data_parallel_size")
        return size if isinstance(size, int) and size > 1 else None

    def _outputs(self, request: Request, now_ns: int) -> list[RequestOutput]:
        profile = self._profile
        wanted = request.sampling.max_tokens
        if _every(self._sent, profile.stop_early_every):
            wanted = max(1, wanted - 1)
        tpot_s = profile.tpot_s + profile.tpot_per_request_s * len(self._live)
        proposed = 0 if profile.tokens_per_chunk is not None else self._draft_length
        accepted = min(profile.accepted_drafts, proposed)
        size = profile.tokens_per_chunk or 1 + accepted
        tpot_s /= 1 + accepted
        outputs, made = [], 0
        while made < wanted:
            first = made == 0
            take = min(profile.first_chunk_tokens if first else size, wanted - made)
            made += take
            delay_s = profile.ttft_s + tpot_s * max(0, made - profile.first_chunk_tokens)
            stalled_s = profile.stall_s if made > profile.stall_at else 0.0
            verified = proposed > 0 and not first
            outputs.append(
                RequestOutput(
                    request_id=request.request_id,
                    token_ids=tuple((made + i) % profile.vocab_size for i in range(take)),
                    time_ns=now_ns + round((delay_s + stalled_s) * 1e9),
                    finish_reason=FinishReason.LENGTH if made == wanted else None,
                    proposed=min(proposed, take + proposed - 1 - accepted) if verified else 0,
                    accepted=take - 1 if verified else 0,
                    verify_steps=int(verified),
                    arrived_ns=now_ns,
                    first_scheduled_ns=now_ns,
                    cached_tokens=int(profile.cached_share * len(request.prompt_token_ids)),
                )
            )
        if _every(self._sent, profile.fail_every):
            return (
                [outputs[0], _failure(outputs[0])] if len(outputs) > 1 else [_failure(outputs[0])]
            )
        return outputs


def _failure(after: RequestOutput) -> RequestOutput:
    return RequestOutput(
        request_id=after.request_id,
        token_ids=(),
        time_ns=after.time_ns,
        finish_reason=FinishReason.ERROR,
        error="simulated failure",
    )


def _every(count: int, period: int | None) -> bool:
    return period is not None and count % period == 0
