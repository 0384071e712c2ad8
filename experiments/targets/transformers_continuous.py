"""Continuous batching of transformers: requests join and leave between steps.

Its manager streams: an answer is told as far as it has come, after every step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from transformers import ContinuousBatchingConfig, GenerationConfig

from engine.request import FinishReason, Request, RequestId, RequestOutput
from experiments.errors import TargetDiedError
from experiments.targets.peer_configs import TransformersConfig
from experiments.targets.peer_engines import check_greedy, failed, said
from experiments.targets.transformers_model import eos_ids, load_model

if TYPE_CHECKING:
    from transformers.generation.continuous_batching.requests import GenerationOutput

NO_TOKEN = -1  # as the package writes that nothing ends a text
STOP_S = 30.0
PAGE_TOKENS = 256


class ContinuousBatches:
    """A `PeerEngine` on `model.init_continuous_batching`. Prompts share no blocks."""

    def __init__(self, config: TransformersConfig) -> None:
        model = load_model(config, config.attention)
        self._eos = sorted(eos_ids(model))
        self._manager = model.init_continuous_batching(
            generation_config=GenerationConfig(
                do_sample=False, eos_token_id=NO_TOKEN, pad_token_id=0, max_new_tokens=1
            ),
            continuous_batching_config=ContinuousBatchingConfig(
                allow_block_sharing=False, page_size=PAGE_TOKENS, num_blocks=_pages(config)
            ),
        )
        self._manager.warmup()  # its cache is made here, and not under the first request
        self._manager.start()
        self._asked: dict[str, Request] = {}
        self._told: dict[str, int] = {}
        self._given_up: list[RequestOutput] = []
        self._tokens = 0

    def submit(self, request: Request) -> None:
        """It joins the next step that has room."""
        check_greedy(request)
        sampling = request.sampling
        self._asked[request.request_id] = request
        self._told[request.request_id] = 0
        self._manager.add_request(
            list(request.prompt_token_ids),
            request_id=request.request_id,
            max_new_tokens=sampling.max_tokens,
            streaming=True,
            eos_token_id=NO_TOKEN if sampling.ignore_eos or not self._eos else self._eos,
        )

    def poll(self, timeout_s: float) -> Sequence[RequestOutput]:
        """What came; TargetDiedError where the manager's thread ended."""
        found, self._given_up = self._given_up, []
        result = self._manager.get_result(timeout=max(timeout_s, 0.001))
        while result is not None:
            found += self._heed(result)
            result = self._manager.get_result(timeout=0.0001)
        if not found and self._asked and not self._manager.is_running():
            raise TargetDiedError("the thread of continuous batching ended")
        return found

    def abort(self, request_id: RequestId) -> None:
        """The manager drops it between steps, and says no more of it."""
        if self._asked.pop(request_id, None) is not None:
            self._manager.cancel_request(request_id)
            self._given_up.append(said(request_id, (), FinishReason.ABORT))

    def stats(self) -> dict[str, float]:
        """Tokens delivered."""
        return {"output_tokens": float(self._tokens)}

    def close(self) -> None:
        """Stop the manager's thread; what is in flight is dropped."""
        self._manager.stop(block=True, timeout=STOP_S, hard_stop=True)

    def _heed(self, result: GenerationOutput) -> list[RequestOutput]:
        """The tokens that are new since the last result of the same request."""
        name = result.request_id
        request = self._asked.get(name)
        if request is None:  # given up
            return []
        if result.error is not None:
            del self._asked[name]
            return [failed(name, str(result.error))]
        tokens = result.generated_tokens[self._told[name] :]
        self._told[name] += len(tokens)
        self._tokens += len(tokens)
        if not result.is_finished():
            return [said(name, tokens)] if tokens else []
        del self._asked[name]
        whole = self._told.pop(name) >= request.sampling.max_tokens
        return [said(name, tokens, FinishReason.LENGTH if whole else FinishReason.STOP)]


def _pages(config: TransformersConfig) -> int | None:
    """Room for all sequences at their longest; None leaves it to the package, which takes a
    large share of the memory."""
    if config.max_model_len is None:
        return None
    return config.max_num_seqs * math.ceil(config.max_model_len / PAGE_TOKENS)
