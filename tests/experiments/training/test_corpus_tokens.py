"""Tokenizer, pack and baselines on a corpus of a few kilobytes."""

from __future__ import annotations

import lzma
import math
from random import Random

import numpy as np
import pytest
from tokenizers import Tokenizer

from experiments.training import baselines, corpus, packing, tokenizer_training
from experiments.training.chat_format import BOS, DSPARK_NOISE, EOS, LAST_TOKENS, PAD
from experiments.training.document import Document
from experiments.training.packages import CorpusError
from experiments.training.sources import Kind

_SIZE = 300


def _text(seed: int) -> str:
    rng = Random(seed)
    words = "the cat sat on a mat and looked at 2 dogs 17 times é"
    return " ".join(rng.choices(words.split(), k=120)) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("train")
    training = tuple(Document(kind, "p", f"{i}", _text(i)) for kind in Kind for i in range(20))
    held_out = tuple(Document(kind, "p", f"h{i}", _text(99 + i)) for kind in Kind for i in range(3))
    corpus.write(corpus.Corpus(training, held_out, {}), out / "corpus")
    tokenizer = tokenizer_training.train(tokenizer_training.sample(out / "corpus"), _SIZE)
    tokenizer.save(str(out / "tokenizer.json"))
    packing.write(out)
    return out


@pytest.fixture(scope="module")
def tokenizer(folder):
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_ids_are_laid_out_as_the_release_has_them(tokenizer):
    assert [tokenizer.token_to_id(token) for token in (BOS, EOS, PAD)] == [0, 1, 2]
    last = [tokenizer.token_to_id(token) for token in LAST_TOKENS]
    assert last == list(range(_SIZE - len(LAST_TOKENS), _SIZE))
    assert tokenizer.get_vocab_size() == _SIZE


@pytest.mark.parametrize(
    "text", ["plain", "  two\n\tlines ", "日本 ünï 🙂", "x=10_000;\r\n", " a  1"]
)
def test_any_text_comes_back_from_its_tokens(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_digits_are_tokens_of_their_own(tokenizer):
    assert tokenizer.encode("1234").tokens == ["1", "2", "3", "4"]


def test_added_tokens_are_one_token_each(tokenizer):
    assert all(len(tokenizer.encode(token).ids) == 1 for token in (BOS, EOS, *LAST_TOKENS))


def test_too_little_text_for_the_vocabulary_is_refused():
    with pytest.raises(CorpusError, match="Ask for fewer"):
        tokenizer_training.train(["aaa"], _SIZE)


def test_training_twice_gives_the_same_tokenizer(folder, tokenizer):
    again = tokenizer_training.train(tokenizer_training.sample(folder / "corpus"), _SIZE)
    assert again.to_str() == tokenizer.to_str()


def test_pack_comes_back_from_its_archive(folder, tmp_path):
    packing.unpack(folder / packing.ARCHIVE, tmp_path)
    pack, original = packing.load(tmp_path), packing.load(folder / "pack")
    assert pack.manifest == original.manifest
    assert all(np.array_equal(pack.training[k], original.training[k]) for k in original.training)
    assert pack.texts == original.texts
    assert pack.manifest["noise_token_id"] == LAST_TOKENS.index(DSPARK_NOISE) + _SIZE - len(
        LAST_TOKENS
    )


def test_packed_documents_stand_between_bos_and_eos(folder, tokenizer):
    pack = packing.load(folder / "pack")
    for kind in Kind:
        tokens = pack.held_out[kind]
        assert tokens.dtype == np.uint16
        pieces = np.split(tokens, np.flatnonzero(tokens == 0)[1:])
        assert [piece[-1] for piece in pieces] == [1] * len(pieces)
        assert [tokenizer.decode(piece[1:-1].tolist()) for piece in pieces] == pack.texts[kind]


def test_compressed_vocabulary_merges_case_and_leading_space(folder):
    size = tokenizer_training.compressed_size(folder, _SIZE)
    assert 256 < size < _SIZE


def test_witten_bell_follows_its_formula_on_a_text_worked_by_hand():
    bits = baselines.WittenBell([b"ab"]).bits([b"ab"])
    # Order 0: n = 2, t = 2, so P(a) = (1 + 2/256) / 4. At the start the contexts of order 1 to 5
    # are NULs, seen once with one byte after them: each gives P = (1 + P) / 2.
    first = (1 + 2 / 256) / 4
    second = first
    for _ in range(5):
        first = (1 + first) / 2
        second = (1 + second) / 2
    assert bits == pytest.approx([-math.log2(first), -math.log2(second)])


def test_witten_bell_gives_a_distribution_in_every_context():
    model = baselines.WittenBell([_text(i).encode() for i in range(5)])
    context = b"the ca"
    total = sum(2 ** -model.bits([context + bytes([b])])[-1] for b in range(1, 256))
    assert total < 1
    assert total == pytest.approx(1, abs=0.01)


def test_baselines_weigh_the_kinds_by_their_bytes(folder):
    results = baselines.measure(folder)
    kinds = [results[kind] for kind in Kind]
    size = sum(result.text_bytes for result in kinds)
    assert results["all"].text_bytes == size
    mean = sum(result.witten_bell * result.text_bytes for result in kinds) / size
    assert results["all"].witten_bell == pytest.approx(mean)
    assert results["english"].witten_bell < 8


def test_xz_counts_the_whole_file():
    text = _text(1).encode() * 20
    expected = 8 * len(lzma.compress(text, preset=9)) / len(text)
    assert baselines.xz_bits_per_byte(text) == expected
