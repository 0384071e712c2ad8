"""Reads a checkpoint directory: checks every header against the contract, then loads.

Legal ways to store a parameter, whatever its neighbours do:

- as released: fp8 blocks or an fp8 table with its `.scale`, mxfp4 (I8 or U8) with its `.scale`;
- plain: BF16, F16, F32 or F64 of the dequantised shape, and no `.scale`.

Parameters that the release keeps in BF16 or F32 are always plain. A config without
`weight_block_size` is unquantised: every parameter is plain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.errors import CheckpointError
from engine.models.deepseek_v41.contract import (
    Parameter,
    Storage,
    TensorSpec,
    input_group,
    is_packed,
    parameters,
    stored_tensors,
    tile,
    vision_parameters,
)
from engine.models.shards import StoredTensor, fingerprint, read_shards
from kernels.matmul.weights import Fp8Weight, Mxfp4Weight, Weight
from kernels.quantize.reference import dequantise_fp8_blocks, dequantise_mxfp4

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine.models.deepseek_v41.config import DeepseekV41Config

__all__ = ["check_headers", "fingerprint", "load_packed_weights", "load_weights"]

_PLAIN = ("BF16", "F16", "F32", "F64")
_NAMED_AT_MOST = 10
_ROWS_AT_ONCE = 8192


def load_weights(
    model_dir: Path,
    config: DeepseekV41Config,
    *,
    dtype: torch.dtype,
    device: torch.device | str,
) -> dict[str, torch.Tensor]:
    """Return every parameter of the text model, dequantised, keyed by its released name.

    Values are in `dtype`, those of the release's F32 parameters in at least float32. Tensors
    that only image input uses are checked and skipped. The result owns its memory; beside it,
    no more than a slice of one tensor is held. The headers are all checked before any data is
    read: one CheckpointError lists the missing, extra and misshapen tensors by name (ten at
    most, and their count), or names the file that is absent, cut short or corrupt.
    """
    with read_shards(model_dir) as stored:
        _check(stored, config, where=str(model_dir))
        return {
            name: _load(name, parameter, stored, config, dtype).to(device)
            for name, parameter in parameters(config).items()
        }


def load_packed_weights(
    model_dir: Path,
    config: DeepseekV41Config,
    *,
    dtype: torch.dtype,
    device: torch.device | str,
    rounds_inputs: bool,
) -> dict[str, Weight]:
    """As `load_weights`, but matrices stay packed where the checkpoint has them so.

    `rounds_inputs`: products with them round their inputs as the release does (not those of
    `wo_a`, which the release multiplies in bfloat16). Tables are dequantised. CheckpointError
    as there, and where an fp8 matrix holds a NaN, which no kernel looks for.
    """
    with read_shards(model_dir) as stored:
        _check(stored, config, where=str(model_dir))
        return {
            name: _packed(name, parameter, stored, config, rounds_inputs).to(device)
            if is_packed(parameter) and stored[name].dtype not in _PLAIN
            else _load(name, parameter, stored, config, dtype).to(device)
            for name, parameter in parameters(config).items()
        }


def check_headers(model_dir: Path, config: DeepseekV41Config) -> None:
    """Raise the CheckpointError that `load_weights` would, without reading any data."""
    with read_shards(model_dir) as stored:
        _check(stored, config, where=str(model_dir))


def _check(stored: dict[str, StoredTensor], config: DeepseekV41Config, *, where: str) -> None:
    table = parameters(config) | vision_parameters(config)
    complaints: list[str] = []
    known: set[str] = set()
    for name, parameter in table.items():
        legal = _legal(name, parameter, stored, config)
        known |= legal.keys()
        complaints += [
            complaint
            for tensor, spec in legal.items()
            if (complaint := _complaint(tensor, spec, stored.get(tensor)))
        ]
    complaints += [f"{name} is not part of this model" for name in sorted(stored.keys() - known)]
    if complaints:
        raise CheckpointError(
            _listed(complaints),
            where=where,
            remedy="The tensors must match config.json; fetch or convert the checkpoint again.",
        )


def _legal(
    name: str,
    parameter: Parameter,
    stored: dict[str, StoredTensor],
    config: DeepseekV41Config,
) -> dict[str, TensorSpec]:
    """Choose the form that this file's own tensor claims: plain, or the released one."""
    found = stored.get(name)
    if found is not None and found.dtype in _PLAIN:
        return {name: TensorSpec(parameter.shape, found.dtype)}
    legal = stored_tensors(name, parameter, config)
    if found is not None and found.dtype == "U8" and legal[name].dtype == "I8":
        legal[name] = TensorSpec(legal[name].shape, "U8")
    return legal


def _complaint(name: str, spec: TensorSpec, found: StoredTensor | None) -> str | None:
    if found is None:
        return f"{name} is missing"
    if found.shape != spec.shape:
        return f"{name} has shape {list(found.shape)}, not {list(spec.shape)}"
    if found.dtype != spec.dtype:
        return f"{name} is stored as {found.dtype}, not {spec.dtype}"
    return None


def _listed(complaints: list[str]) -> str:
    sentence = "; ".join(complaints[:_NAMED_AT_MOST])
    if len(complaints) > _NAMED_AT_MOST:
        sentence += f"; and {len(complaints) - _NAMED_AT_MOST} more ({len(complaints)} in all)"
    return sentence + "."


def _load(
    name: str,
    parameter: Parameter,
    stored: dict[str, StoredTensor],
    config: DeepseekV41Config,
    dtype: torch.dtype,
) -> torch.Tensor:
    if parameter.storage is Storage.F32:
        dtype = torch.promote_types(dtype, torch.float32)
    weight = stored[name].read()
    loaded = torch.empty(parameter.shape, dtype=dtype)
    if stored[name].dtype in _PLAIN:
        return loaded.copy_(weight)
    scale = stored[name.removesuffix(".weight") + ".scale"].read()
    if parameter.storage is Storage.MXFP4:
        for rows in _slices(parameter.shape[0], 1):
            loaded[rows] = dequantise_mxfp4(weight[rows], scale[rows])
        return loaded
    block = tile(parameter, config)
    for rows in _slices(parameter.shape[0], block[0]):
        tiles = slice(rows.start // block[0], -(-rows.stop // block[0]))
        loaded[rows] = dequantise_fp8_blocks(weight[rows], scale[tiles], block)
    return loaded


def _packed(
    name: str,
    parameter: Parameter,
    stored: dict[str, StoredTensor],
    config: DeepseekV41Config,
    rounds_inputs: bool,
) -> Weight:
    scale = stored[name.removesuffix(".weight") + ".scale"].read().view(torch.uint8).clone()
    group = input_group(name, parameter, config) if rounds_inputs else None
    if parameter.storage is Storage.MXFP4:
        packed = stored[name].read().view(torch.uint8).clone()
        return Mxfp4Weight(packed=packed, scales=scale, input_group=group)
    values = stored[name].read().clone()
    if (values.view(torch.uint8) & 0x7F == 0x7F).any():
        raise CheckpointError(
            f"{name} holds NaN.", where=str(stored[name].path), remedy="Fetch the checkpoint again."
        )
    return Fp8Weight(values=values, scales=scale, tile=tile(parameter, config), input_group=group)


def _slices(rows: int, tile_rows: int) -> Iterator[slice]:
    """Cut rows into runs of whole tiles, which bounds the float32 intermediate of a large table."""
    step = max(_ROWS_AT_ONCE // tile_rows, 1) * tile_rows
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
