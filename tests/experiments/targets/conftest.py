"""A model folder in Hugging Face form, small enough to make for each module."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

NANO = Path("engine/checkpoints/nano")
CONFIG = {"architectures": ["LlamaForCausalLM"], "vocab_size": 4096, "eos_token_id": 1}


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """Its name is the model that the stand-in serves."""
    folder = tmp_path_factory.mktemp("models") / "null"
    folder.mkdir()
    config = {**CONFIG, "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"w": torch.zeros(4)}, folder / "model.safetensors")
    shutil.copy(NANO / "tokenizer.json", folder)
    return folder
