"""Splitting off the held-out set and taking out of it all that training text shares with it.

The rule: a held-out passage that has any 50 bytes in common with one training document is removed.
Windows of 50 bytes at stride 1 are compared by a 64-bit polynomial hash: equal windows have equal
hashes, so nothing shared survives; a chance collision only removes a little more.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from experiments.training.document import Document
from experiments.training.sources import Kind

WINDOW_BYTES = 50
_PRIME = 0x9E3779B97F4A7C15  # odd, so that multiplication is a bijection modulo 2^64
_FILTER_BITS = 27
_CHUNK_BYTES = 4_000_000
_SEPARATOR = b"\x00"  # in no document, so no window across two documents matches
_LEAST_BYTES = {Kind.ENGLISH: 300, Kind.CODE: 300, Kind.JSON: 60, Kind.CHAT: 60}
_LEAST_SHARE_KEPT = 0.4

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Removal:
    """What the 50-byte rule took out of the held-out documents of one kind."""

    documents_before: int
    documents_after: int
    bytes_before: int
    bytes_after: int
    passages_removed: int


def is_held_out(kind: Kind, origin: str, share: float) -> bool:
    """Whether a source file belongs to the held-out set: drawn from the hash of its name."""
    digest = hashlib.sha256(f"{kind}:{origin}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def source_unit(document: Document) -> str:
    """Name what a document was cut from, so that both splits never hold parts of one unit.

    A file of a package; of the large JSON files, the service, feature, schema or path; of a
    dictionary or book that is one file, the run of entries or paragraphs itself.
    """
    file, mark, entry = document.origin.partition("#")
    if document.kind is not Kind.JSON or not mark or document.package == "script":
        unit = document.origin
    elif file.endswith(".gz"):
        unit = file
    elif entry.startswith("/"):
        unit = file + mark + entry.rpartition("/")[0].split(".")[0]
    else:
        unit = file + mark + ".".join(entry.rpartition("/")[0].split(".")[:2])
    return f"{document.package}:{unit}"


def remove_shared(
    held_out: Sequence[Document], training: Sequence[Document]
) -> tuple[list[Document], dict[Kind, Removal]]:
    """Return `held_out` without the passages that share 50 bytes with `training`, and the counts.

    Joining what is left makes new windows, so the pass is repeated until it finds nothing. A
    document that loses most of its text is dropped whole.
    """
    removed = dict.fromkeys(Kind, 0)
    pairs = [(document, document.byte_count) for document in held_out]
    found = bool(pairs)
    while found and pairs:
        shared = _shared_hashes([document for document, _ in pairs], training)
        found = False
        kept: list[tuple[Document, int]] = []
        for document, original_bytes in pairs:
            text, taken_out = _without_shared(document, shared)
            found = found or taken_out > 0
            removed[document.kind] += taken_out
            least = max(_LEAST_BYTES[document.kind], _LEAST_SHARE_KEPT * original_bytes)
            if len(text.encode()) >= least:
                kept.append((replace(document, text=text), original_bytes))
        pairs = kept
    documents = [document for document, _ in pairs]
    return documents, _counts(held_out, documents, removed)


def passages(document: Document) -> list[str]:
    """Cut into paragraphs of English and code, exchanges of a chat, whole JSON documents."""
    if document.kind is Kind.JSON:
        return [document.text]
    if document.kind is Kind.CHAT:
        return re.split(r"(?=<｜User｜>)", document.text)
    return re.split(r"(?<=\n\n)(?=[^\n])", document.text)


def window_hashes(text: bytes) -> Hashes:
    """Hash every window of 50 bytes: [len(text) - 49] uint64, empty for a shorter text.

    The polynomial is built by doubling: h(2k)[i] = h(k)[i] * p^k + h(k)[i + k], modulo 2^64.
    """
    if len(text) < WINDOW_BYTES:
        return np.empty(0, np.uint64)
    doubled = {1: np.frombuffer(text, np.uint8).astype(np.uint64) + np.uint64(1)}
    for size in (1, 2, 4, 8, 16):
        half = doubled[size]
        doubled[2 * size] = half[:-size] * _power(size) + half[size:]
    count = len(text) - WINDOW_BYTES + 1
    high, middle, low = doubled[32][:count], doubled[16][32 : 32 + count], doubled[2][48:]
    return high * _power(18) + middle * _power(2) + low[:count]


def _power(exponent: int) -> np.uint64:
    return np.uint64(pow(_PRIME, exponent, 2**64))


def _shared_hashes(held_out: Iterable[Document], training: Iterable[Document]) -> Hashes:
    """Sorted hashes of the held-out windows that occur in a training document."""
    mine = np.unique(np.concatenate([window_hashes(doc.text.encode()) for doc in held_out]))
    bits = np.zeros(1 << _FILTER_BITS, np.bool_)
    bits[mine >> np.uint64(64 - _FILTER_BITS)] = True
    met = np.zeros(len(mine), np.bool_)
    for chunk in _chunks(training):
        theirs = window_hashes(chunk)
        theirs = theirs[bits[theirs >> np.uint64(64 - _FILTER_BITS)]]
        met[np.searchsorted(mine, theirs[_among(theirs, mine)])] = True
    return mine[met]


def _among(hashes: Hashes, ordered: Hashes) -> npt.NDArray[np.bool_]:
    """Which of `hashes` occur in `ordered` (sorted); np.isin would sort both at every call."""
    if not len(ordered):
        return np.zeros(len(hashes), np.bool_)
    place = np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)
    return ordered[place] == hashes


def _chunks(documents: Iterable[Document]) -> Iterator[bytes]:
    """The training text in large pieces, whole documents each, a separator between two."""
    pieces: list[bytes] = []
    size = 0
    for document in documents:
        pieces.append(document.text.encode())
        size += len(pieces[-1])
        if size >= _CHUNK_BYTES:
            yield _SEPARATOR.join(pieces)
            pieces, size = [], 0
    if pieces:
        yield _SEPARATOR.join(pieces)


def _without_shared(document: Document, shared: Hashes) -> tuple[str, int]:
    """The text without the passages that a shared window touches, and how many were taken out."""
    hashes = window_hashes(document.text.encode())
    starts = np.flatnonzero(_among(hashes, shared))
    kept: list[str] = []
    position = 0
    parts = passages(document)
    for passage in parts:
        end = position + len(passage.encode())
        first = np.searchsorted(starts, position - WINDOW_BYTES + 1)
        if first == len(starts) or starts[first] >= end:
            kept.append(passage)
        position = end
    return "".join(kept), len(parts) - len(kept)


def _counts(
    before: Sequence[Document], after: Sequence[Document], removed: dict[Kind, int]
) -> dict[Kind, Removal]:
    counts = {}
    for kind in Kind:
        old = [doc.byte_count for doc in before if doc.kind is kind]
        new = [doc.byte_count for doc in after if doc.kind is kind]
        counts[kind] = Removal(len(old), len(new), sum(old), sum(new), removed[kind])
    return counts
