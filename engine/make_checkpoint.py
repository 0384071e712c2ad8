"""Random checkpoints in the released form.

Their weights are noise scaled so that every part of the model works (routing spreads, streams
mix, logits differ); what they say means nothing, and a note beside them lets pages say so
(`engine.checkpoint_directory.is_random`).
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import zlib
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from safetensors.torch import save

from engine.checkpoint_directory import NOTE_FILE
from engine.errors import CapacityError, CheckpointError
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.contract import Parameter, Storage, parameters, tile
from engine.models.shards import INDEX, SINGLE
from engine.random_shapes import SMALL, TOY, Shape
from engine.tokenizer import TOKEN_MAP_FILE, Tokenizer, number_keys
from kernels.quantize.reference import quantise_fp8_blocks, quantise_mxfp4

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Kind = Literal["toy", "small"]

_SHAPES: dict[str, Shape] = {"toy": TOY, "small": SMALL}
_GENERATOR = "numpy PCG64 raw bits, SeedSequence([seed, crc32(name)]), uniform; version 1"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def make_checkpoint(kind: Kind, *, seed: int, directory: Path) -> Path:
    """Write a random, quantised, text-only checkpoint to `directory` and return it.

    "toy" is one file of two megabytes, "small" about 60 million parameters in shards. The
    same kind and seed give the same values on any machine (raw PCG64 bits, exact arithmetic), and
    the same bytes under the same version of safetensors, which orders the tensors in a file.
    Files are written beside `directory` and renamed, so a failure leaves nothing there.
    CheckpointError where `directory` holds something or cannot be written, or for an unknown
    kind or a negative seed; CapacityError where the disk is full.
    """
    if kind not in _SHAPES:
        raise CheckpointError(
            f"there is no kind {kind!r} of random checkpoint.",
            remedy=f"Use one of {', '.join(_SHAPES)}.",
        )
    if seed < 0:
        raise CheckpointError(f"the seed {seed} is negative.", remedy="Use 0 or more.")
    _refuse_occupied(directory)
    target = directory.resolve()
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
        _write(partial, _SHAPES[kind], seed)
        partial.replace(target)
    except OSError as error:
        raise _failure(error, target) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return directory


def _refuse_occupied(directory: Path) -> None:
    try:
        occupied = directory.exists() and (not directory.is_dir() or any(directory.iterdir()))
    except OSError as error:
        raise _failure(error, directory) from error
    if occupied:
        raise CheckpointError(
            "already holds something.",
            where=str(directory),
            remedy="Give a new or an empty directory.",
        )


def _failure(error: OSError, directory: Path) -> CheckpointError | CapacityError:
    if error.errno in _NO_ROOM:
        return CapacityError(
            f"the disk has no room for the checkpoint ({error.strerror}); nothing was left.",
            where=str(directory),
            remedy="Free some space, or give a directory on another disk.",
        )
    return CheckpointError(
        f"cannot be written: {error.strerror}.",
        where=str(directory),
        remedy="Give a directory that you may write.",
    )


def _write(partial: Path, shape: Shape, seed: int) -> None:
    config = DeepseekV41Config.from_document(shape.document, where="config.json")
    note = {"kind": "random", "seed": seed, "generator": _GENERATOR}
    _write_json(partial / "config.json", shape.document)
    _write_json(partial / NOTE_FILE, note)
    keys = Tokenizer.of_bytes().engram_keys(config.vocab_size)
    _write_json(partial / TOKEN_MAP_FILE, number_keys(keys))
    shards = list(_shards(config, shape.shard_parameters))
    weight_map: dict[str, str] = {}
    total_bytes = 0
    for number, names in enumerate(shards, start=1):
        single = len(shards) == 1
        file = SINGLE if single else f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = dict(
            stored
            for name, parameter in names.items()
            for stored in _stored(name, parameter, config, seed)
        )
        (partial / file).write_bytes(save(tensors, metadata={"format": "pt"}))
        weight_map |= dict.fromkeys(tensors, file)
        total_bytes += sum(tensor.nbytes for tensor in tensors.values())
    if len(shards) > 1:
        index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
        _write_json(partial / INDEX, index)


def _write_json(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _shards(config: DeepseekV41Config, shard_parameters: int) -> Iterator[dict[str, Parameter]]:
    """Split the parameters, in order, into runs of about `shard_parameters` values."""
    shard: dict[str, Parameter] = {}
    values = 0
    for name, parameter in parameters(config).items():
        shard[name] = parameter
        values += math.prod(parameter.shape)
        if values >= shard_parameters:
            yield shard
            shard, values = {}, 0
    if shard:
        yield shard


def _stored(
    name: str, parameter: Parameter, config: DeepseekV41Config, seed: int
) -> Iterator[tuple[str, torch.Tensor]]:
    weight = _random(name, parameter.shape, seed)
    scale_name = name.removesuffix(".weight") + ".scale"
    match parameter.storage:
        case Storage.MXFP4:
            weight, scale = quantise_mxfp4(weight)
            yield scale_name, scale
        case Storage.FP8_BLOCKS | Storage.FP8_TABLE:
            weight, scale = quantise_fp8_blocks(weight, tile(parameter, config))
            yield scale_name, scale
        case Storage.BF16:
            weight = weight.to(torch.bfloat16)
    yield name, weight


def _random(name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Draw float32 noise, uniform, of the mean and deviation that suit the tensor."""
    sequence = np.random.SeedSequence([seed, zlib.crc32(name.encode())])
    raw = np.random.PCG64(sequence).random_raw(math.prod(shape))
    unit = ((raw >> 11) * 2.0**-53 * 2.0 - 1.0) * math.sqrt(3.0)  # mean 0, deviation 1
    mean, deviation = _moments(name, shape)
    return torch.from_numpy((mean + deviation * unit).astype(np.float32)).reshape(shape)


def _moments(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    if name.endswith(("norm.weight", "q_weight", "k_weight")):
        return 1.0, 0.1
    if name.endswith(("hc_attn_scale", "hc_ffn_scale")):
        return 1.0, 0.2
    if name.endswith(("hc_attn_base", "hc_ffn_base")):
        return 0.0, 0.3
    if name.endswith("attn_sink"):
        return 0.0, 0.5
    if name.endswith("gate.bias"):
        return 0.0, 0.05
    gain = {"head.weight": 3.0}.get(name, 2.0 if name.endswith("ffn.gate.weight") else 1.0)
    return 0.0, gain / math.sqrt(shape[-1])
