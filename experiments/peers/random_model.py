"""A model folder of a released shape with random weights, for every engine of a plan.

What it says means nothing; how long it takes to say it does not depend on the weights. Every
engine of a plan reads the same folder. Made on the device that there is, in bf16.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    import torch
    from safetensors.torch import save_file

    from engine.accelerator.find import find_accelerator
    from engine.checkpoint_directory import NOTE_FILE
    from engine.choices import AcceleratorKind
    from engine.models.causal_lm.config import CausalConfig
    from engine.models.causal_lm.weights import expected_shapes
    from engine.models.dummy_causal import SHAPES, DummyWeights
    from kernels.program import ended

MODEL_TYPES = {"Qwen3ForCausalLM": "qwen3", "LlamaForCausalLM": "llama"}
COMMON = {
    "dtype": "bfloat16", "hidden_act": "silu", "rms_norm_eps": 1e-6, "attention_bias": False,
    "use_cache": True,
}  # fmt: skip


def write_random_model(shape: str, folder: Path, *, seed: int = 0) -> Path:
    """Write the folder, unless it is there; it is marked as random."""
    if (folder / NOTE_FILE).is_file():
        return folder
    document = SHAPES[shape]
    [architecture] = document["architectures"]  # type: ignore[misc]
    config = CausalConfig.from_document({**COMMON, **document}, where=shape)
    device = find_accelerator(AcceleratorKind.AUTO).device
    generator = torch.Generator(device).manual_seed(seed)
    weights = DummyWeights(expected_shapes(config), torch.bfloat16, generator)
    tensors = {name: weights.read(name).cpu() for name in weights.shapes}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    told = {**COMMON, **document, "model_type": MODEL_TYPES[architecture]}
    (folder / "config.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    (folder / NOTE_FILE).write_text(json.dumps({"kind": "random", "seed": seed}), encoding="utf-8")
    return folder


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="A model folder of a shape, random weights.")
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("folder", type=Path)
    found = parser.parse_args()
    sys.stdout.write(f"{write_random_model(found.shape, found.folder)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
