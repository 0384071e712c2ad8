"""What the checkpoint must beat on held-out text: an order-5 byte model and xz -9.

`python -m experiments.training.baselines --out FOLDER` reads FOLDER/corpus and writes
FOLDER/baselines.json.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.table import Table

from experiments.training import corpus
from experiments.training.sources import Kind

ORDER = 5
_START = b"\x00" * ORDER
"""The context of a text's first byte; no text holds NUL, so no context reaches another text."""

Keys = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """Counts of one order k, sorted: n-grams of k + 1 bytes, and their contexts of k bytes."""

    grams: Keys
    gram_counts: Counts
    contexts: Keys
    totals: Counts  # occurrences of the context
    distinct: Counts  # different bytes seen after it


@dataclass(frozen=True)
class BitsPerByte:
    """Results for one text. `text_bytes` weighs them."""

    text_bytes: int
    witten_bell: float
    xz: float


class WittenBell:
    """A byte model of order 5 that interpolates every order with the one below it.

    P_k(b | c) = (n(c b) + t(c) P_{k-1}(b | c')) / (n(c) + t(c)), where t counts the different
    bytes seen after the context c and c' is c without its first byte; P_{-1} = 1/256; an unseen
    context passes the lower order on. Witten and Bell 1991, method C.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        grams = _grams(texts)
        grams.sort()
        first = _firsts(grams)
        counts = np.diff(np.append(first, len(grams)))
        grams = grams[first]
        self.levels: list[Level] = []
        for order in range(ORDER, -1, -1):
            grams, counts = _shortened(grams, counts, order + 1)
            self.levels.append(_level(grams, counts))
        self.levels.reverse()

    def bits(self, texts: Sequence[bytes]) -> npt.NDArray[np.float64]:
        """Bits of every byte of `texts`, in order: [bytes]."""
        grams = _grams(texts)
        probability = np.full(len(grams), 1 / 256)
        for order, level in enumerate(self.levels):
            keys = grams & _mask(order + 1)
            context, seen = _find(level.contexts, keys >> np.uint64(8))
            gram, met = _find(level.grams, keys)
            count = np.where(met, level.gram_counts[gram], 0)
            total, distinct = level.totals[context], level.distinct[context]
            mixed = (count + distinct * probability) / (total + distinct)
            probability = np.where(seen, mixed, probability)
        return -np.log2(probability)


def measure(out_dir: Path) -> dict[str, BitsPerByte]:
    """Both baselines on the held-out text of every kind and, as "all", over all of it.

    One order-5 model is trained on all kinds together. For "all", xz packs every kind apart, which
    is byte-weighted over the kinds.
    """
    folder = out_dir / "corpus"
    training = [
        document.text.encode()
        for kind in Kind
        for document in corpus.read(folder, "training", kind)
    ]
    model = WittenBell(training)
    results: dict[str, BitsPerByte] = {}
    for kind in Kind:
        texts = [document.text.encode() for document in corpus.read(folder, "heldout", kind)]
        results[kind] = _compare(model, texts)
    results["all"] = weighted(results.values())
    return results


def weighted(results: Iterable[BitsPerByte]) -> BitsPerByte:
    """The byte-weighted mean of some results."""
    rows = list(results)
    size = sum(row.text_bytes for row in rows)
    bell = sum(row.witten_bell * row.text_bytes for row in rows) / size
    return BitsPerByte(size, bell, sum(row.xz * row.text_bytes for row in rows) / size)


def xz_bits_per_byte(text: bytes) -> float:
    """Bits per byte of `xz -9`, the container included."""
    return 8 * len(lzma.compress(text, preset=9)) / len(text)


def _compare(model: WittenBell, texts: Sequence[bytes]) -> BitsPerByte:
    joined = b"".join(texts)
    return BitsPerByte(len(joined), float(model.bits(texts).mean()), xz_bits_per_byte(joined))


def _grams(texts: Sequence[bytes]) -> Keys:
    """The 6 bytes that end at every byte of the texts, the oldest most significant: [bytes]."""
    stream = np.frombuffer(_START + _START.join(texts), np.uint8)
    count = len(stream) - ORDER
    grams = np.zeros(count, np.uint64)
    for offset in range(ORDER + 1):
        grams <<= np.uint64(8)
        grams |= stream[offset : offset + count]
    return grams[stream[ORDER:] != 0]


def _mask(byte_count: int) -> np.uint64:
    return np.uint64((1 << (8 * byte_count)) - 1)


def _firsts(ordered: Keys) -> npt.NDArray[np.int64]:
    """Where each different value of a sorted array begins."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))


def _shortened(grams: Keys, counts: Counts, byte_count: int) -> tuple[Keys, Counts]:
    """The counts of the last `byte_count` bytes of the n-grams, sorted."""
    short = grams & _mask(byte_count)
    order = np.argsort(short)
    short, counts = short[order], counts[order]
    first = _firsts(short)
    return short[first], np.add.reduceat(counts, first)


def _level(grams: Keys, counts: Counts) -> Level:
    contexts = grams >> np.uint64(8)
    first = _firsts(contexts)
    distinct = np.diff(np.append(first, len(grams)))
    return Level(grams, counts, contexts[first], np.add.reduceat(counts, first), distinct)


def _find(ordered: Keys, keys: Keys) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The place of each key in a sorted array, and whether it is there."""
    place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    return place, ordered[place] == keys


def _main(
    out: Annotated[Path, typer.Option(help="Folder of the corpus.")] = Path(".train"),
) -> None:
    results = measure(out)
    rows = {kind: asdict(result) for kind, result in results.items()}
    (out / "baselines.json").write_text(json.dumps(rows, indent=1) + "\n")
    table = Table("text", "bytes", "order-5 Witten-Bell", "xz -9", title="bits per byte, held-out")
    for kind, result in results.items():
        table.add_row(kind, str(result.text_bytes), f"{result.witten_bell:.4f}", f"{result.xz:.4f}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(_main)
