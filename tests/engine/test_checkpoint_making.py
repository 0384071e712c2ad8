import hashlib
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.checkpoint_directory import is_random, resolve_model_dir
from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import CheckpointError
from engine.make_checkpoint import make_checkpoint
from engine.models.deepseek_v41.config import DeepseekV41Config, IndexMode
from engine.models.deepseek_v41.contract import expected_tensors
from engine.models.deepseek_v41.weights import load_weights
from engine.models.shards import read_shards
from engine.request import Request, RequestId, SamplingParams
from engine.tokenizer import Tokenizer, engram_token_map

RELEASED_CONFIG = Path(__file__).parents[1] / "data" / "v41_flash_config.json"
# The stored tensors of `make_checkpoint("toy", seed=0)` on every machine. It changes only with the
# shapes or the generator, whose version in the note must then go up.
TOY_SEED_0 = "6a089577a4cf73fec78ae016422e40d2"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    parent = tmp_path_factory.mktemp("made")
    return {
        kind: make_checkpoint(kind, seed=0, directory=parent / kind) for kind in ("toy", "small")
    }


both = pytest.mark.parametrize("kind", ["toy", "small"])


def content(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def next_primes(start, count, used):
    found = []
    candidate = start
    while len(found) < count:
        candidate += 1
        if candidate not in used and all(
            candidate % d for d in range(2, math.isqrt(candidate) + 1)
        ):
            found.append(candidate)
            used.add(candidate)
    return found


def test_same_seed_gives_the_same_bytes(made, tmp_path):
    again = make_checkpoint("toy", seed=0, directory=tmp_path / "elsewhere")
    assert content(again) == content(made["toy"])


def test_toy_of_seed_0_is_the_same_on_every_machine(made):
    digest = hashlib.sha256()
    with read_shards(made["toy"]) as stored:
        for name in sorted(stored):
            tensor = stored[name].read()
            digest.update(name.encode() + tensor.view(torch.uint8).numpy().tobytes())
    assert digest.hexdigest()[:32] == TOY_SEED_0


def test_another_seed_gives_other_weights(made, tmp_path):
    other = make_checkpoint("toy", seed=1, directory=tmp_path / "toy")
    config = DeepseekV41Config.load(other)
    first = load_weights(made["toy"], config, dtype=torch.float32, device="cpu")
    second = load_weights(other, config, dtype=torch.float32, device="cpu")
    assert not [name for name in first if torch.equal(first[name], second[name])]


@both
def test_files_hold_the_released_form(made, kind):
    config = DeepseekV41Config.load(made[kind])
    with read_shards(made[kind]) as stored:
        found = {name: (tensor.shape, tensor.dtype) for name, tensor in stored.items()}
    expected = expected_tensors(config)
    assert found == {name: (spec.shape, spec.dtype) for name, spec in expected.items()}
    assert {dtype for _, dtype in found.values()} == {"F8_E4M3", "F8_E8M0", "I8", "BF16", "F32"}


@both
def test_config_carries_no_field_that_the_release_lacks(made, kind):
    released = json.loads(RELEASED_CONFIG.read_text())
    document = json.loads((made[kind] / "config.json").read_text())
    assert document.keys() <= released.keys()
    for section in ("text_config", "quantization_config"):
        assert document[section].keys() <= released[section].keys()
    assert "vision_config" not in document


@both
def test_every_kind_of_layer_is_there(made, kind):
    config = DeepseekV41Config.load(made[kind])
    roles = {(plan.ratio, plan.mode) for plan in config.layers}
    assert roles == {
        (0, IndexMode.WINDOW_ONLY),
        *((2, IndexMode.FULL), (2, IndexMode.REUSE)),
        *((1, IndexMode.FULL), (1, IndexMode.REINDEX), (1, IndexMode.REUSE)),
    }
    assert config.engram_layer_ids[0] < config.kv_source_layer_ids[0] < config.engram_layer_ids[1]
    assert config.num_nextn_predict_layers == 3


@both
def test_engram_tables_have_the_sizes_that_the_hash_primes_ask_for(made, kind):
    config = DeepseekV41Config.load(made[kind])
    used = set()
    for rows in config.engram_num_embeddings:
        orders = range(2, config.engram_max_ngram_size + 1)
        start, heads = config.engram_vocab_size - 1, config.engram_n_heads
        assert rows == sum(sum(next_primes(start, heads, used)) for _ in orders)


@both
def test_text_works_by_bytes(made, kind):
    config = DeepseekV41Config.load(made[kind])
    tokenizer = Tokenizer.load(made[kind])
    assert tokenizer.decode(tokenizer.encode("Prüfung ✓")) == "Prüfung ✓"
    numbers = engram_token_map(made[kind], config)
    assert max(numbers) + 1 == config.engram_compressed_vocab_size
    assert numbers[ord("A")] == numbers[ord("a")] != numbers[ord("b")]


def test_small_is_sharded_and_of_the_promised_size(made):
    config = DeepseekV41Config.load(made["small"])
    weights = load_weights(made["small"], config, dtype=torch.bfloat16, device="cpu")
    assert 30e6 < sum(tensor.numel() for tensor in weights.values()) < 65e6
    index = json.loads((made["small"] / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    expected = expected_tensors(config).values()
    assert index["metadata"]["total_size"] == sum(spec.size_bytes for spec in expected)


def test_weights_are_scaled_to_keep_activations_near_one(made):
    config = DeepseekV41Config.load(made["toy"])
    weights = load_weights(made["toy"], config, dtype=torch.float32, device="cpu")
    for name, weight in weights.items():
        if name.endswith("norm.weight"):
            assert abs(weight.mean() - 1) < 0.1, name
        elif ".attn.w" in name or ".experts." in name:
            assert 0.85 < weight.std() * weight.shape[-1] ** 0.5 < 1.15, name


def test_toy_text_depends_on_the_prompt_and_is_no_loop(made):
    engine = Engine(EngineConfig(model=str(made["toy"]), draft_length=0, accelerator="cpu"))
    greedy = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    for name, prompt in (("a", b"The quick brown fox"), ("b", b"def main():")):
        engine.add_request(
            Request(request_id=RequestId(name), prompt_token_ids=tuple(prompt), sampling=greedy)
        )
    texts = {"a": [], "b": []}
    while engine.has_unfinished():
        for output in engine.step():
            texts[output.request_id] += output.token_ids
    assert texts["a"] != texts["b"]
    assert all(len(set(text)) > 12 for text in texts.values())


@both
def test_random_weights_are_known_as_such(made, kind):
    assert is_random(made[kind])
    note = json.loads((made[kind] / "checkpoint.json").read_text())
    assert note["seed"] == 0


def test_a_checkpoint_without_a_note_is_not_random(tmp_path):
    assert not is_random(tmp_path)


def test_a_broken_note_is_named(tmp_path):
    (tmp_path / "checkpoint.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"checkpoint\.json: cannot be read"):
        is_random(tmp_path)


def test_a_directory_that_holds_something_is_refused_and_kept(tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(CheckpointError, match="already holds something"):
        make_checkpoint("toy", seed=0, directory=tmp_path)
    assert content(tmp_path) == {"mine.txt": b"keep me"}


def test_an_empty_directory_and_missing_parents_are_welcome(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert make_checkpoint("toy", seed=0, directory=empty) == empty
    deep = make_checkpoint("toy", seed=0, directory=tmp_path / "a" / "b")
    assert content(deep) == content(empty)


def test_an_unknown_kind_and_a_negative_seed_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="Use one of toy, small"):
        make_checkpoint("huge", seed=0, directory=tmp_path / "x")
    with pytest.raises(CheckpointError, match="seed -1 is negative"):
        make_checkpoint("toy", seed=-1, directory=tmp_path / "x")
    assert content(tmp_path) == {}


def test_a_parent_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        make_checkpoint("toy", seed=0, directory=tmp_path / "file" / "toy")


FILL_THE_DISK = """
import resource, sys
from pathlib import Path
from engine.errors import CapacityError
from engine.make_checkpoint import make_checkpoint
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    make_checkpoint("toy", seed=0, directory=Path(sys.argv[1]))
except CapacityError as error:
    sys.exit(f"{error.exit_code} {error}")
"""


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    target = tmp_path / "toy"
    child = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(target)], capture_output=True, text=True
    )
    assert child.stderr.startswith(f"1 {target}: the disk has no room"), child.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_directory_resolves_to_itself(made):
    assert resolve_model_dir(str(made["toy"])) == made["toy"]


def test_a_shipped_checkpoint_resolves_by_name(tmp_path, monkeypatch, made):
    monkeypatch.setattr("engine.checkpoint_directory._SHIPPED", made["toy"].parent)
    assert resolve_model_dir("toy") == made["toy"]


@pytest.mark.parametrize("name", ["nowhere", "../nowhere", "", "x" * 5000, "~nobody-here/x"])
def test_an_unknown_checkpoint_is_refused_with_the_remedy(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="make-checkpoint toy"):
        resolve_model_dir(name or "no such name")
