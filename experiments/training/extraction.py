"""Readers: the content of one archive member -> the documents in it."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from html.parser import HTMLParser

Reader = Callable[[str, bytes], Iterator[tuple[str, str]]]
"""(member name, content) -> (document name, text) pairs; the text is not cleaned yet."""

_BLOCK_TAGS = frozenset(
    [
        "p",
        "div",
        "li",
        "ul",
        "ol",
        "dl",
        "dt",
        "dd",
        "table",
        "tr",
        "pre",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "br",
        "section",
        "article",
        "blockquote",
    ]
)
_SILENT_TAGS = frozenset(["script", "style", "nav", "head", "svg", "button", "select"])
_VOID_SILENT = frozenset(["meta", "link", "input", "img", "hr"])
_SILENT_CLASSES = frozenset(
    [
        "navheader",
        "navfooter",
        "toc",
        "sidebar",
        "sphinxsidebar",
        "related",
        "footer",
        "header",
        "top-nav",
        "menu-bar",
        "nosearch",
        "searchmenu",
        "toplang",
        "bottomlang",
        "apidoc-nav",
    ]
)
_JSON_CHUNK_BYTES = 1500


class _Text(HTMLParser):
    """Collects the visible text; a block tag starts a line, a paragraph a blank one."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._silent_depth = 0
        self._preformatted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._silent_depth:
            self._silent_depth += tag not in _VOID_SILENT and tag not in ("br", "p", "li")
            return
        classes = (dict(attrs).get("class") or "").split()
        if tag in _SILENT_TAGS or (tag == "div" and _SILENT_CLASSES.intersection(classes)):
            self._silent_depth = 1
        elif tag in _BLOCK_TAGS:
            self.pieces.append("\n" if tag in ("li", "tr", "br", "dt", "dd") else "\n\n")
            self._preformatted += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if self._silent_depth:
            self._silent_depth -= tag not in ("br", "p", "li")
        elif tag in ("td", "th"):
            self.pieces.append(" ")
        elif tag in _BLOCK_TAGS:
            self.pieces.append("\n")
            self._preformatted -= tag == "pre"

    def handle_data(self, data: str) -> None:
        if not self._silent_depth:
            self.pieces.append(data if self._preformatted > 0 else re.sub(r"\s+", " ", data))


def plain(name: str, content: bytes) -> Iterator[tuple[str, str]]:
    """The member as it is, if it is UTF-8."""
    try:
        yield name, content.decode("utf-8")
    except UnicodeDecodeError:
        return


def html(name: str, content: bytes) -> Iterator[tuple[str, str]]:
    """The visible text of a page: no scripts, no navigation, blocks on lines of their own."""
    parser = _Text()
    parser.feed(content.decode("utf-8", errors="ignore"))
    text = "".join(parser.pieces)
    yield name, re.sub(r"\n[ \t]*(\n[ \t]*)+", "\n\n", re.sub(r"[ \t]+\n", "\n", text))


def dictionary(name: str, content: bytes) -> Iterator[tuple[str, str]]:
    """A dictd file in pieces of about 8,000 characters, cut at blank lines."""
    text = gzip.decompress(content).decode("utf-8", errors="ignore")
    yield from _in_pieces(name, text.split("\n\n"), "\n\n", 8000)


def sword(name: str, content: bytes) -> Iterator[tuple[str, str]]:
    """A zCom `.bzz` file: one zlib stream a book, a paragraph a block, no tags."""
    for book, stream in enumerate(_zlib_streams(content)):
        marked_up = stream.decode("utf-8", errors="ignore")
        parts = re.split(r"</p>|<lb[^>]*>|</div>|<div[^>]*>|</item>|</verse>|\x00", marked_up)
        texts = [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", part)).strip() for part in parts]
        yield from _in_pieces(f"{name}#{book}", [text for text in texts if text], "\n\n", 12000)


def _zlib_streams(content: bytes) -> Iterator[bytes]:
    """The streams of a file that may hold unused bytes between them."""
    start = content.find(b"\x78\x9c")
    while start >= 0:
        stream = zlib.decompressobj()
        end = start + 2
        try:
            decompressed = stream.decompress(content[start:])
        except zlib.error:  # two bytes that only look like a header
            decompressed = b""
        if stream.eof:
            yield decompressed
            end = len(content) - len(stream.unused_data)
        start = content.find(b"\x78\x9c", end)


def synsets(content: bytes) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (words, gloss with its examples) of every synset of a WordNet data file (wndb(5))."""
    for line in content.decode("ascii").splitlines():
        if line.startswith("  "):
            continue
        fields, _, gloss = line.partition(" | ")
        parts = fields.split(" ")
        words = parts[4 : 4 + 2 * int(parts[3], 16) : 2]
        names = (re.sub(r"\(\w+\)$", "", word).replace("_", " ") for word in words)
        yield tuple(names), gloss.strip()


def service_model(name: str, content: bytes) -> Iterator[tuple[str, str]]:
    """A gzipped service description: its operations and shapes as small JSON documents."""
    service = json.loads(gzip.decompress(content))
    for part in ("operations", "shapes"):
        yield from _json_pieces(f"{name}#{part}", service.get(part, {}))


def compat_table(name: str, content: bytes) -> Iterator[tuple[str, str]]:
    """The browser compatibility tables: small JSON documents of a few features each."""
    for area, features in json.loads(content).items():
        if area in ("api", "css", "javascript", "html", "http"):
            for title, feature in features.items():
                yield from _json_pieces(f"{name}#{area}.{title}", feature)


def api_description(name: str, content: bytes) -> Iterator[tuple[str, str]]:
    """An OpenAPI description: schemas, examples and paths as small JSON documents."""
    spec = json.loads(content)
    for part in ("schemas", "examples", "responses"):
        for title, entry in spec["components"][part].items():
            yield from _json_pieces(f"{name}#{part}.{title}", {title: entry})
    for path, methods in spec["paths"].items():
        yield from _json_pieces(f"{name}#{path}", {path: methods})


def _json_pieces(name: str, entries: object) -> Iterator[tuple[str, str]]:
    """Spell an object as documents of about `_JSON_CHUNK_BYTES`, in a style drawn from its name.

    An entry too large for one document is split in turn.
    """
    if not isinstance(entries, dict):
        return
    style = (None, 2, 4)[zlib.crc32(name.encode()) % 3]
    separators = (",", ":") if style is None and len(name) % 2 else None
    piece: dict[str, object] = {}
    size, number = 0, 0
    for key, value in entries.items():
        entry_size = len(json.dumps(value))
        if entry_size > 3 * _JSON_CHUNK_BYTES:
            yield from _json_pieces(f"{name}.{key}", value)
            continue
        piece[key] = value
        size += entry_size
        if size >= _JSON_CHUNK_BYTES:
            yield f"{name}/{number}", _spell(piece, style, separators)
            piece, size, number = {}, 0, number + 1
    if piece:
        yield f"{name}/{number}", _spell(piece, style, separators)


def _spell(value: object, indent: int | None, separators: tuple[str, str] | None) -> str:
    return json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)


def _in_pieces(
    name: str, parts: list[str], joint: str, size_chars: int
) -> Iterator[tuple[str, str]]:
    piece: list[str] = []
    size, number = 0, 0
    for part in parts:
        piece.append(part)
        size += len(part)
        if size >= size_chars:
            yield f"{name}/{number}", joint.join(piece)
            piece, size, number = [], 0, number + 1
    if piece:
        yield f"{name}/{number}", joint.join(piece)
