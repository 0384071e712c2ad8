import dataclasses
import json
from pathlib import Path

import hypothesis.strategies as st
import pytest
import tokenizers
from hypothesis import given
from tokenizers import decoders, models, pre_tokenizers

from engine.checkpoints import nano
from engine.errors import CheckpointError
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.tokenizer import Tokenizer, engram_token_map, number_keys

NANO = Path(nano.__file__).parent
CONFIG = json.loads((Path(__file__).parents[1] / "data" / "v41_flash_config.json").read_text())


@pytest.fixture
def config():
    released = DeepseekV41Config.from_document(CONFIG, where="config.json")
    return dataclasses.replace(released, vocab_size=10, engram_compressed_vocab_size=6)


@pytest.fixture
def with_file(tmp_path):
    """A tokenizer of ten entries, some of which Engram takes for one another."""
    words = ["The", "the", "Ġthe", "thÃ©", "Ġ", "Ċ", "!", "ã", "Ã", "<s>"]
    model = models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@given(text=st.text())
def test_bytes_give_any_text_back(text):
    tokenizer = Tokenizer.of_bytes()
    ids = tokenizer.encode(text)
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text


def test_invalid_bytes_are_replaced_and_ids_beyond_bytes_have_no_text():
    assert Tokenizer.of_bytes().decode([0x41, 0xFF, 257, 0x42]) == "A\ufffdB"


def test_a_directory_without_a_tokenizer_counts_bytes(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("é") == [0xC3, 0xA9]
    assert tokenizer.hash == Tokenizer.of_bytes().hash


def test_a_vocabulary_too_small_for_bytes_is_refused(tmp_path):
    document = json.loads(json.dumps(CONFIG))
    document["text_config"] |= {"vocab_size": 128, "dspark_noise_token_id": 127}
    (tmp_path / "config.json").write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match="128 ids are too few for bytes"):
        Tokenizer.load(tmp_path)


def test_a_tokenizer_file_wins_over_bytes(with_file):
    tokenizer = Tokenizer.load(with_file)
    assert tokenizer.encode("!") == [6]
    assert tokenizer.decode([9, 1, 2, 6]) == "the the!"
    assert tokenizer.hash != Tokenizer.of_bytes().hash
    assert tokenizer.hash == Tokenizer.load(with_file).hash


def test_a_broken_tokenizer_file_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: cannot be read as a tokenizer"):
        Tokenizer.load(tmp_path)


def test_engram_keys_fold_case_accents_and_space_and_fall_back_to_names(with_file):
    # ids 7 and 8 are the lone bytes E3 and C3, no whole UTF-8: they go by their names
    assert Tokenizer.load(with_file).engram_keys(10) == [
        *("the", "the", "the"),
        *("the", " ", " ", "!", "ã", "Ã", "<s>"),
    ]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("A", "a"),
        (" ", " "),
        ("\t", " "),
        ("\x0b", "\x0b"),  # stripped to nothing, so it stays itself
        ("\x00", "\x00"),
    ],
)
def test_engram_keys_of_single_bytes(text, key):
    assert Tokenizer.of_bytes().engram_keys(256)[ord(text)] == key


def test_engram_keys_of_broken_bytes_and_other_ids_stay_apart():
    keys = Tokenizer.of_bytes().engram_keys(300)[128:]
    assert len(set(keys)) == len(keys)


def test_keys_are_numbered_by_first_appearance():
    assert number_keys(["b", "a", "b", "c", "a"]) == [0, 1, 0, 2, 1]


def test_token_map_is_derived_from_the_tokenizer(with_file, config):
    numbers = engram_token_map(with_file, config)
    assert numbers == number_keys(Tokenizer.load(with_file).engram_keys(10))
    assert numbers[:3] == [0, 0, 0]


def test_a_derived_map_of_another_size_is_refused(with_file, config):
    config = dataclasses.replace(config, engram_compressed_vocab_size=99092)
    with pytest.raises(CheckpointError, match=r"gives \d Engram tokens, config\.json says 99092"):
        engram_token_map(with_file, config)


def test_a_stored_map_wins_over_the_tokenizer(with_file, config):
    stored = [5, 0, 1, 2, 3, 4, 5, 5, 5, 5]
    (with_file / "engram_token_map.json").write_text(json.dumps(stored))
    assert engram_token_map(with_file, config) == stored


@pytest.mark.parametrize(
    ("stored", "complaint"),
    [
        ("[0, 1]", "list of vocab_size = 10 ids"),
        ('{"0": 1}', "list of vocab_size = 10 ids"),
        ("[0, 1, 2, 3, 4, 5, 6, 0, 0, 0]", "maps token 6 to 6, outside 0 to"),
        ("[0, 1, 2, -1, 4, 5, 0, 0, 0, 0]", "maps token 3 to -1"),
        ("[0, 1, 2, true, 4, 5, 0, 0, 0, 0]", "maps token 3 to True"),
        ("[0, 1", "cannot be read"),
    ],
)
def test_a_stored_map_that_does_not_fit_is_refused(tmp_path, config, stored, complaint):
    (tmp_path / "engram_token_map.json").write_text(stored)
    with pytest.raises(CheckpointError, match=complaint):
        engram_token_map(tmp_path, config)


def test_bytes_of_tokens_add_up_to_the_text():
    tokenizer = Tokenizer.load(NANO)
    for text in ("The cat sat.", "na\u00efve \u2014 \u00dcber \U0001f600", "x = {1: 'a'}\n\tend"):
        ids = tokenizer.encode(text)
        assert b"".join(tokenizer.bytes_of(token_id) for token_id in ids) == text.encode()


def test_special_tokens_add_nothing_and_bytes_are_themselves():
    released = Tokenizer.load(NANO)
    special = [i for i in range(64) if not released.decode([i]) and not released.bytes_of(i)]
    assert special
    assert Tokenizer.of_bytes().bytes_of(0xE9) == b"\xe9"
    assert Tokenizer.of_bytes().bytes_of(300) == b""


def test_byte_fallback_and_word_starts_are_spelt_out(tmp_path):
    vocabulary = {"<unk>": 0, "<0xE3>": 1, "\u2581the": 2, "cat": 3}
    document = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "ByteFallback"},
        "truncation": None,
        "padding": None,
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": [],
            "byte_fallback": True,
            "unk_token": "<unk>",
            "dropout": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "ignore_merges": False,
        },
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    tokenizer = Tokenizer.load(tmp_path)
    assert [tokenizer.bytes_of(i) for i in (1, 2, 3)] == [b"\xe3", b" the", b"cat"]
