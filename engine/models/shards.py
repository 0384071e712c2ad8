"""The safetensors files of a checkpoint directory, opened together and read tensor by tensor."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from engine.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

_REFETCH = "Fetch or make the checkpoint again."
_SIDE_FILES = ("config.json", INDEX, "tokenizer.json", "engram_token_map.json")
_WHOLE_BELOW_BYTES = 64 * 2**20
_SAMPLE_BYTES = 64 * 2**10
_SAMPLES = 64


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of an open file: what its header says, and how to read it."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # safetensors name
    path: Path
    _file: safe_open

    def read(self) -> torch.Tensor:
        """Return the data, possibly a view of the mapped file: copy before the file closes."""
        try:
            return self._file.get_tensor(self.name)
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(
                f"{self.name} cannot be read: {error}.", where=str(self.path), remedy=_REFETCH
            ) from error


@contextmanager
def read_shards(model_dir: Path) -> Iterator[dict[str, StoredTensor]]:
    """Open the shards of `model_dir` and yield their tensors by name; no data is read yet.

    CheckpointError where a file is absent, cut short or corrupt, or where the index and the
    shards disagree about which tensor lies where.
    """
    claims = _claims(model_dir)
    with ExitStack() as opened:
        stored: dict[str, StoredTensor] = {}
        for shard in _shard_names(model_dir, claims):
            tensors = _open(model_dir / shard, opened)
            if claims is not None:
                claimed = {name for name, where in claims.items() if where == shard}
                _agree(claimed, tensors.keys(), model_dir / shard)
            stored |= tensors
        yield stored


def shard_paths(model_dir: Path) -> list[Path]:
    """Return the safetensors files of `model_dir`, in the order of their names."""
    return [model_dir / shard for shard in _shard_names(model_dir, _claims(model_dir))]


def fingerprint(model_dir: Path) -> str:
    """Return 32 hex digits that name what a checkpoint directory holds, wherever it lies.

    A SHA-256 over config, index, tokenizer and token map, and of every shard its size, its
    header, and its data: all of it below 64 MiB, else 64 evenly spaced samples of 64 KiB.
    Cheap identity, not proof: a change between two samples of a large shard goes unseen.
    """
    digest = hashlib.sha256()
    for name in _SIDE_FILES:
        path = model_dir / name
        if path.is_file():
            digest.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    for path in shard_paths(model_dir):
        try:
            _hash_shard(digest, path)
        except OSError as error:
            raise _unreadable(path, error) from error
    return digest.hexdigest()[:32]


def _hash_shard(digest: hashlib._Hash, path: Path) -> None:
    size_bytes = path.stat().st_size
    digest.update(f"{path.name}\0{size_bytes}\0".encode())
    with path.open("rb") as file:
        if size_bytes < _WHOLE_BELOW_BYTES:
            digest.update(file.read())
            return
        header_bytes = int.from_bytes(file.read(8), "little")
        digest.update(file.read(min(header_bytes, size_bytes)))
        for sample in range(_SAMPLES):
            file.seek((size_bytes - _SAMPLE_BYTES) * sample // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))


def _claims(model_dir: Path) -> dict[str, str] | None:
    """Read which shard the index claims for each tensor; None where there is no index."""
    path = model_dir / INDEX
    if not path.exists():
        return None
    try:
        claims = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        names = {str(name): str(shard) for name, shard in claims.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            "is not a safetensors index with a weight_map.", where=str(path), remedy=_REFETCH
        ) from error
    for shard in set(names.values()):
        if "/" in shard or "\\" in shard or not shard.endswith(".safetensors"):
            raise CheckpointError(f"names {shard!r}, which is no shard name.", where=str(path))
    return names


def _shard_names(model_dir: Path, claims: dict[str, str] | None) -> list[str]:
    shards = [SINGLE] if claims is None else sorted(set(claims.values()))
    absent = [shard for shard in shards if not (model_dir / shard).is_file()]
    if absent:
        reason = "" if claims is None else f", which {INDEX} names"
        raise CheckpointError(
            f"there is no {', '.join(absent[:10])}{reason}.", where=str(model_dir), remedy=_REFETCH
        )
    return shards


def _open(path: Path, opened: ExitStack) -> dict[str, StoredTensor]:
    try:
        file = opened.enter_context(safe_open(path, framework="pt", device="cpu"))
        headers = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 not a dict
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from error
    return {
        name: StoredTensor(name, tuple(header.get_shape()), header.get_dtype(), path, file)
        for name, header in headers.items()
    }


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"cannot be read as safetensors, it is cut short or corrupt: {error}.",
        where=str(path),
        remedy=_REFETCH,
    )


def _agree(claimed: set[str], found: set[str], path: Path) -> None:
    wrong = sorted(claimed ^ found)
    if wrong:
        name = wrong[0]
        what = "lacks" if name in claimed else "holds"
        raise CheckpointError(
            f"{what} {name}, against {INDEX} ({len(wrong)} such tensors).",
            where=str(path),
            remedy=_REFETCH,
        )
