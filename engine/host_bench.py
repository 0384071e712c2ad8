"""Time the host's part of decode steps: `python -m engine.host_bench [--requests N] ...`.

The real engine serves the null model on the null device, so it needs no GPU and no checkpoint:
what it plans, stages and settles does not depend on what a model computes. All requests decode
together, one step always in flight, as with overlap. Of every step, by the host's clock: `plan`;
`stage`, which is launching it without the launch of its operations; `settle`, with the reading
of what came back. `least` is what the work costs where nothing disturbs it. `calls` counts the
calls of functions, Python's and C's, in all three: the same on every machine with one Python.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, TypeVar

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    import numpy as np

    from engine.accelerator.null import RepeatRecorder
    from engine.collector import calm_collector
    from engine.config import EngineConfig
    from engine.models.null import NullSource, StepMeter
    from engine.models.protocol import ModelFacts
    from engine.request import Request, RequestId, SamplingParams
    from engine.simulation import simulate
    from kernels.program import ended, positive_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from numpy.typing import NDArray

    from engine.request import RequestOutput

_FACTS = ModelFacts(
    vocab_size=64,
    max_positions=1 << 20,
    eos_token_id=1,
    window=8,
    draft_block=5,
    ngram=3,
    can_truncate=False,
)
_ACCEPTANCE = 0.7  # of drafts, where there are any
_PROMPT_TOKENS = 32
_SKIPPED_STEPS = 8  # of those in which all decode
_BLOCK_TOKENS = 64

_T = TypeVar("_T")


class HostSteps:
    """An engine whose requests all decode, with one step in flight."""

    def __init__(self, *, requests: int, draft_length: int, steps: int, graphs: str) -> None:
        """`steps` of its own can be run; without `graphs` ("off") they are staged row by row."""
        longest = _PROMPT_TOKENS + (draft_length + 1) * (steps + 2 * _SKIPPED_STEPS)
        config = {
            "model": "null",
            "max_num_seqs": requests,
            "draft_length": draft_length,
            "max_model_len": longest,
            "block_tokens": _BLOCK_TOKENS,
            "cache_tokens": requests * (-(-longest // _BLOCK_TOKENS) * _BLOCK_TOKENS),
            "graphs": graphs,
        }
        self.engine, _ = simulate(
            EngineConfig.from_mapping(config),
            NullSource(model_facts=_FACTS, meter=StepMeter(), acceptance=_ACCEPTANCE),
            recorder=RepeatRecorder(),
        )
        for request in _requests(requests):
            self.engine.add_request(request)
        self._in_flight = self.engine.launch(self.engine.plan())
        while len(self.step()[1]) < requests:
            pass
        for _ in range(_SKIPPED_STEPS):
            self.step()

    def step(self) -> tuple[dict[str, float], list[RequestOutput]]:
        """Run one step: seconds of each stage, and what was heard of the step before."""
        start = time.perf_counter()
        batch = self.engine.plan()
        planned = time.perf_counter()
        before, self._in_flight = self._in_flight, self.engine.launch(batch)
        staged = time.perf_counter()
        before.ticket.wait()  # here the device does its work
        ready = time.perf_counter()
        outputs = self.engine.settle(before)
        plan_s, stage_s = planned - start, staged - planned
        settle_s = time.perf_counter() - ready
        sums = {"plan+settle": plan_s + settle_s, "all": plan_s + stage_s + settle_s}
        return {"plan": plan_s, "stage": stage_s, "settle": settle_s, **sums}, outputs

    def count_calls(self) -> int:
        """Run one step: how many functions the host has called for it."""
        before = self._in_flight
        self._in_flight, ahead = _counted(lambda: self.engine.launch(self.engine.plan()))
        before.ticket.wait()
        return ahead + _counted(lambda: self.engine.settle(before))[1]


def _requests(count: int) -> Iterator[Request]:
    for number in range(count):
        params = SamplingParams(
            temperature=0.0, max_tokens=_FACTS.max_positions, ignore_eos=True, seq_seed=number
        )
        prompt = tuple(range(2, 2 + _PROMPT_TOKENS))
        yield Request(request_id=RequestId(str(number)), prompt_token_ids=prompt, sampling=params)


def _counted(work: Callable[[], _T]) -> tuple[_T, int]:
    calls = 0

    def hear(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(hear)
    try:
        found = work()
    finally:
        sys.setprofile(None)
    return found, calls


def measure(
    *, requests: int, draft_length: int, steps: int, graphs: str = "auto"
) -> tuple[dict[str, NDArray[np.float64]], int]:
    """Microseconds of each stage of so many steps, and the calls of one more."""
    host = HostSteps(requests=requests, draft_length=draft_length, steps=steps, graphs=graphs)
    seconds = [host.step()[0] for _ in range(steps)]
    return {name: 1e6 * np.array([one[name] for one in seconds]) for name in seconds[0]}, (
        host.count_calls()
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.host_bench")
    parser.add_argument(
        "--requests", type=positive_count, action="append", help="at once; repeatable"
    )
    parser.add_argument("--draft-length", type=int, default=0)
    parser.add_argument("--steps", type=positive_count, default=400)
    parser.add_argument("--graphs", choices=("auto", "off"), default="auto")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each number of requests."""
    given = _parser().parse_args(arguments)
    calm_collector()
    for requests in given.requests or (1, 32, 256):
        stages, calls = measure(
            requests=requests,
            draft_length=given.draft_length,
            steps=given.steps,
            graphs=given.graphs,
        )
        each = " ".join(
            f"{name}={us.min():.0f}/{np.quantile(us, 0.5):.0f}/{np.quantile(us, 0.99):.0f}"
            for name, us in stages.items()
        )
        sys.stdout.write(f"{requests} requests: {calls} calls, us least/p50/p99: {each}\n")
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
