"""The corpus as tokens, in one file that travels to the machine that trains.

`python -m experiments.training.packing --out FOLDER` writes FOLDER/pack/ and FOLDER/nano.tar.xz;
`unpack` restores pack/ from that archive, `load` reads it.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from tokenizers import Tokenizer

from engine.tokenizer import TOKENIZER_FILE
from experiments.training import corpus, tokenizer_training
from experiments.training.chat_format import BOS, DSPARK_NOISE, EOS, FIRST_TOKENS, LAST_TOKENS
from experiments.training.document import Document
from experiments.training.sources import Kind

ARCHIVE = "nano.tar.xz"
SPLITS = ("training", "heldout")
_BATCH_DOCUMENTS = 2000

Tokens = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Pack:
    """Token strings by kind (documents as BOS ... EOS), the held-out texts, and the manifest.

    `texts[kind][i]` is the text of the i-th held-out document, without BOS and EOS.
    """

    training: Mapping[str, Tokens]
    held_out: Mapping[str, Tokens]
    texts: Mapping[str, list[str]]
    manifest: Mapping[str, object]
    tokenizer_file: Path


def write(out_dir: Path) -> Path:
    """Encode `out_dir`/corpus with `out_dir`/tokenizer.json; return the archive."""
    pack_dir = out_dir / "pack"
    pack_dir.mkdir(parents=True, exist_ok=True)
    tokenizer_bytes = (out_dir / TOKENIZER_FILE).read_bytes()
    (pack_dir / TOKENIZER_FILE).write_bytes(tokenizer_bytes)
    tokenizer = Tokenizer.from_buffer(tokenizer_bytes)
    counts: dict[str, dict[str, object]] = {split: {} for split in SPLITS}
    for split in SPLITS:
        for kind in Kind:
            documents = list(corpus.read(out_dir / "corpus", split, kind))
            tokens = encode(tokenizer, documents)
            np.save(pack_dir / f"{split}-{kind}.npy", tokens)
            if split == "heldout":
                texts = json.dumps([doc.text for doc in documents], ensure_ascii=False)
                (pack_dir / f"{split}-{kind}.json").write_text(texts, encoding="utf-8")
            counts[split][kind] = {
                "documents": len(documents),
                "text_bytes": sum(doc.byte_count for doc in documents),
                "tokens": len(tokens),
            }
    manifest = {**_token_facts(out_dir, tokenizer), "counts": counts, "sha256": _sums(pack_dir)}
    manifest["corpus"] = json.loads((out_dir / "corpus" / "corpus.json").read_text())
    (pack_dir / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return _archive(pack_dir, out_dir / ARCHIVE)


def encode(tokenizer: Tokenizer, documents: Iterable[Document]) -> Tokens:
    """Return the documents one after the other, each between BOS and EOS: [tokens] uint16."""
    bos, eos = tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)
    texts = [document.text for document in documents]
    parts: list[Tokens] = []
    for start in range(0, len(texts), _BATCH_DOCUMENTS):
        batch = texts[start : start + _BATCH_DOCUMENTS]
        for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
            parts.append(np.array([bos, *encoding.ids, eos], np.uint16))
    return np.concatenate(parts) if parts else np.empty(0, np.uint16)


def unpack(archive: Path, pack_dir: Path) -> None:
    """Restore the files of `archive` into `pack_dir`."""
    pack_dir.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        tar.extractall(pack_dir, filter="data")


def load(pack_dir: Path) -> Pack:
    """Read what `write` or `unpack` left in `pack_dir`."""

    def tokens(split: str) -> dict[str, Tokens]:
        return {str(kind): np.load(pack_dir / f"{split}-{kind}.npy") for kind in Kind}

    texts = {
        str(kind): json.loads((pack_dir / f"heldout-{kind}.json").read_text(encoding="utf-8"))
        for kind in Kind
    }
    manifest = json.loads((pack_dir / "manifest.json").read_text())
    return Pack(tokens("training"), tokens("heldout"), texts, manifest, pack_dir / TOKENIZER_FILE)


def _token_facts(out_dir: Path, tokenizer: Tokenizer) -> dict[str, object]:
    size = tokenizer.get_vocab_size()
    special = {token: tokenizer.token_to_id(token) for token in (*FIRST_TOKENS, *LAST_TOKENS)}
    return {
        "vocab_size": size,
        "compressed_vocab_size": tokenizer_training.compressed_size(out_dir, size),
        "noise_token_id": special[DSPARK_NOISE],
        "special_tokens": special,
    }


def _sums(pack_dir: Path) -> dict[str, str]:
    files = sorted(path for path in pack_dir.iterdir() if path.name != "manifest.json")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _archive(pack_dir: Path, target: Path) -> Path:
    with tarfile.open(target, "w:xz", preset=6) as tar:
        for path in sorted(pack_dir.iterdir()):
            content = path.read_bytes()
            entry = tarfile.TarInfo(path.name)  # no owner, no time: equal content, equal archive
            entry.size = len(content)
            tar.addfile(entry, BytesIO(content))
    return target


def _main(
    out: Annotated[Path, typer.Option(help="Folder of the corpus.")] = Path(".train"),
) -> None:
    archive = write(out)
    manifest = json.loads((out / "pack" / "manifest.json").read_text())
    console = Console()
    console.print_json(json.dumps(manifest["counts"]))
    console.print(f"{archive}: {archive.stat().st_size} bytes")


if __name__ == "__main__":
    typer.run(_main)
