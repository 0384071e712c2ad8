"""Golden outputs as clients get them: through scheduler, step builder and runner, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import EngineError
from engine.golden_outputs import Feeding
from engine.request import FinishReason, Request, RequestId, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.golden import Golden, GoldenLengths
    from engine.models.protocol import Model, ModelFacts
    from engine.request import RequestOutput, TokenLogprob
    from engine.resolution import ResolvedConfig

FEW_ROWS = 7  # a step: prompts come in many chunks, and drafts must be dealt
_BLOCK_TOKENS = 8

_GREEDY, _WHOLE, _REPLAY = (RequestId(name) for name in ("greedy", "whole", "replay"))


def feedings(facts: ModelFacts) -> tuple[Feeding, ...]:
    """How the engine is made to serve: with drafts only where there is a drafter."""
    plain = (Feeding.SERVED, Feeding.SERVED_CHUNKED)
    return (*plain, Feeding.DRAFTED, Feeding.DRAFTED_CHUNKED) if facts.draft_block else plain


def served_keys(
    model: Model, golden: Golden, feeding: Feeding, device: torch.device | str
) -> dict[str, Tensor]:
    """`greedy.ids`, and log-probabilities where the golden keys of the name hold logits.

    `logits` covers all ids, `replay.decode_logits` what is decoded after a truncated prompt (left
    out where golden.json keeps fewer rows than the engine allows). EngineError where the engine
    cannot serve a request.
    """
    config = _config(model.facts, golden, feeding, device)
    engine = Engine(config, source=_Loaded(model))
    asked = _requests(golden, model.facts)
    if config.replay_keep_tokens is None:
        del asked[_REPLAY]
    heard = _serve(engine, asked)
    greedy = [token_id for output in heard[_GREEDY] for token_id in output.token_ids]
    keys = {"greedy.ids": torch.tensor(greedy)}
    prompt = heard[_WHOLE][0].prompt_logprobs or ()
    keys["logits"] = _rows((*prompt[1:], *_output_logprobs(heard[_WHOLE])))
    if _REPLAY in heard:
        keys["replay.decode_logits"] = _rows(_output_logprobs(heard[_REPLAY])[1:])
    return keys


@dataclass(frozen=True)
class _Loaded:
    """A model source whose model is there already."""

    model: Model

    def facts(self, _config: EngineConfig) -> ModelFacts:
        return self.model.facts

    def load(self, _resolved: ResolvedConfig, _device: str) -> Model:
        return self.model


def _config(
    facts: ModelFacts, golden: Golden, feeding: Feeding, device: torch.device | str
) -> EngineConfig:
    is_chunked = feeding in (Feeding.SERVED_CHUNKED, Feeding.DRAFTED_CHUNKED)
    is_drafted = feeding in (Feeding.DRAFTED, Feeding.DRAFTED_CHUNKED)
    longest = len(golden.ids) + golden.lengths.greedy_tokens
    keep = golden.lengths.replay_keep
    rows = sum(len(r.prompt_token_ids) for r in _requests(golden, facts).values())
    return EngineConfig(
        model=golden.where,
        dtype="float32",
        cache_format="plain",
        accelerator=torch.device(device).type,
        draft_length=facts.draft_block if is_drafted else 0,
        replay_keep_tokens=keep if keep > facts.window + facts.draft_block else None,
        max_num_seqs=3,
        max_num_batched_tokens=FEW_ROWS if is_chunked else rows,
        block_tokens=_BLOCK_TOKENS,
        cache_tokens=3 * (longest + _BLOCK_TOKENS),
    )


def _requests(golden: Golden, facts: ModelFacts) -> dict[RequestId, Request]:
    lengths, whole = golden.lengths, {"prompt_logprobs": True}  # so that no row is truncated
    prompt = golden.ids[: lengths.prompt_length]
    forced = (*_decoded(golden.ids, lengths), 0)  # the last one's logits are those wanted
    common = {"temperature": 0.0, "ignore_eos": True}
    every = {"logprobs": facts.vocab_size}
    params = {
        _GREEDY: SamplingParams(max_tokens=lengths.greedy_tokens, **whole, **common),
        _WHOLE: SamplingParams(max_tokens=1, **whole, **every, **common),
        _REPLAY: SamplingParams(max_tokens=len(forced), golden_token_ids=forced, **every, **common),
    }
    return {
        name: Request(
            request_id=name,
            prompt_token_ids=golden.ids if name == _WHOLE else prompt,
            sampling=sampling,
        )
        for name, sampling in params.items()
    }


def _decoded(ids: tuple[int, ...], lengths: GoldenLengths) -> tuple[int, ...]:
    return ids[lengths.prompt_length :][: lengths.decode_after_replay]


def _serve(engine: Engine, asked: dict[RequestId, Request]) -> dict[RequestId, list[RequestOutput]]:
    heard: dict[RequestId, list[RequestOutput]] = {name: [] for name in asked}
    for request in asked.values():
        engine.add_request(request)
    while engine.has_unfinished():
        for output in engine.step():
            if output.finish_reason is FinishReason.ERROR:
                raise EngineError(f"{output.error}", where=f"golden request {output.request_id}")
            heard[output.request_id].append(output)
    return heard


def _output_logprobs(outputs: list[RequestOutput]) -> tuple[TokenLogprob, ...]:
    return tuple(logprob for output in outputs for logprob in output.logprobs)


def _rows(logprobs: Iterable[TokenLogprob | None]) -> Tensor:
    """Log-probabilities by token id: [rows, vocab]."""
    tops = [dict(logprob.top) for logprob in logprobs if logprob is not None]
    return torch.tensor([[top[token_id] for token_id in range(len(top))] for top in tops])
