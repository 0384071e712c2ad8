"""Record a step's kernels once and replay them, so that the host no longer limits the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

Inputs = dict[str, "Tensor"]
Measures = dict[str, "Tensor"]

_EAGER_STEPS = 3  # kernels are compiled and libraries set up before anything is recorded


class Recorded:
    """A step on a CUDA device: run as it is at first, then recorded and replayed.

    The step must do all its work on the device, from inputs of fixed shapes. What it returns
    is overwritten by the next call.
    """

    def __init__(self, body: Callable[[Inputs], Measures], stream: torch.cuda.Stream) -> None:  # noqa: TID251
        self._body = body
        self._stream = stream
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None  # noqa: TID251
        self._inputs: Inputs = {}
        self._measures: Measures = {}

    def __call__(self, inputs: Inputs) -> Measures:
        """Do one step."""
        self._calls += 1
        if self._calls <= _EAGER_STEPS:
            return self._beside(inputs)
        if self._graph is None:
            self._record(inputs)
        for name, tensor in inputs.items():
            self._inputs[name].copy_(tensor)
        self._graph.replay()
        return self._measures

    def _beside(self, inputs: Inputs) -> Measures:
        """Run on the stream that recording will use."""
        stream = self._stream
        stream.wait_stream(torch.cuda.current_stream())  # noqa: TID251
        with torch.cuda.stream(stream):  # noqa: TID251
            measures = self._body(inputs)
        torch.cuda.current_stream().wait_stream(stream)  # noqa: TID251
        return measures

    def _record(self, inputs: Inputs) -> None:
        self._inputs = {name: tensor.clone() for name, tensor in inputs.items()}
        self._graph = torch.cuda.CUDAGraph()  # noqa: TID251
        with torch.cuda.graph(self._graph, stream=self._stream):  # noqa: TID251
            self._measures = self._body(self._inputs)


def side_stream() -> torch.cuda.Stream:  # noqa: TID251
    """The stream on which steps run until they are recorded; one serves a whole run."""
    return torch.cuda.Stream()  # noqa: TID251
