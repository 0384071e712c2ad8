"""What every request passes before it is queued, whichever process will serve it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine import sampling, sampling_checks
from engine.errors import RequestError
from engine.request import MOST_PRIORITY, SamplingParams
from engine.sequence import check_prompt_fits

if TYPE_CHECKING:
    from engine.models.protocol import ModelFacts
    from engine.request import Request


@dataclass(frozen=True, kw_only=True)
class ServingLimits:
    """What one replica can serve; crosses process borders."""

    facts: ModelFacts
    longest_sequence: int


class Admission:
    """Checks requests and gives a seed to those that bring none, in order of arrival.

    The seeds depend on the engine's seed and on how many requests came before, not on which
    replica serves them.
    """

    def __init__(self, limits: ServingLimits, seed: int) -> None:
        self.limits = limits
        self._seed = seed
        self._admitted = 0

    def check(self, request: Request) -> None:
        """RequestError names the field and remedy; PromptTooLongError where it cannot fit."""
        where = f"request {request.request_id}"
        _check_types(request, where)
        sampling_checks.validate(request.sampling, self.limits.facts, where=where)
        vocab, length = self.limits.facts.vocab_size, len(request.prompt_token_ids)
        if not length:
            raise RequestError("the prompt is empty.", where=where, remedy="Give a token.")
        if not sampling_checks.are_token_ids(request.prompt_token_ids, vocab):
            raise RequestError(
                "prompt_token_ids holds something that is no token id of the vocabulary.",
                where=where,
                remedy=f"Use whole numbers (int) from 0 to {vocab - 1}.",
            )
        check_prompt_fits(length, self.limits.longest_sequence, where=where)
        _check_order(request, where)

    def admit(self, request: Request) -> Request:
        """The request as it is to be served: checked, with a seed, and with all that ends it."""
        self.check(request)
        self._admitted += 1
        asked, others = request.sampling, self.limits.facts.other_eos_token_ids
        if others and not asked.ignore_eos:
            asked = replace(asked, stop_token_ids=(*asked.stop_token_ids, *others))
        if asked.seq_seed is None:
            asked = replace(asked, seq_seed=sampling.draw_seed(self._seed, self._admitted))
        return replace(request, sampling=asked)


def _check_types(request: Request, where: str) -> None:
    """What the checks of values may count on."""
    expected = {
        "request_id": (str, "a string"),
        "prompt_token_ids": ((tuple, list), "a tuple of token ids"),
        "sampling": (SamplingParams, "SamplingParams"),
    }
    for field, (kind, name) in expected.items():
        value = getattr(request, field)
        if not isinstance(value, kind):
            raise RequestError(
                f"{field} is {value!r}, not {name}.", where=where, remedy=f"Give {name}."
            )


def _check_order(request: Request, where: str) -> None:
    """What queues count on."""
    priority, timeout_s = request.priority, request.timeout_s
    is_whole = isinstance(priority, int) and not isinstance(priority, bool)
    if not is_whole or abs(priority) > MOST_PRIORITY:
        raise RequestError(
            f"priority {priority!r} is refused.",
            where=where,
            remedy=f"Use a whole number from {-MOST_PRIORITY} to {MOST_PRIORITY}.",
        )
    if timeout_s is not None and not (sampling_checks.is_number(timeout_s) and timeout_s > 0):
        raise RequestError(
            f"timeout_s {timeout_s!r} is refused.",
            where=where,
            remedy="Use None, or a finite number of seconds above 0.",
        )
