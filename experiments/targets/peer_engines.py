"""Engines of other packages as the experiment drives them: asked and answered in token ids."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from engine.request import FinishReason, Request, RequestId, RequestOutput
from experiments.errors import TargetRefusedError
from experiments.targets.peer_configs import PeerConfig, TransformersConfig, VllmConfig

GREEDY = 1e-5


class PeerEngine(Protocol):
    """One started engine. One thread uses it."""

    def submit(self, request: Request) -> None:
        """Queue a request; TargetRefusedError for one that it cannot serve as it is asked."""
        ...

    def poll(self, timeout_s: float) -> Sequence[RequestOutput]:
        """What came since the last call; an engine that is stepped makes one step."""
        ...

    def abort(self, request_id: RequestId) -> None:
        """Give a request up; its last output says ABORT, unless it had ended before."""
        ...

    def stats(self) -> dict[str, float]:
        """Counters since it started."""
        ...

    def close(self) -> None:
        """Let everything go."""
        ...


Start = Callable[[PeerConfig], PeerEngine]


def start_engine(config: PeerConfig) -> PeerEngine:
    """Load the model and return when it can serve; whatever the package raises passes through."""
    if isinstance(config, VllmConfig):
        from experiments.targets.vllm_engine import VllmEngine

        return VllmEngine(config)
    assert isinstance(config, TransformersConfig), f"{type(config).__name__} has no engine"
    if config.batching == "continuous":
        from experiments.targets.transformers_continuous import ContinuousBatches

        return ContinuousBatches(config)
    from experiments.targets.transformers_static import StaticBatches

    return StaticBatches(config)


def check_greedy(request: Request) -> None:
    """TargetRefusedError for a request that draws its tokens: two engines draw differently."""
    if request.sampling.temperature > GREEDY:
        raise TargetRefusedError(
            "this target compares greedy answers, and the workload draws its tokens",
            where="workload: temperature",
            remedy="Set it to 0.",
        )


def said(
    request_id: str, tokens: Sequence[int], reason: FinishReason | None = None
) -> RequestOutput:
    """Tokens that have just come."""
    return RequestOutput(
        request_id=RequestId(request_id),
        token_ids=tuple(tokens),
        time_ns=time.perf_counter_ns(),
        finish_reason=reason,
    )


def failed(request_id: str, error: str) -> RequestOutput:
    """A request that the engine gave up."""
    return RequestOutput(
        request_id=RequestId(request_id),
        token_ids=(),
        time_ns=time.perf_counter_ns(),
        finish_reason=FinishReason.ERROR,
        error=error,
    )
