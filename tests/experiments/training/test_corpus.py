"""The corpus: cleaning, splitting, the 50-byte rule, files that come back as they were written."""

from __future__ import annotations

from random import Random

import pytest

from experiments.training import corpus, holdout
from experiments.training.document import Document, clean
from experiments.training.extraction import html, synsets
from experiments.training.sources import SOURCES, Kind

_PERMISSIVE = {
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "MIT",
    "MIT OR Apache-2.0",
    "PSF-2.0",
    "PostgreSQL",
    "WordNet-3.0",
    "public domain",
}


def _english(origin: str, text: str) -> Document:
    return Document(Kind.ENGLISH, "package", origin, text)


def _sentences(seed: int, count: int = 60) -> str:
    rng = Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(8 * count)]
    return "\n\n".join(" ".join(words[8 * i : 8 * i + 8]) for i in range(count))


def _windows(text: str) -> set[bytes]:
    raw = text.encode()
    return {raw[i : i + 50] for i in range(len(raw) - 49)}


def test_every_source_has_a_permissive_licence():
    assert {source.package.licence for source in SOURCES} <= _PERMISSIVE


def test_equal_windows_and_only_they_have_equal_hashes():
    text = (_sentences(1, 20) + _sentences(2, 5) + _sentences(1, 20)).encode()
    hashes = holdout.window_hashes(text)
    windows = [text[i : i + 50] for i in range(len(text) - 49)]
    assert len(hashes) == len(windows)
    assert len(set(hashes.tolist())) == len(set(windows))


def test_text_shorter_than_a_window_has_no_hash():
    assert len(holdout.window_hashes(b"x" * 49)) == 0
    assert len(holdout.window_hashes(b"x" * 50)) == 1


def test_nothing_that_is_left_held_out_shares_fifty_bytes_with_training():
    shared = _sentences(3, 1)
    training = [_english(f"t{i}", _sentences(10 + i) + "\n\n" + shared) for i in range(3)]
    held_out = [_english("h", _sentences(4, 30) + "\n\n" + shared + "\n\n" + _sentences(5, 30))]
    left, removals = holdout.remove_shared(held_out, training)
    assert shared not in left[0].text
    assert not _windows(left[0].text) & set().union(*(_windows(doc.text) for doc in training))
    assert removals[Kind.ENGLISH].passages_removed >= 1
    assert removals[Kind.ENGLISH].bytes_before - removals[Kind.ENGLISH].bytes_after >= len(shared)


def test_forty_nine_shared_bytes_are_allowed():
    piece = _sentences(3, 1)[:49]
    held_out = [_english("h", _sentences(4, 20) + "\n\n" + piece + "Q" + _sentences(6, 20))]
    training = [_english("t", "#" + piece + "#" + _sentences(7))]
    left, removals = holdout.remove_shared(held_out, training)
    assert left == held_out
    assert removals[Kind.ENGLISH].passages_removed == 0


def test_joining_what_is_left_makes_no_new_shared_window():
    before, after, middle = _sentences(8, 12), _sentences(9, 12), _sentences(3, 1)
    joint = before[-30:] + "\n\n" + after[:30]
    training = [_english("t1", middle), _english("t2", joint)]
    held_out = [_english("h", f"{before}\n\n{middle}\n\n{after}")]
    left, _ = holdout.remove_shared(held_out, training)
    assert joint not in left[0].text
    assert len(left[0].text) > 600


def test_document_that_is_mostly_shared_is_dropped():
    text = _sentences(3)
    left, removals = holdout.remove_shared(
        [_english("h", text + "\n\n" + _sentences(4, 8))], [_english("t", text)]
    )
    assert left == []
    assert removals[Kind.ENGLISH].documents_after == 0


def test_windows_across_two_training_documents_do_not_count():
    half = _sentences(3, 1)[:30]
    held_out = [_english("h", _sentences(4) + "\n\n" + half + half[::-1])]
    training = [_english("a", _sentences(5) + half), _english("b", half[::-1] + _sentences(6))]
    left, _ = holdout.remove_shared(held_out, training)
    assert left == held_out


def test_split_keeps_every_source_file_on_one_side():
    documents = [_english(f"file{i % 200}", _sentences(i, 10)) for i in range(600)]
    parts = corpus.split(documents)
    assert parts.held_out
    assert not {d.origin for d in parts.held_out} & {d.origin for d in parts.training}


def test_same_documents_are_split_and_shuffled_the_same_way():
    documents = [_english(f"file{i}", _sentences(i, 10)) for i in range(200)]
    assert corpus.split(documents) == corpus.split(documents)


def test_written_corpus_reads_back(tmp_path):
    documents = [_english(f"file{i}", _sentences(i, 10) + " é｜\n") for i in range(200)]
    parts = corpus.split(documents)
    corpus.write(parts, tmp_path)
    assert tuple(corpus.read(tmp_path, "training", Kind.ENGLISH)) == parts.training
    assert tuple(corpus.read(tmp_path, "heldout", Kind.ENGLISH)) == parts.held_out


_PROSE = "The end of the line is in a place that is not as far as it was. " * 10


def test_clean_gives_unix_newlines_without_trailing_blanks():
    assert clean(Kind.ENGLISH, f"{_PROSE}\r\n{_PROSE}  \r\n") == f"{_PROSE[:-1]}\n{_PROSE[:-1]}\n"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.ENGLISH, _PROSE + "\x00"),
        (Kind.ENGLISH, "too short"),
        (Kind.ENGLISH, "0x12 == 7;\n" * 100),
        (Kind.CODE, "x = 1\n" * 100 + "y = [" + "1, " * 1000 + "]\n"),
    ],
)
def test_clean_refuses_text_that_is_not_worth_learning(kind, text):
    assert clean(kind, text) is None


def test_page_becomes_text_without_menu_or_script():
    page = (
        b"<html><head><title>t</title></head><body><nav><p>Menu</p></nav><script>x()</script>"
        b"<h1>Head</h1><p>One   two&amp;<br>three</p><pre>a\n  b</pre><table><tr><td>1</td><td>2"
        b"</td></tr></table></body></html>"
    )
    ((name, text),) = html("page", page)
    assert name == "page"
    assert text.split() == ["Head", "One", "two&", "three", "a", "b", "1", "2"]
    assert "a\n  b" in text


def test_synset_line_gives_its_words_and_gloss():
    line = (
        b"  1 licence\n"
        b'00401783 04 n 02 rest_day 0 play(a) 1 001 @ 00401639 n 0000 | a day; "a fine day"  \n'
    )
    assert list(synsets(line)) == [(("rest day", "play"), 'a day; "a fine day"')]
