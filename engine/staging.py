"""Plain numbers of a step, on their way to the device in one copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

RING = 2
"""Steps whose numbers may be on their way at once: one in flight, and one being launched."""


class StagingRing:
    """Host buffers of one kind of number that steps take turns with.

    The tensors of an upload are the step's: they are overwritten by the second upload after it,
    so no more than RING steps may be in flight. On a CPU they are views of the buffer itself.
    """

    def __init__(self, device: str, dtype: torch.dtype, *, numbers: int = 4096) -> None:
        self._device = torch.device(device)
        self._dtype = dtype
        self._buffers = [self._allocate(numbers) for _ in range(RING)]
        self._turn = 0

    def upload(
        self, values: Mapping[str, Sequence[float] | NDArray[np.int64]]
    ) -> dict[str, Tensor]:
        """One flat tensor a name, all in one copy, in their order; names without values too."""
        arrays = {name: np.asarray(numbers) for name, numbers in values.items()}
        total = sum(array.size for array in arrays.values())
        self._turn = (self._turn + 1) % RING
        if self._buffers[self._turn].numel() < total:
            self._buffers[self._turn] = self._allocate(2 * total)
        staged = self._buffers[self._turn][:total]
        flat = staged.numpy()
        ends = np.cumsum([array.size for array in arrays.values()])
        for array, end in zip(arrays.values(), ends, strict=True):
            flat[end - array.size : end] = array.ravel()
        on_device = staged.to(self._device, non_blocking=True)
        starts = (end - array.size for array, end in zip(arrays.values(), ends, strict=True))
        return {
            name: on_device[start:end]
            for name, start, end in zip(arrays, starts, ends, strict=True)
        }

    def _allocate(self, numbers: int) -> Tensor:
        on_host = torch.empty(numbers, dtype=self._dtype)
        return on_host if self._device.type == "cpu" else on_host.pin_memory()
