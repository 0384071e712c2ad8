"""Random weights made where they are used: a model of any size to measure, not to listen to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.models.deepseek_v41.contract import (
    Parameter,
    Storage,
    input_group,
    is_packed,
    parameters,
    tile,
)
from kernels.matmul.weights import Fp8Weight, Mxfp4Weight, Weight

if TYPE_CHECKING:
    from engine.models.deepseek_v41.config import DeepseekV41Config

_E4M3_RMS = 100.0  # of finite bytes drawn alike, about
_E2M1_RMS = 3.0
_LEAST_SPREAD = 2  # scale bytes drawn: this many powers of two


def dummy_weights(
    config: DeepseekV41Config,
    *,
    dtype: torch.dtype,
    device: torch.device | str,
    seed: int,
    rounds_inputs: bool = True,
) -> Mapping[str, Weight]:
    """What `load_packed_weights` gives for a checkpoint of this config, with random contents.

    Each weight is drawn on the device when it is asked for, and not kept; the same seed, name
    and device give the same values. Packed matrices are random bytes with scales that leave a
    product about as large as its input. Tables are as large as the config says.
    """
    return _DummyWeights(config, dtype, torch.device(device), seed, rounds_inputs)


class _DummyWeights(Mapping[str, Weight]):
    def __init__(
        self,
        config: DeepseekV41Config,
        dtype: torch.dtype,
        device: torch.device,
        seed: int,
        rounds_inputs: bool,
    ) -> None:
        self._config = config
        self._dtype, self._device = dtype, device
        self._rounds_inputs = rounds_inputs
        self._table = parameters(config)
        self._seeds = {name: seed * len(self._table) + i for i, name in enumerate(self._table)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, name: str) -> Weight:
        parameter = self._table[name]
        source = torch.Generator(self._device).manual_seed(self._seeds[name])
        if is_packed(parameter):
            return self._packed(name, parameter, source)
        return self._plain(name, parameter, source)

    def _packed(self, name: str, parameter: Parameter, source: torch.Generator) -> Weight:
        rows, columns = parameter.shape
        group = input_group(name, parameter, self._config) if self._rounds_inputs else None
        if parameter.storage is Storage.MXFP4:
            return Mxfp4Weight(
                packed=self._bytes((rows, columns // 2), 0, 256, source),
                scales=self._scales((rows, columns // 32), columns, _E2M1_RMS, source),
                input_group=group,
            )
        high, wide = tile(parameter, self._config)
        values = self._bytes((rows, columns), 0, 256, source)
        values[(values & 0x7F) == 0x7F] = 0  # the two NaN
        return Fp8Weight(
            values=values.view(torch.float8_e4m3fn),
            scales=self._scales(
                (-(-rows // high), -(-columns // wide)), columns, _E4M3_RMS, source
            ),
            tile=(high, wide),
            input_group=group,
        )

    def _scales(
        self, shape: tuple[int, ...], inputs: int, rms: float, source: torch.Generator
    ) -> Tensor:
        """Powers of two about 1 / (rms * sqrt(inputs))."""
        middle = 127 - round(torch.tensor(rms * inputs**0.5).log2().item())
        return self._bytes(shape, middle - 1, middle - 1 + _LEAST_SPREAD, source)

    def _bytes(
        self, shape: tuple[int, ...], low: int, high: int, source: torch.Generator
    ) -> Tensor:
        return torch.randint(
            low, high, shape, dtype=torch.uint8, device=self._device, generator=source
        )

    def _plain(self, name: str, parameter: Parameter, source: torch.Generator) -> Tensor:
        dtype = self._dtype
        if parameter.storage is Storage.F32:
            dtype = torch.promote_types(dtype, torch.float32)
        drawn = torch.randn(parameter.shape, dtype=dtype, device=self._device, generator=source)
        if name.endswith(("norm.weight", "q_weight", "k_weight")):
            return drawn.mul_(0.1).add_(1)
        if parameter.storage is Storage.FP8_TABLE or len(parameter.shape) == 1:
            return drawn
        return drawn.mul_(parameter.shape[-1] ** -0.5)
