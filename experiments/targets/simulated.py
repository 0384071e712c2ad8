"""A target with no engine: token times known in advance, on whatever clock it is given.

It is the yardstick of the load generator and of the metrics: what they report must equal what
the profile says. On a virtual clock it costs no time; on the system clock it sleeps.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from engine.config import EngineConfig
from engine.request import FinishReason, Request, RequestId, RequestOutput
from engine.resolution import resolve
from experiments.clock import Clock
from experiments.errors import TargetCapacityError, TargetError
from experiments.records import AxisValue
from experiments.targets.base import Received, TargetFacts, in_force
from experiments.targets.simulated_profile import SimulatedProfile

_Due = tuple[int, int, RequestOutput, Iterator[RequestOutput]]
"""When, in which order of equals, what, and what follows it."""


class SimulatedTarget:
    """Serves by the profile. Same requests and same clock, same times."""

    def __init__(self, profile: SimulatedProfile, clock: Clock) -> None:
        self._profile = profile
        self._clock = clock
        self._due: list[_Due] = []  # a heap with the next output of each request
        self._streams: dict[RequestId, Iterator[RequestOutput]] = {}  # what follows it
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
        """Fixes when every output of the request comes; each is made when it is due."""
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
        outputs = self._outputs(request, self._clock.now_ns(), self._tpot_s(), self._sent)
        self._live.add(request.request_id)
        if not _every(self._sent, profile.lose_every):
            self._follow(next(outputs), outputs)

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
            _, order, output, stream = self._due[0]
            following = None
            if self._streams.get(output.request_id) is stream:  # else it was given up
                outputs.append(Received(output=output, received_ns=now))
                following = next(stream, None)
                if following is None:
                    self._forget(output.request_id)
            if following is None:
                heapq.heappop(self._due)
            else:
                heapq.heapreplace(self._due, (following.time_ns, order, following, stream))
        return outputs

    def abort(self, request_id: RequestId) -> None:
        """Drops what was still due; a request that was lost is not even acknowledged."""
        if request_id in self._streams:
            aborted = RequestOutput(
                request_id=request_id,
                token_ids=(),
                time_ns=self._clock.now_ns(),
                finish_reason=FinishReason.ABORT,
            )
            self._follow(aborted, iter(()))

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
        self._streams.clear()
        self._live.clear()
        self._replica.clear()

    def _follow(self, first: RequestOutput, stream: Iterator[RequestOutput]) -> None:
        """From now on the request gives `first` and then this stream, in place of any other."""
        self._order += 1
        self._streams[first.request_id] = stream
        heapq.heappush(self._due, (first.time_ns, self._order, first, stream))

    def _forget(self, request_id: RequestId) -> None:
        del self._streams[request_id]
        self._live.discard(request_id)
        self._replica.pop(request_id, None)

    @property
    def _replicas(self) -> int | None:
        size = (self._settings or {}).get("data_parallel_size")
        return size if isinstance(size, int) and size > 1 else None

    def _tpot_s(self) -> float:
        """Of a verify step of a request that is sent now."""
        return self._profile.tpot_s + self._profile.tpot_per_request_s * len(self._live)

    def _outputs(
        self, request: Request, now_ns: int, tpot_s: float, number: int
    ) -> Iterator[RequestOutput]:
        """All outputs of request `number`, in order. What was under way when it was sent is
        given: nothing else that changes is looked at."""
        profile = self._profile
        wanted = request.sampling.max_tokens
        if _every(number, profile.stop_early_every):
            wanted = max(1, wanted - 1)
        proposed = 0 if profile.tokens_per_chunk is not None else self._draft_length
        accepted = min(profile.accepted_drafts, proposed)
        size = profile.tokens_per_chunk or 1 + accepted
        tpot_s /= 1 + accepted
        made = 0
        while made < wanted:
            first = made == 0
            take = min(profile.first_chunk_tokens if first else size, wanted - made)
            made += take
            delay_s = profile.ttft_s + tpot_s * max(0, made - profile.first_chunk_tokens)
            stalled_s = profile.stall_s if made > profile.stall_at else 0.0
            verified = proposed > 0 and not first
            output = RequestOutput(
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
            if not _every(number, profile.fail_every):
                yield output
            else:
                if made < wanted:
                    yield output
                yield _failure(output)
                return


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
