"""n-gram memory: hashed table rows and the gate that admits them: the definition.

The hash of the n-gram ending at a position multiplies each token id by an odd constant, takes
the exclusive or, and reduces it by a prime of its own for every (n, head).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.precision import at_least_float32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

_SEED_STEP = 10007


@dataclass(frozen=True, kw_only=True)
class HashConstants:
    """Constants of one layer; primes and offsets [ngram - 1, heads], int64."""

    multipliers: Tensor  # [ngram] odd
    primes: Tensor
    offsets: Tensor  # first table row of each column

    @property
    def table_rows(self) -> int:
        """How many rows the table of the layer has: the sum of its primes."""
        return int(self.primes.sum())

    def to(self, device: torch.device) -> HashConstants:
        """The same constants on a device."""
        return HashConstants(
            multipliers=self.multipliers.to(device),
            primes=self.primes.to(device),
            offsets=self.offsets.to(device),
        )


def hash_constants(
    layer_ids: tuple[int, ...], *, vocab_size: int, token_ids: int, ngram: int, heads: int
) -> tuple[HashConstants, ...]:
    """Constants of every layer that has a table.

    One increasing walk over the primes from `vocab_size` on deals them out to layers, n and
    heads in turn. Multipliers come from numpy's default generator seeded by the layer id, and
    are small enough that a product with an id below `token_ids` fits in int64.
    """
    walk = _primes_from(vocab_size)
    found = []
    for layer in layer_ids:
        dealt = [next(walk) for _ in range((ngram - 1) * heads)]
        primes = torch.tensor(dealt, dtype=torch.int64)
        half = (np.iinfo(np.int64).max // token_ids) // 2
        odd = 2 * np.random.default_rng(_SEED_STEP * layer).integers(0, half, ngram) + 1
        found.append(
            HashConstants(
                multipliers=torch.from_numpy(odd.astype(np.int64)),
                primes=primes.view(ngram - 1, heads),
                offsets=(primes.cumsum(0) - primes).view(ngram - 1, heads),
            )
        )
    return tuple(found)


def _primes_from(start: int) -> Iterator[int]:
    number = start
    while True:
        if number > 1 and all(number % d for d in range(2, int(number**0.5) + 1)):
            yield number
        number += 1


def table_rows(ids: Tensor, constants: HashConstants) -> Tensor:
    """Table rows of each position, all (n, head) columns in order: [rows, (ngram - 1) * heads].

    ids [rows, ngram]: compressed token ids at p, p-1, ..., the pad id before the start.
    """
    products = ids * constants.multipliers
    running = products[:, 0]
    hashes = []
    for back in range(1, ids.shape[1]):
        running = running ^ products[:, back]
        hashes.append(running)
    spread = torch.stack(hashes, 1).unsqueeze(-1)  # [rows, ngram - 1, 1]
    return (spread % constants.primes + constants.offsets).flatten(1)


def look_up(ids: Tensor, constants: HashConstants, table: Tensor) -> Tensor:
    """The table rows of each position side by side: [rows, columns * width of the table]."""
    return table[table_rows(ids, constants)].flatten(1)


def gated_add(streams: Tensor, kv: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Add the shared value to each stream, gated by how well its key fits the stream.

    streams [rows, n, width]; kv [rows, (n + 1) * width]: a key per stream, then the value;
    weight [n, width]: product of the query and key norms' weights. With
    x = normed(stream) . normed(key) / sqrt(width) the gate is sigmoid(sign(x) sqrt(|x|)).
    """
    n, width = streams.shape[1:]
    wide = at_least_float32(streams.dtype)
    stream, memory = streams.to(wide), kv.to(wide).unflatten(-1, (n + 1, width))
    key, value = memory[:, :n], memory[:, n:]
    norm = (stream.square().mean(-1) + eps).rsqrt() * (key.square().mean(-1) + eps).rsqrt()
    fit = (stream * weight * key).sum(-1) * norm * width**-0.5
    gate = (fit.sign() * fit.abs().clamp(min=1e-6).sqrt()).sigmoid()
    return torch.addcmul(stream, gate.unsqueeze(-1), value).to(streams.dtype)
