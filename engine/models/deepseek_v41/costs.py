"""The least work of one step, by part of the model: what a measured step is divided by.

Weights are counted as the release stores them, each once a step; of the routed experts those
that the rows chose, or, where that is not known, would choose evenly. Products of fp8 and mxfp4
weights count at the fp8 rate, since their inputs are rounded to fp8; attention at the bf16 rate.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.models.deepseek_v41.config import IndexMode
from engine.models.deepseek_v41.contract import Parameter, Storage, parameters, stored_tensors
from kernels.cost import Cost
from kernels.formats import FP4_GROUP16, FP4_GROUP32, FP8_GROUP32, row_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.models.deepseek_v41.config import DeepseekV41Config, LayerPlan

_ACTIVATION = 2  # bytes
_LOGIT = 4
_WIDE = frozenset({Storage.BF16, Storage.F32})  # multiplied at the bf16 rate


@dataclass(frozen=True, kw_only=True)
class StepSize:
    """Rows of a step, and how long the sequences are that they belong to."""

    rows: int
    decoder_rows: int  # of them, those that run the decoder half
    logit_rows: int
    context: int  # tokens that the last row sees
    sequences: int
    busy_experts: tuple[int, ...] | None = None  # that the rows chose, by layer


def step_costs(config: DeepseekV41Config, size: StepSize) -> dict[str, list[Cost]]:
    """Costs by part, one for every piece of work that can be at one limit only."""
    found: dict[str, list[Cost]] = defaultdict(list)
    for name, parameter in parameters(config).items():
        part = part_of(name) if len(parameter.shape) > 1 else None
        if part is not None:
            found[part].append(_product(name, parameter, config, size))
    for plan in config.layers:
        rows = _rows(plan.layer, config, size)
        found["mHC"].append(_streams(config, rows))
        found["attention"].append(_attention(config, plan, rows))
        found["indexer"] += _selection(config, plan, rows, size)
    return dict(found)


def part_of(name: str) -> str | None:
    """Of a weight that a forward multiplies by; None for tables and what only drafting reads."""
    if name.startswith("mtp.") and not name.endswith(("main_proj.weight", "attn.wkv.weight")):
        return None
    endings = {
        "embed.weight": None, "main_proj.weight": "draft context", "head.weight": "head",
        "ffn.gate.weight": "router", "_fn": "mHC", "q_weight": None, "k_weight": None,
    }  # fmt: skip
    for ending, part in endings.items():
        if name.endswith(ending):
            return part
    middles = {
        "mtp.": "draft context", ".engram.": "Engram", ".indexer.": "indexer",
        ".compressor.": "compressor", ".shared_experts.": "shared expert", ".experts.": "experts",
        ".attn.": "projections",
    }  # fmt: skip
    return next(part for middle, part in middles.items() if middle in name)


def _rows(layer: int, config: DeepseekV41Config, size: StepSize) -> int:
    return size.rows if layer < config.decoder_layer else size.decoder_rows


def _rows_of(name: str, config: DeepseekV41Config, size: StepSize) -> int:
    """Rows that a weight is multiplied by."""
    if name == "head.weight":
        return size.logit_rows
    if name.startswith("mtp."):
        return size.decoder_rows
    layer = int(name.split(".")[1])
    if ".compressor." in name or name.endswith(("indexer.wk.weight", "indexer.k_norm.weight")):
        return size.rows  # before the decoder half leaves rows out
    return _rows(layer, config, size)


def _product(
    name: str, parameter: Parameter, config: DeepseekV41Config, size: StepSize
) -> Cost:  # fmt: skip
    rows = float(_rows_of(name, config, size))
    held = sum(t.size_bytes for t in stored_tensors(name, parameter, config).values())
    share = 1.0
    if ".ffn.experts." in name:
        chance = config.num_experts_per_tok / config.n_routed_experts
        busy = size.busy_experts
        share = (
            1 - (1 - chance) ** rows
            if busy is None
            else busy[int(name.split(".")[1])] / config.n_routed_experts
        )
        rows *= chance
    outputs, inputs = parameter.shape[0], math.prod(parameter.shape[1:])
    moved = rows * (outputs + inputs) * _ACTIVATION
    return Cost(
        bytes=round(share * held + moved),
        flops=round(2 * rows * outputs * inputs),
        number="bf16" if parameter.storage in _WIDE else "fp8",
    )


def _streams(config: DeepseekV41Config, rows: int) -> Cost:
    """Twice: streams read and written, a sublayer's output read, its input written."""
    values = (2 * config.hc_mult + 2) * config.hidden_size
    return Cost(bytes=2 * rows * values * _ACTIVATION)


def _attention(config: DeepseekV41Config, plan: LayerPlan, rows: int) -> Cost:
    width, heads = config.head_dim, config.num_attention_heads
    chosen = config.index_topk if plan.ratio else 0
    keys = config.sliding_window * row_bytes(FP8_GROUP32, width)
    keys += chosen * row_bytes(FP4_GROUP16, width)
    seen = config.sliding_window + chosen
    return Cost(
        bytes=rows * (keys + 2 * heads * width * _ACTIVATION),
        flops=4 * rows * heads * width * seen,
    )


def _selection(
    config: DeepseekV41Config, plan: LayerPlan, rows: int, size: StepSize
) -> Iterator[Cost]:
    """Index keys of each sequence read once, every row scored against half of them in prefill."""
    if plan.mode not in (IndexMode.FULL, IndexMode.REINDEX):
        return
    keys = size.context // plan.ratio
    if plan.mode is IndexMode.REINDEX:
        keys = min(keys, config.candidate_topk_blocks * config.candidate_block_size)
    seen = keys if size.sequences == rows else keys // 2
    yield Cost(
        bytes=size.sequences * keys * row_bytes(FP4_GROUP32, config.index_head_dim),
        flops=2 * rows * config.index_n_heads * config.index_head_dim * seen,
    )
    yield Cost(bytes=2 * rows * seen * _LOGIT)
