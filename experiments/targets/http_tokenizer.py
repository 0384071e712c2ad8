"""The tokenizer of a server under test, on the client's side."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import tokenizers

from experiments.errors import PlanError

FILE = "tokenizer.json"


class ClientTokenizer:
    """Text to ids and back, and where each token of a text ends. No special token is added."""

    def __init__(self, path: str) -> None:
        """PlanError where that is no tokenizer.json and no directory with one."""
        file = Path(path) / FILE if Path(path).is_dir() else Path(path)
        try:
            content = file.read_bytes()
            self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
        except Exception as error:  # `tokenizers` raises plain Exception for a bad file
            raise PlanError(
                f"{file} cannot be read as a tokenizer: {error}",
                where="http.tokenizer",
                remedy=f"Give the {FILE} of the model that the server serves.",
            ) from error
        self.hash = hashlib.sha256(content).hexdigest()[:32]
        self.vocab_size: int = self._tokenizer.get_vocab_size()
        self.special_ids: tuple[int, ...] = tuple(
            sorted(self._tokenizer.get_added_tokens_decoder())
        )

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, special tokens left out."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def name_of(self, token_id: int) -> str:
        """How the tokenizer writes a token, special ones included."""
        return self._tokenizer.id_to_token(token_id) or ""

    def ends(self, text: str) -> list[int]:
        """Where each token ends, in characters, ascending."""
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        return sorted(end for _, end in encoded.offsets)
