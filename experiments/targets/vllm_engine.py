"""vLLM's engine without its server: requests are added, and every poll is one step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]
from vllm.sampling_params import (  # pyright: ignore[reportMissingImports]
    RequestOutputKind,
)

from engine.request import FinishReason, Request, RequestId, RequestOutput
from experiments.targets.peer_configs import VllmConfig
from experiments.targets.peer_engines import check_greedy, failed, said

_REASONS = {"length": FinishReason.LENGTH, "abort": FinishReason.ABORT}
_FAILED = "error"  # as vLLM calls the end of a request that it could not go on with


class VllmEngine:
    """A `PeerEngine` on `LLM(...).llm_engine`. Needs the variables of `VllmConfig.environment`."""

    def __init__(self, config: VllmConfig) -> None:
        options: dict[str, Any] = {
            "max_model_len": config.max_model_len,
            "max_num_batched_tokens": config.max_num_batched_tokens,
        }
        if config.accelerator == "cuda":
            options["gpu_memory_utilization"] = config.device_memory_share
        self._llm: Any = LLM(
            config.model,
            dtype=config.dtype,
            load_format=config.load_format,
            max_num_seqs=config.max_num_seqs,
            enforce_eager=config.enforce_eager,
            enable_prefix_caching=False,
            skip_tokenizer_init=True,
            disable_log_stats=True,
            seed=0,
            **{name: value for name, value in options.items() if value is not None},
        )
        self._engine: Any = self._llm.llm_engine
        self._steps = 0
        self._live: set[RequestId] = set()
        self._given_up: list[RequestOutput] = []

    def submit(self, request: Request) -> None:
        """It joins the next step that has room."""
        check_greedy(request)
        sampling = request.sampling
        params = SamplingParams(
            temperature=0.0,
            max_tokens=sampling.max_tokens,
            ignore_eos=sampling.ignore_eos,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        prompt = {"prompt_token_ids": list(request.prompt_token_ids)}
        self._engine.add_request(request.request_id, prompt, params)
        self._live.add(request.request_id)

    def poll(self, timeout_s: float) -> Sequence[RequestOutput]:
        """One step; sleeps where there is nothing to do."""
        if self._given_up:
            given_up, self._given_up = self._given_up, []
            return given_up
        if not self._engine.has_unfinished_requests():
            time.sleep(timeout_s)
            return ()
        self._steps += 1
        outputs = [_output(one) for one in self._engine.step()]
        self._live -= {one.request_id for one in outputs if one.finished}
        return outputs

    def abort(self, request_id: RequestId) -> None:
        """Take it out of the next step. vLLM says no more of it, so that its end is told here."""
        if request_id in self._live:
            self._live.discard(request_id)
            self._engine.abort_request([request_id])
            self._given_up.append(said(request_id, (), FinishReason.ABORT))

    def stats(self) -> dict[str, float]:
        """Steps made."""
        return {"steps": float(self._steps)}

    def close(self) -> None:
        """Shut the engine down, where this version can."""
        shutdown = getattr(getattr(self._engine, "engine_core", None), "shutdown", None)
        if shutdown is not None:
            shutdown()


def _output(one: Any) -> RequestOutput:  # noqa: ANN401 - a class of a package that may be absent
    [completion] = one.outputs
    reason = None
    if one.finished:
        if str(completion.finish_reason) == _FAILED:
            return failed(one.request_id, "vLLM ended it with an error, which its log may tell")
        reason = _REASONS.get(str(completion.finish_reason), FinishReason.STOP)
    return said(one.request_id, completion.token_ids, reason)
