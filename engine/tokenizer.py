"""Text to token ids and back, and the token map that Engram hashes.

A checkpoint with a `tokenizer.json` is read through `tokenizers`; one without counts bytes:
token id = byte value, and ids from 256 on have no text.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Protocol

import tokenizers
from tokenizers import Regex, normalizers

from engine.errors import CheckpointError
from engine.models.configuration import load_config

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from engine.models.deepseek_v41.config import DeepseekV41Config

TOKENIZER_FILE = "tokenizer.json"
TOKEN_MAP_FILE = "engram_token_map.json"

_BYTES = 256
_REPLACEMENT = "\ufffd"
_BYTE_TOKEN = re.compile("<0x[0-9A-Fa-f]{2}>")  # as vocabularies with byte fallback spell them
_LONE_SPACE = "\ue000"  # a private-use character that stands in for " " while Strip runs


def _byte_of_character() -> dict[str, int]:
    """The characters by which byte-level vocabularies spell bytes: printable ones themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(_BYTES) if byte not in printable]
    shown = {chr(byte): byte for byte in printable}
    return shown | {chr(_BYTES + i): byte for i, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _byte_of_character()


class _Vocabulary(Protocol):
    """What a `Tokenizer` asks of either kind of vocabulary."""

    hash: str

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def text_of(self, token_id: int) -> str: ...

    def name_of(self, token_id: int) -> str: ...

    def bytes_of(self, token_id: int) -> bytes: ...


class Tokenizer:
    """The text side of one checkpoint. Stateless once loaded, so threads may share it.

    `hash` names the vocabulary: equal hashes give equal ids for equal text.
    """

    def __init__(self, vocabulary: _Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.hash = vocabulary.hash

    @classmethod
    def load(cls, model_dir: Path) -> Tokenizer:
        """Read `model_dir/tokenizer.json`, or count bytes where there is none.

        CheckpointError where that file cannot be read, or where the vocabulary is too small
        for bytes.
        """
        path = model_dir / TOKENIZER_FILE
        if path.exists():
            return cls(_FileVocabulary(path))
        size = load_config(model_dir).vocab_size
        if size < _BYTES:
            raise CheckpointError(
                f"there is no {TOKENIZER_FILE}, and {size} ids are too few for bytes.",
                where=str(model_dir),
                remedy=f"Add its {TOKENIZER_FILE}, or give prompts as token ids.",
            )
        return cls.of_bytes()

    @classmethod
    def of_bytes(cls) -> Tokenizer:
        """Return the tokenizer of a checkpoint without a file: one id per byte."""
        return cls(_ByteVocabulary())

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`; no special token is added."""
        return self._vocabulary.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids` without special tokens; invalid UTF-8 becomes U+FFFD."""
        return self._vocabulary.decode(ids)

    def bytes_of(self, token_id: int) -> bytes:
        """Return what a token adds to the text; nothing for a special or unknown one.

        Tokens may split a character, so bytes add up where texts do not.
        """
        return self._vocabulary.bytes_of(token_id)

    def engram_keys(self, vocab_size: int) -> list[str]:
        """Return the string by which Engram knows each id: equal strings are one n-gram token.

        The token's text under NFKC, NFD, without accents, in lower case, with white space
        collapsed and stripped (a lone space stays); the text itself where nothing is left; the
        token's name where the text is not whole UTF-8. Rule of the DeepSeek-V4.1 release.
        """
        normalise = _engram_normaliser().normalize_str
        keys = []
        for token_id in range(vocab_size):
            text = self._vocabulary.text_of(token_id)
            whole = _REPLACEMENT not in text
            keys.append(normalise(text) or text if whole else self._vocabulary.name_of(token_id))
        return keys


class _ByteVocabulary:
    hash = "bytes"

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", errors="replace"))

    def decode(self, ids: Sequence[int]) -> str:
        known = bytes(token_id for token_id in ids if token_id < _BYTES)
        return known.decode("utf-8", errors="replace")

    def text_of(self, token_id: int) -> str:
        return self.decode([token_id]) if token_id < _BYTES else self.name_of(token_id)

    def name_of(self, token_id: int) -> str:
        return f"<0x{token_id:02x}>" if token_id < _BYTES else f"<{token_id}>"

    def bytes_of(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < _BYTES else b""


class _FileVocabulary:
    def __init__(self, path: Path) -> None:
        try:
            content = path.read_bytes()
            self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
        except Exception as error:  # `tokenizers` raises plain Exception for a bad file
            raise CheckpointError(
                f"cannot be read as a tokenizer: {error}.",
                where=str(path),
                remedy="Fetch it again from the release.",
            ) from error
        self.hash = hashlib.sha256(content).hexdigest()[:32]
        self._added = self._tokenizer.get_added_tokens_decoder()
        self._is_byte_level = "ByteLevel" in str(json.loads(content).get("decoder"))

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def text_of(self, token_id: int) -> str:
        return self._tokenizer.decode([token_id], skip_special_tokens=False)

    def name_of(self, token_id: int) -> str:
        return self._tokenizer.id_to_token(token_id) or ""

    def bytes_of(self, token_id: int) -> bytes:
        if token_id in self._added:
            return b"" if self._added[token_id].special else self.name_of(token_id).encode()
        name = self.name_of(token_id)
        if self._is_byte_level:
            return bytes(_BYTE_OF_CHARACTER[character] for character in name)
        if _BYTE_TOKEN.fullmatch(name):
            return bytes([int(name[3:5], 16)])
        return name.replace("\u2581", " ").encode()


def engram_token_map(
    model_dir: Path, config: DeepseekV41Config, tokenizer: Tokenizer | None = None
) -> list[int]:
    """Return the compressed id of every token id: [vocab_size] ints, for Engram hashing.

    Read from `engram_token_map.json` where the checkpoint has one, else derived from its
    tokenizer (loaded here if not given): ids numbered by first appearance of their key.
    CheckpointError where the map does not fit `vocab_size` or `engram_compressed_vocab_size`.
    """
    path = model_dir / TOKEN_MAP_FILE
    if path.exists():
        return _read_token_map(path, config)
    numbers = number_keys((tokenizer or Tokenizer.load(model_dir)).engram_keys(config.vocab_size))
    size = max(numbers, default=-1) + 1
    if size != config.engram_compressed_vocab_size:
        raise CheckpointError(
            f"its tokenizer gives {size} Engram tokens, config.json says "
            f"{config.engram_compressed_vocab_size}.",
            where=str(model_dir),
            remedy=f"Use the tokenizer of the release, or add its {TOKEN_MAP_FILE}.",
        )
    return numbers


def number_keys(keys: Sequence[str]) -> list[int]:
    """Number strings by first appearance; equal strings share a number."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _read_token_map(path: Path, config: DeepseekV41Config) -> list[int]:
    try:
        numbers = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot be read: {error}.", where=str(path)) from error
    size = config.engram_compressed_vocab_size
    if not isinstance(numbers, list) or len(numbers) != config.vocab_size:
        raise CheckpointError(
            f"must be a list of vocab_size = {config.vocab_size} ids.", where=str(path)
        )
    for token_id, number in enumerate(numbers):
        if type(number) is not int or not 0 <= number < size:
            raise CheckpointError(
                f"maps token {token_id} to {number!r}, outside 0 to "
                f"engram_compressed_vocab_size - 1 = {size - 1}.",
                where=str(path),
            )
    return numbers


def _engram_normaliser() -> normalizers.Normalizer:
    return normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            normalizers.Replace(Regex(r"^ $"), _LONE_SPACE),
            normalizers.Strip(),
            normalizers.Replace(_LONE_SPACE, " "),
        ]
    )
