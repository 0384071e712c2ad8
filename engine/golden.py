"""What a checkpoint says an engine must make of it: outputs.safetensors and golden.json."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load_file

from engine.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

OUTPUTS_FILE = "outputs.safetensors"
LENGTHS_FILE = "golden.json"
_REMEDY = "Give a checkpoint that carries the outputs to compare with."


@dataclass(frozen=True, kw_only=True)
class GoldenLengths:
    """How the outputs were made, from golden.json."""

    prompt_length: int  # tokens before drafting, replay and greedy continuation
    replay_keep: int  # rows of the prompt that replay runs through the decoder half
    decode_after_replay: int  # teacher-forced tokens after it
    greedy_tokens: int
    uneven_chunks: tuple[int, ...]  # chunk sizes that add up to all ids


@dataclass(frozen=True, kw_only=True)
class Golden:
    """Token ids and the tensors by key (`fp32.logits`, `qdq.dspark.ids`, ...)."""

    where: str
    ids: tuple[int, ...]
    tensors: dict[str, Tensor]
    lengths: GoldenLengths

    @classmethod
    def load(cls, model_dir: Path) -> Golden:
        """CheckpointError names a missing file, field or key, or a file that is damaged."""
        where = str(model_dir / OUTPUTS_FILE)
        try:
            tensors = load_file(model_dir / OUTPUTS_FILE)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"there is no {OUTPUTS_FILE}", where=str(model_dir), remedy=_REMEDY
            ) from error
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"cannot be read: {error}", where=where) from error
        lengths = _read_lengths(model_dir / LENGTHS_FILE)
        if "ids" not in tensors:
            raise CheckpointError("lacks the key ids", where=where, remedy=_REMEDY)
        ids = tuple(tensors["ids"].tolist())
        _check_lengths(lengths, len(ids), str(model_dir / LENGTHS_FILE))
        return cls(where=where, ids=ids, tensors=tensors, lengths=lengths)

    def expected(self, key: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor under a key, which must have the shape of what was computed."""
        if key not in self.tensors:
            raise CheckpointError(f"lacks the key {key}", where=self.where, remedy=_REMEDY)
        found = self.tensors[key]
        if tuple(found.shape) != shape:
            raise CheckpointError(
                f"{key} has the shape {list(found.shape)}; this config makes {list(shape)}",
                where=self.where,
                remedy=_REMEDY,
            )
        return found


def _read_lengths(path: Path) -> GoldenLengths:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        values = {field.name: document[field.name] for field in fields(GoldenLengths)}
        chunks = tuple(int(size) for size in values.pop("uneven_chunks"))
        numbers = {name: int(value) for name, value in values.items()}
    except FileNotFoundError as error:
        raise CheckpointError(
            f"there is no {path.name}", where=str(path.parent), remedy=_REMEDY
        ) from error
    except KeyError as error:
        raise CheckpointError(f"lacks the field {error.args[0]}", where=str(path)) from error
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"cannot be read: {error}", where=str(path)) from error
    return GoldenLengths(**numbers, uneven_chunks=chunks)


def _check_lengths(lengths: GoldenLengths, ids: int, where: str) -> None:
    rules = {
        f"uneven_chunks must be positive and add up to the {ids} ids": sum(lengths.uneven_chunks)
        == ids
        and min(lengths.uneven_chunks, default=0) > 0,
        "prompt_length and decode_after_replay must fit in the ids": lengths.prompt_length > 0
        and 0 <= lengths.decode_after_replay <= ids - lengths.prompt_length,
        "replay_keep must be between 1 and prompt_length": 0
        < lengths.replay_keep
        <= lengths.prompt_length,
        "greedy_tokens must be positive": lengths.greedy_tokens > 0,
    }
    for sentence, holds in rules.items():
        if not holds:
            raise CheckpointError(sentence, where=where)
