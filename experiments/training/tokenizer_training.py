"""The tokenizer of `nano`: byte-level BPE learnt from the training split, digits one by one.

`python -m experiments.training.tokenizer_training --out FOLDER` reads FOLDER/corpus and writes
FOLDER/tokenizer.json. Equal corpora give equal files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.trainers import BpeTrainer

from engine.tokenizer import TOKENIZER_FILE, number_keys
from engine.tokenizer import Tokenizer as EngineTokenizer
from experiments.training import corpus
from experiments.training.chat_format import DSML, FIRST_TOKENS, LAST_TOKENS, THINK, THINK_END
from experiments.training.packages import CorpusError
from experiments.training.sources import Kind

VOCABULARY_SIZE = 4096
SAMPLE_BYTES = {
    Kind.ENGLISH: 12_000_000,
    Kind.CODE: 8_000_000,
    Kind.JSON: 3_000_000,
    Kind.CHAT: 3_000_000,
}
_TEXT_TOKENS = frozenset([THINK, THINK_END, DSML])
"""Added tokens that decoding keeps: parsers look for them in the text."""


def train(texts: Iterable[str], vocabulary_size: int = VOCABULARY_SIZE) -> Tokenizer:
    """Learn a tokenizer of exactly `vocabulary_size` entries.

    Ids: BOS 0, EOS 1, PAD 2; the bytes and merges; the chat, image and DSpark tokens last.
    Raises CorpusError if the text has too few pairs for that size.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocabulary_size - len(LAST_TOKENS),
        special_tokens=[_added(token) for token in FIRST_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocabulary_size - len(LAST_TOKENS):
        raise CorpusError(
            f"The text gives only {tokenizer.get_vocab_size() + len(LAST_TOKENS)} entries, "
            f"{vocabulary_size} were asked for. Ask for fewer, or give more text."
        )
    tokenizer.add_tokens([_added(token) for token in LAST_TOKENS])
    return tokenizer


def compressed_size(tokenizer_dir: Path, vocabulary_size: int) -> int:
    """How many different strings Engram tells apart: `engram_compressed_vocab_size`."""
    keys = EngineTokenizer.load(tokenizer_dir).engram_keys(vocabulary_size)
    return max(number_keys(keys)) + 1


def sample(corpus_dir: Path) -> Iterator[str]:
    """Yield training text of every kind up to its share, chats without their added tokens."""
    added = re.compile("|".join(re.escape(token) for token in (*FIRST_TOKENS, *LAST_TOKENS)))
    for kind in Kind:
        left = SAMPLE_BYTES[kind]
        for document in corpus.read(corpus_dir, "training", kind):
            if left <= 0:
                break
            left -= document.byte_count
            yield from (part for part in added.split(document.text) if part)


def _added(token: str) -> AddedToken:
    return AddedToken(token, special=token not in _TEXT_TOKENS, normalized=False)


def _main(
    out: Annotated[Path, typer.Option(help="Folder of the corpus.")] = Path(".train"),
    size: Annotated[int, typer.Option(help="Entries of the vocabulary.")] = VOCABULARY_SIZE,
) -> None:
    tokenizer = train(sample(out / "corpus"), size)
    tokenizer.save(str(out / TOKENIZER_FILE))
    console = Console()
    console.print(f"vocabulary {tokenizer.get_vocab_size()}, Engram {compressed_size(out, size)}")
    for kind in Kind:
        texts = [document.text for document in corpus.read(out / "corpus", "heldout", kind)]
        tokens = sum(len(encoding.ids) for encoding in tokenizer.encode_batch(texts))
        text_bytes = sum(len(text.encode()) for text in texts)
        console.print(f"{kind}: {text_bytes / tokens:.2f} bytes/token on held-out text")


if __name__ == "__main__":
    typer.run(_main)
