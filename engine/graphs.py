"""Captured steps: recorded where a step of a shape is seen again, replayed from then on."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from engine.accelerator.interface import GraphRecorder, RecordedGraph
    from engine.decode_inputs import DecodeInputs, StepKey
    from engine.mixed_inputs import MixedInputs

_log = logging.getLogger(__name__)

_MIB = 2**20
MOST_SHAPES = 256
"""Shapes that are known at once: some tens serve one kind of load, and each graph holds hundreds
of launches in the host's memory, too, which no budget counts."""


@dataclass(slots=True)
class _Program:
    """One shape of step, from numbers that always lie in the same place."""

    numbers: Tensor
    graph: RecordedGraph | None = None
    is_refused: bool = False  # the device could not record it
    runs: int = 0  # operation by operation, since it has no graph
    patience: int = 1  # runs before it is recorded; twice as many each time it was pushed out


class StepGraphs:
    """Runs steps of one device, in their order; `run` is `DecodeStep.run` or `MixedStep.run`.

    The first step of a key runs as it is, which compiles what it needs. The second one is
    recorded and replayed, as are all after it. Graphs that go beyond the recorder's budget
    push out those that were used longest ago; what was pushed out is recorded again later each
    time, so that keys which do not fit together do not push each other out at every step.
    """

    def __init__(
        self,
        recorder: GraphRecorder,
        run: Callable[[Tensor, StepKey], tuple[Tensor, ...]],
        device: str,
    ) -> None:
        self.replayed = 0
        self._recorder = recorder
        self._run = run
        self._device = device
        self._programs: OrderedDict[StepKey, _Program] = OrderedDict()  # newest use last

    @property
    def held_bytes(self) -> int:
        """Memory of all graphs."""
        return sum(p.graph.held_bytes for p in self._programs.values() if p.graph is not None)

    @property
    def count(self) -> int:
        """Graphs there are."""
        return sum(p.graph is not None for p in self._programs.values())

    @torch.inference_mode()
    def run(self, inputs: DecodeInputs | MixedInputs) -> tuple[Tensor, ...]:
        """What the step returns; overwritten by the next step of its key."""
        key, program = inputs.key, self._programs.get(inputs.key)
        if program is None:
            if len(self._programs) == MOST_SHAPES:
                self._forget_oldest()
            program = _Program(torch.empty_like(inputs.numbers, device=self._device))
            self._programs[key] = program
        self._programs.move_to_end(key)
        program.numbers.copy_(inputs.numbers, non_blocking=True)
        is_due = program.runs >= program.patience and not program.is_refused
        if program.graph is None and is_due:
            self._record(key, program)
        if program.graph is None:
            results = self._run(program.numbers, key)
            program.runs += 1
            return results
        self.replayed += 1
        return program.graph.replay()

    def _forget_oldest(self) -> None:
        _, program = self._programs.popitem(last=False)
        if program.graph is not None:
            self._recorder.forget(program.graph)

    def _record(self, key: StepKey, program: _Program) -> None:
        try:
            program.graph = self._recorder.record(lambda: self._run(program.numbers, key))
        except RuntimeError:
            program.is_refused = True
            _log.exception("graph refused shape=%s rule=%s", key.shape, key.rule.name)
            return
        self._make_room(key)
        _log.info(
            "graph recorded sequences=%d rows=%d context=%d chunks=%d chunk_rows=%d rule=%s "
            "graphs=%d mib=%d",
            key.shape.sequences,
            key.shape.rows,
            key.shape.context,
            key.shape.chunks,
            key.shape.chunk_rows,
            key.rule.name,
            self.count,
            self.held_bytes // _MIB,
        )

    def _make_room(self, newest: StepKey) -> None:
        budget = self._recorder.budget_bytes()
        for key, program in list(self._programs.items()):
            if self.held_bytes <= budget or key == newest:
                return
            if program.graph is not None:
                self._recorder.forget(program.graph)
                program.graph, program.runs = None, 0
                program.patience *= 2
                _log.warning("graph dropped shape=%s budget_mib=%d", key.shape, budget // _MIB)
