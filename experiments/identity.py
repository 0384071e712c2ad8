"""Hashes, seeds and streams that are pure functions of a key."""

from __future__ import annotations

import hashlib
import json

import numpy as np


def digest(*parts: object) -> str:
    """First 16 hex digits of the sha256 of the canonical JSON of the parts."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def seed_of(*key: object) -> int:
    """A seed in 0..2^63-1 that is a pure function of the key."""
    return int(digest(*key), 16) >> 1


def generator(*key: object) -> np.random.Generator:
    """A PCG64 stream that is a pure function of the key."""
    return np.random.Generator(np.random.PCG64(seed_of(*key)))


def mixed(keys: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64, a bijection of 64-bit words: [n] uint64 in, [n] uint64 out."""
    words = keys + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
