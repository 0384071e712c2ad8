"""How many drafts the target accepts, greedily, on held-out prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.config import configure
from engine.core import Engine
from engine.request import Request, RequestId, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOOP_PERIOD_TOKENS = 32  # the longest repeated stretch that counts as a loop
LOOP_TOKENS = 48  # how much of an output's end must repeat


@dataclass(frozen=True, kw_only=True)
class Output:
    """One continued prompt: its tokens, and the accepted drafts of each verify step."""

    token_ids: tuple[int, ...]
    accepted: tuple[int, ...]

    @property
    def loops(self) -> bool:
        """Whether the end repeats a stretch of at most LOOP_PERIOD_TOKENS over LOOP_TOKENS."""
        end = self.token_ids[-LOOP_TOKENS:]
        return any(end[period:] == end[:-period] for period in range(1, LOOP_PERIOD_TOKENS + 1))


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """What a set of outputs shows; loops are counted apart and left out."""

    outputs: int
    loops: int
    verify_steps: int
    acceptance_length: float | None  # tokens a verify step adds, the bonus token included
    first_accepted: float | None


def generate(
    model_dir: Path, prompts: Sequence[Sequence[int]], *, draft_length: int, tokens: int
) -> list[Output]:
    """Continue the prompts greedily by exactly `tokens` tokens each.

    Only steps that verified a whole draft count: near the end of an output they are shorter.
    """
    engine = Engine(configure({"model": str(model_dir), "draft_length": draft_length}))
    ask = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    ids: dict[str, list[int]] = {}
    accepted: dict[str, list[int]] = {}
    for number, prompt in enumerate(prompts):
        name = RequestId(str(number))
        ids[name], accepted[name] = [], []
        engine.add_request(Request(request_id=name, prompt_token_ids=tuple(prompt), sampling=ask))
    while engine.has_unfinished():
        for output in engine.step():
            ids[output.request_id] += output.token_ids
            if output.proposed == draft_length:
                accepted[output.request_id].append(output.accepted)
    return [Output(token_ids=tuple(ids[name]), accepted=tuple(accepted[name])) for name in ids]


def summarise(outputs: Sequence[Output]) -> Acceptance:
    """Mean over the verify steps of all outputs that do not loop."""
    kept = [output for output in outputs if not output.loops]
    steps = [count for output in kept for count in output.accepted]
    return Acceptance(
        outputs=len(outputs),
        loops=len(outputs) - len(kept),
        verify_steps=len(steps),
        acceptance_length=1 + sum(steps) / len(steps) if steps else None,
        first_accepted=sum(count > 0 for count in steps) / len(steps) if steps else None,
    )
