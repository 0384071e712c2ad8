"""`generate` of transformers on static batches: all that waits, when the batch before has ended.

Its tokens are seen step by step: a streamer is told of every step of the whole batch.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.request import FinishReason, Request, RequestId, RequestOutput
from experiments.targets.peer_configs import TransformersConfig
from experiments.targets.peer_engines import check_greedy, said
from experiments.targets.transformers_model import eos_ids, load_model

if TYPE_CHECKING:
    import torch


@dataclass
class _Row:
    """One request of the batch that runs."""

    request: Request
    made: int = 0
    ended: bool = False


class StaticBatches:
    """A `PeerEngine`. The batch runs in a thread, so that its tokens are delivered as they come."""

    def __init__(self, config: TransformersConfig) -> None:
        self._model = load_model(config, config.attention)
        self._eos = eos_ids(self._model)
        self._model.generation_config.eos_token_id = None  # rows end by what each was asked
        self._most_rows = config.max_num_seqs
        self._waiting: deque[Request] = deque()
        self._rows: list[_Row] = []
        self._outputs: queue.SimpleQueue[RequestOutput | BaseException] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._batches = self._steps = 0

    def submit(self, request: Request) -> None:
        """It joins the next batch."""
        check_greedy(request)
        self._waiting.append(request)

    def poll(self, timeout_s: float) -> Sequence[RequestOutput]:
        """What came; begins a batch where none runs."""
        if self._waiting and (self._thread is None or not self._thread.is_alive()):
            self._begin()
        found: list[RequestOutput] = []
        try:
            found.append(self._taken(self._outputs.get(timeout=timeout_s)))
            while True:
                found.append(self._taken(self._outputs.get_nowait()))
        except queue.Empty:
            return found

    def abort(self, request_id: RequestId) -> None:
        """Its row goes on in vain until the others have ended."""
        for row in self._rows:
            if row.request.request_id == request_id and not row.ended:
                row.ended = True
                self._outputs.put(said(request_id, (), FinishReason.ABORT))
        left = [one for one in self._waiting if one.request_id != request_id]
        if len(left) < len(self._waiting):
            self._waiting = deque(left)
            self._outputs.put(said(request_id, (), FinishReason.ABORT))

    def stats(self) -> dict[str, float]:
        """Batches begun and steps made."""
        return {"batches": float(self._batches), "steps": float(self._steps)}

    def close(self) -> None:
        """End the batch in flight at its next step."""
        for row in self._rows:
            row.ended = True
        if self._thread is not None:
            self._thread.join()
        del self._model

    def heed(self, tokens: Sequence[int]) -> None:
        """One step made these tokens, one a row."""
        self._steps += 1
        for row, token in zip(self._rows, tokens, strict=True):
            if row.ended:
                continue
            row.made += 1
            sampling = row.request.sampling
            stopped = token in self._eos and not sampling.ignore_eos
            reason = FinishReason.STOP if stopped else None
            if reason is None and row.made == sampling.max_tokens:
                reason = FinishReason.LENGTH
            row.ended = reason is not None
            self._outputs.put(said(row.request.request_id, (token,), reason))

    def _begin(self) -> None:
        count = min(self._most_rows, len(self._waiting))
        self._rows = [_Row(self._waiting.popleft()) for _ in range(count)]
        self._batches += 1
        self._thread = threading.Thread(target=self._generate, daemon=True)
        self._thread.start()

    def _generate(self) -> None:
        from experiments.targets.transformers_model import Steps

        try:
            ids, mask = self._padded()
            self._model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=max(row.request.sampling.max_tokens for row in self._rows),
                do_sample=False,
                streamer=Steps(self.heed),
                stopping_criteria=[self._over],
                pad_token_id=0,
            )
        except BaseException as error:  # noqa: BLE001 - raised by the next poll
            self._outputs.put(error)

    def _over(self, ids: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        """[rows] bool: the batch ends when all are true."""
        import torch

        ended = all(row.ended for row in self._rows)
        return torch.full((ids.shape[0],), ended, dtype=torch.bool, device=ids.device)

    def _padded(self) -> tuple[torch.Tensor, torch.Tensor]:
        """[rows, longest] ids and mask, padded on the left."""
        import torch

        prompts = [list(row.request.prompt_token_ids) for row in self._rows]
        longest = max(map(len, prompts))
        ids = [[0] * (longest - len(prompt)) + prompt for prompt in prompts]
        mask = [[0] * (longest - len(p)) + [1] * len(p) for p in prompts]
        device = self._model.device
        return torch.tensor(ids, device=device), torch.tensor(mask, device=device)

    def _taken(self, came: RequestOutput | BaseException) -> RequestOutput:
        if isinstance(came, BaseException):
            raise came
        return came
