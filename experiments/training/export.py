"""From master weights to a checkpoint as it ships.

`python -m experiments.training.export --config nano` writes config.json, model.safetensors and
tokenizer.json in the released form: fp8 blocks, mxfp4 experts, bf16 and fp32 as the contract
says. The masters are not shipped, so what rounding cost is measured here (`measures.json`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from rich.console import Console
from safetensors.torch import save_file

from engine.models.deepseek_v41.contract import Parameter, Storage, parameters, tile
from engine.tokenizer import TOKENIZER_FILE
from experiments.training import packing, recipe, sizes, stacks, store, train
from kernels.quantize.reference import quantise_fp8_blocks, quantise_mxfp4

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from engine.models.deepseek_v41.config import DeepseekV41Config


def released(weights: Mapping[str, Tensor], config: DeepseekV41Config) -> dict[str, Tensor]:
    """Return the tensors that a released checkpoint holds, from float32 ones by released name."""
    table: dict[str, Tensor] = {}
    for name, parameter in parameters(config).items():
        table |= _stored(name, weights[name], parameter, config)
    return table


def _stored(
    name: str, weight: Tensor, parameter: Parameter, config: DeepseekV41Config
) -> dict[str, Tensor]:
    if parameter.storage is Storage.F32:
        return {name: weight.float().contiguous()}
    if parameter.storage is Storage.BF16:
        return {name: weight.bfloat16().contiguous()}
    if parameter.storage is Storage.MXFP4:
        values, scale = quantise_mxfp4(weight)
    else:
        values, scale = quantise_fp8_blocks(weight, tile(parameter, config))
    return {name: values.contiguous(), name.removesuffix(".weight") + ".scale": scale.contiguous()}


def plain(weights: Mapping[str, Tensor], config: DeepseekV41Config) -> dict[str, Tensor]:
    """Return the same weights unquantised, bf16 where the release rounds: the bf16 master."""
    return {
        name: (
            weights[name].float() if p.storage is Storage.F32 else weights[name].bfloat16()
        ).contiguous()
        for name, p in parameters(config).items()
    }


def compact_tokenizer(source: Path) -> str:
    """A tokenizer.json without white space between its items, equal to the one of `source`."""
    document = json.loads(source.read_text(encoding="utf-8"))
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def write(
    folder: Path,
    tensors: Mapping[str, Tensor],
    document: Mapping[str, object],
    tokenizer_file: Path,
) -> None:
    """Write a checkpoint directory (existing files are replaced)."""
    folder.mkdir(parents=True, exist_ok=True)
    config_text = json.dumps(document, indent=1) + "\n"
    (folder / "config.json").write_text(config_text, encoding="utf-8")
    tokenizer = compact_tokenizer(tokenizer_file)
    (folder / TOKENIZER_FILE).write_text(tokenizer, encoding="utf-8")
    save_file(dict(tensors), folder / "model.safetensors")


def export(plan: recipe.Recipe, pack: packing.Pack, masters: Path, folder: Path) -> None:
    """Write the shipped checkpoint to `folder` and its bf16 master beside it (`-master`)."""
    tokens = train.facts(pack.manifest)
    config = sizes.model_config(plan.sizes, tokens)
    document = sizes.document(plan.sizes, tokens)
    weights = stacks.unstack(store.load_masters(masters), stacks.layout(config))
    write(folder, released(weights, config), document, pack.tokenizer_file)
    unquantised = {key: value for key, value in document.items() if key != "quantization_config"}
    write(
        folder.with_name(f"{folder.name}-master"),
        plain(weights, config),
        unquantised,
        pack.tokenizer_file,
    )


def _main(
    config: Annotated[str, typer.Option(help="Recipe.")] = "nano",
    data: Annotated[Path, typer.Option(help="Unpacked corpus.")] = Path(".train/pack"),
    masters: Annotated[Path, typer.Option(help="Master weights.")] = Path(".train/masters"),
    out: Annotated[Path, typer.Option(help="Checkpoint to write.")] = Path(".train/nano"),
) -> None:
    torch.set_grad_enabled(False)
    export(recipe.find(config), packing.load(data), masters, out)
    size = sum(path.stat().st_size for path in out.iterdir())
    Console().print(f"{out}: {size} bytes")


if __name__ == "__main__":
    typer.run(_main)
