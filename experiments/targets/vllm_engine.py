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
from experiments.targets.peer_engines import check_greedy, said

_REASONS = {"length": FinishReason.LENGTH, "abort": FinishReason.ABORT}


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

    def poll(self, timeout_s: float) -> Sequence[RequestOutput]:
        """One step; sleeps where there is nothing to do."""
        if not self._engine.has_unfinished_requests():
            time.sleep(timeout_s)
            return ()
        self._steps += 1
        return [_output(one) for one in self._engine.step()]

    def abort(self, request_id: RequestId) -> None:
        """Take it out of the next step."""
        self._engine.abort_request([request_id])

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
        reason = _REASONS.get(str(completion.finish_reason), FinishReason.STOP)
    return said(one.request_id, completion.token_ids, reason)
