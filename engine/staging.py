"""Plain numbers of a step, on their way to the device in one copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor


def on_device(numbers: Sequence[object] | NDArray[np.int64], device: torch.device) -> Tensor:
    """int64 of a device from numbers of the host, queued like any work: nobody waits."""
    staged = torch.as_tensor(numbers, dtype=torch.int64)
    if device.type == "cpu":
        return staged
    return staged.pin_memory().to(device, non_blocking=True)


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
        kind = self._buffers[0].numpy().dtype  # else what is empty would be float64
        arrays = {name: np.asarray(numbers, kind) for name, numbers in values.items()}
        on_device = self.stage(arrays.values()).to(self._device, non_blocking=True)
        sizes = [array.size for array in arrays.values()]
        return dict(zip(arrays, on_device.split(sizes), strict=True))

    def stage(self, arrays: Iterable[NDArray[np.number]]) -> Tensor:
        """The numbers one after the other, in host memory from which a copy need not wait."""
        flats = [array.ravel() for array in arrays]
        flat = np.concatenate(flats) if flats else np.empty(0)
        self._turn = (self._turn + 1) % RING
        if self._buffers[self._turn].numel() < flat.size:
            self._buffers[self._turn] = self._allocate(2 * flat.size)
        staged = self._buffers[self._turn][: flat.size]
        staged.numpy()[:] = flat
        return staged

    def _allocate(self, numbers: int) -> Tensor:
        on_host = torch.empty(numbers, dtype=self._dtype)
        return on_host if self._device.type == "cpu" else on_host.pin_memory()
