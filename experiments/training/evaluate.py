"""The checks that the shipped checkpoint is held to, one command each.

`python -m experiments.training.evaluate bits|rounding|drafts|confidence|replay` prints its
numbers as JSON and stores them in `--out` under its own name.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
import typer
from rich.console import Console

from engine.checkpoint_directory import resolve_model_dir
from engine.llm import LLM
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.weights import load_weights
from engine.tokenizer import engram_token_map
from experiments.training import (
    acceptance,
    confidence,
    packing,
    prompts,
    scoring,
    selection,
    stacks,
)
from experiments.training.forward import Operations, Target
from experiments.training.sizes import BLOCK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.llm import Completion

app = typer.Typer(add_completion=False, no_args_is_help=True)

ModelOption = Annotated[str, typer.Option("--model", help="Checkpoint directory or name.")]
DataOption = Annotated[Path, typer.Option("--data", help="Unpacked corpus.")]
OutOption = Annotated[Path, typer.Option("--out", help="JSON file that keeps the results.")]

_DATA = Path(".train/pack")
_OUT = Path(".train/evaluation.json")
_CONTEXT_TOKENS, _CONTINUED_TOKENS = 2000, 128
_CONFIDENCE_TOKENS, _ANCHOR_EVERY = 1024, 8


@app.command()
def bits(
    model: ModelOption = "nano",
    data: DataOption = _DATA,
    out: OutOption = _OUT,
    stride: Annotated[int, typer.Option(help="Score each n-th chunk.")] = 1,
) -> None:
    """Bits per byte of held-out text by kind, beside the baselines if they were measured."""
    scores = _scores(model, packing.load(data), stride)
    rows: dict[str, object] = {kind: _row(part) for kind, part in scores.items()}
    _keep(out, "bits", {"chunk_tokens": scoring.CHUNK_TOKENS, "stride": stride, **rows})


@app.command()
def rounding(
    master: Annotated[str, typer.Option(help="The bf16 master's directory.")],
    model: ModelOption = "nano",
    data: DataOption = _DATA,
    out: OutOption = _OUT,
    stride: Annotated[int, typer.Option(help="Score each n-th chunk.")] = 6,
) -> None:
    """What quantisation costs: bits per byte as shipped against the bf16 master."""
    pack = packing.load(data)
    shipped = _scores(model, pack, stride)["all"].bits_per_byte
    exact = _scores(master, pack, stride)["all"].bits_per_byte
    _keep(
        out,
        "rounding",
        {"shipped": shipped, "master": exact, "change": shipped / exact - 1, "stride": stride},
    )


@app.command()
def drafts(
    model: ModelOption = "nano",
    data: DataOption = _DATA,
    out: OutOption = _OUT,
    count: Annotated[int, typer.Option(help="Prompts of each kind.")] = 40,
    tokens: Annotated[int, typer.Option(help="Tokens generated a prompt.")] = 128,
) -> None:
    """Acceptance of greedy drafts on held-out prompts."""
    pack, everything = packing.load(data), []
    rows: dict[str, object] = {}
    for kind in sorted(pack.held_out):
        asked = prompts.openings(pack, kind, count)
        outputs = acceptance.generate(
            resolve_model_dir(model), asked, draft_length=BLOCK, tokens=tokens
        )
        rows[kind] = asdict(acceptance.summarise(outputs))
        everything += outputs
    rows["all"] = asdict(acceptance.summarise(everything))
    _keep(out, "drafts", {"draft_length": BLOCK, "tokens": tokens, **rows})


@app.command("confidence")
def confidence_(
    model: ModelOption = "nano",
    data: DataOption = _DATA,
    out: OutOption = _OUT,
    count: Annotated[int, typer.Option(help="Stretches of each kind, half to calibrate on.")] = 24,
) -> None:
    """Fit the temperatures on one half of the held-out stretches, measure on the other."""
    halves = _observed(resolve_model_dir(model), packing.load(data), count)
    temperatures = confidence.calibrate(halves[0])
    plain = [1.0] * len(temperatures)
    _keep(
        out,
        "confidence",
        {
            "temperatures": temperatures,
            "blocks": [len(half.logits) for half in halves],
            "bins": confidence.BINS,
            "error_before": confidence.survival_errors(halves[1], plain),
            "error": confidence.survival_errors(halves[1], temperatures),
            "error_on_calibration_split": confidence.survival_errors(halves[0], temperatures),
            "mean_overlap": halves[1].overlap.mean(0).tolist(),
        },
    )


@app.command()
def replay(
    model: ModelOption = "nano",
    data: DataOption = _DATA,
    out: OutOption = _OUT,
    count: Annotated[int, typer.Option(help="Prompts of each kind.")] = 12,
) -> None:
    """Continue 2,000-token prompts with and without decoder truncation."""
    pack = packing.load(data)
    window = DeepseekV41Config.load(resolve_model_dir(model)).sliding_window
    length = _CONTEXT_TOKENS + _CONTINUED_TOKENS
    texts = [
        text
        for kind in sorted(pack.held_out)
        for text in prompts.stretches(pack, kind, length, count)
    ]
    keep = window + BLOCK + 1
    with LLM(model, replay_mode="off") as whole, LLM(model, replay_keep_tokens=keep) as cut:
        exact, truncated = (_continued(llm, texts) for llm in (whole, cut))
    exact_nats, truncated_nats = _nats(exact), _nats(truncated)
    flips = [a != b for a, b in zip(_best(exact), _best(truncated), strict=True)]
    _keep(
        out,
        "replay",
        {
            "keep_tokens": keep,
            "prompts": len(texts),
            "bits_per_token_full": exact_nats / len(flips) / math.log(2),
            "bits_per_token_replayed": truncated_nats / len(flips) / math.log(2),
            "change_of_bits_per_byte": truncated_nats / exact_nats - 1,
            "token_flip_rate": sum(flips) / len(flips),
        },
    )


def _scores(model: str, pack: packing.Pack, stride: int) -> dict[str, scoring.Score]:
    counts = pack.manifest["counts"]
    assert isinstance(counts, dict)
    scores = {}
    with LLM(model, replay_mode="off", draft_length=0) as llm:
        for kind in sorted(pack.held_out):
            told = counts["heldout"][kind]
            per_token = told["text_bytes"] / told["tokens"]
            chunks = scoring.chunks(pack.held_out[kind], stride)
            scores[kind] = scoring.score(llm, chunks, per_token)
    return {**scores, "all": scoring.weighted(scores)}


def _row(part: scoring.Score) -> dict[str, float]:
    return {"bits_per_byte": part.bits_per_byte, "tokens": part.tokens}


def _observed(
    model_dir: Path, pack: packing.Pack, count: int
) -> tuple[confidence.Observed, confidence.Observed]:
    config = DeepseekV41Config.load(model_dir)
    weights = load_weights(model_dir, config, dtype=torch.float32, device="cpu")
    groups = stacks.layout(config)
    table = stacks.views(stacks.stack(weights, groups), groups)
    do = Operations(top=selection.fast_top)
    target = Target(config, engram_token_map(model_dir, config), do, torch.device("cpu"))
    halves: tuple[list[confidence.Observed], list[confidence.Observed]] = ([], [])
    rng = np.random.default_rng(0)
    for kind in sorted(pack.held_out):
        for number, text in enumerate(prompts.stretches(pack, kind, _CONFIDENCE_TOKENS, count)):
            places = np.arange(0, len(text), _ANCHOR_EVERY)
            places += rng.integers(0, _ANCHOR_EVERY, len(places))
            anchors = torch.from_numpy(places.clip(1, len(text) - BLOCK - 1)).unsqueeze(0)
            tokens = torch.tensor(text).unsqueeze(0)
            halves[number % 2].append(confidence.observe(target, table, tokens, anchors))
    return confidence.joined(halves[0]), confidence.joined(halves[1])


def _continued(llm: LLM, texts: Sequence[list[int]]) -> list[Completion]:
    return scoring.forced(
        llm,
        [text[:_CONTEXT_TOKENS] for text in texts],
        [text[_CONTEXT_TOKENS:] for text in texts],
    )


def _nats(done: Sequence[Completion]) -> float:
    return -math.fsum(entry.logprob for one in done for entry in one.logprobs)


def _best(done: Sequence[Completion]) -> list[int]:
    return [entry.top[0][0] for one in done for entry in one.logprobs]


def _keep(out: Path, name: str, result: Mapping[str, object]) -> None:
    stored = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    stored[name] = result
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    Console().print_json(json.dumps(result))


if __name__ == "__main__":
    app()
