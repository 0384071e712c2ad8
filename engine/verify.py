"""Does the engine compute what a checkpoint says it should?

Exact caches (`fp32.*`) are judged twice: the model by itself, with the prompt prefilled at once,
in uneven chunks and token by token; and served by the engine beside other requests, with and
without drafts, in one and in many chunks (logits are compared as log-probabilities there).

Caches rounded to the released formats (`qdq.*`) are run at once and reported: where two scores
nearly tie, one flipped rounding changes a selection and with it whole rows, whatever the
implementation. `qdq.logits` is judged only on a checkpoint that is steady: one whose logits stay
in place when the weights are nudged by one float32 rounding, less than what summing in another
order does. Every row says why it is judged or only reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.golden import Golden
from engine.golden_outputs import Feeding, GoldenOutputs
from engine.golden_serving import feedings, served_keys
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.weights import load_weights
from engine.tokenizer import engram_token_map

if TYPE_CHECKING:
    from pathlib import Path

LOGITS_TOLERANCE = 5e-4  # absolute; logits of the golden checkpoints have a deviation of 3
SCALE_TOLERANCE = 5e-5  # other float keys: of the largest golden value of the key
QDQ_TOLERANCE = 5e-3  # absolute, per position
QDQ_SHARE = 0.9  # of positions that must lie within it
NUDGES = 16  # seeded draws
STEADY_SHARE = 0.95  # of positions in place, on average: half of what the judgement forgives


@dataclass(frozen=True, kw_only=True)
class KeyResult:
    """One golden key, compared.

    `difference` is the largest absolute one; for ids the number that differ. `share_within` is
    the share of positions within `tolerance`, where that is what is judged.
    """

    key: str
    feeding: Feeding
    difference: float
    tolerance: float
    judged: bool
    why: str  # it is judged, or only reported
    passed: bool
    share_within: float | None = None


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """Every comparison, in the order of the golden keys' computation."""

    model_dir: str
    rows: tuple[KeyResult, ...]

    @property
    def passed(self) -> bool:
        """Whether every judged row passed."""
        return all(row.passed for row in self.rows if row.judged)

    @property
    def failures(self) -> tuple[KeyResult, ...]:
        """The judged rows that did not pass."""
        return tuple(row for row in self.rows if row.judged and not row.passed)


def verify(model_dir: Path, *, device: torch.device | str = "cpu") -> VerifyReport:
    """Run the engine on a checkpoint that carries golden outputs and compare every key.

    CheckpointError where the checkpoint or its outputs are incomplete or misshapen.
    """
    config = DeepseekV41Config.load(model_dir)
    golden = Golden.load(model_dir)
    weights = load_weights(model_dir, config, dtype=torch.float32, device=device)
    outputs = GoldenOutputs(
        config=config,
        golden=golden,
        weights=weights,
        token_map=engram_token_map(model_dir, config),
        device=device,
    )
    exact = outputs.model(weights, released_caches=False)
    rows: list[KeyResult] = []
    for feeding in (Feeding.AT_ONCE, Feeding.UNEVEN, Feeding.SINGLY):
        rows += _compare(golden, feeding, outputs.all_keys(exact, feeding))
    for feeding in feedings(exact.facts):
        rows += _compare_served(golden, feeding, served_keys(exact, golden, feeding, device))
    rounded = outputs.all_keys(outputs.model(weights, released_caches=True), Feeding.AT_ONCE)
    kept = [_share_within(outputs.nudged_logits(i), rounded["logits"]) for i in range(NUDGES)]
    rows += _compare_rounded(golden, rounded, steady_share=sum(kept) / NUDGES)
    return VerifyReport(model_dir=str(model_dir), rows=tuple(rows))


def _compare(golden: Golden, feeding: Feeding, outputs: dict[str, Tensor]) -> list[KeyResult]:
    return [
        _judged(
            f"fp32.{name}",
            feeding,
            value.cpu(),
            golden.expected(f"fp32.{name}", tuple(value.shape)),
        )
        for name, value in outputs.items()
    ]


def _compare_served(
    golden: Golden, feeding: Feeding, outputs: dict[str, Tensor]
) -> list[KeyResult]:
    rows = []
    for name, value in outputs.items():
        key = f"fp32.{name}"
        expected = golden.expected(key, tuple(value.shape))
        is_ids = name.endswith(".ids")
        rows.append(_judged(key, feeding, value, expected if is_ids else expected.log_softmax(-1)))
    return rows


def _judged(key: str, feeding: Feeding, value: Tensor, expected: Tensor) -> KeyResult:
    difference = _difference(value, expected)
    tolerance = _tolerance(key, expected)
    return KeyResult(
        key=key,
        feeding=feeding,
        difference=difference,
        tolerance=tolerance,
        judged=True,
        why="exact caches are judged",
        passed=difference <= tolerance,
    )


def _tolerance(key: str, expected: Tensor) -> float:
    if key.endswith(".ids"):
        return 0.0
    if key.endswith(("logits", ".conf")):
        return LOGITS_TOLERANCE
    return SCALE_TOLERANCE * float(expected.abs().max())


def _compare_rounded(
    golden: Golden, outputs: dict[str, Tensor], *, steady_share: float
) -> list[KeyResult]:
    is_steady = steady_share >= STEADY_SHARE
    nudged = (
        f"nudged weights leave {steady_share:.1%} of positions in place, "
        f"{STEADY_SHARE:.0%} are asked for"
    )
    rows = []
    for name, value in outputs.items():
        key, found = f"qdq.{name}", value.cpu()
        expected = golden.expected(key, tuple(found.shape))
        is_ids = name.endswith(".ids")
        difference = _difference(found, expected)
        share = None if is_ids else _share_within(found, expected)
        rows.append(
            KeyResult(
                key=key,
                feeding=Feeding.AT_ONCE,
                difference=difference,
                tolerance=0.0 if is_ids else QDQ_TOLERANCE,
                judged=is_steady and name == "logits",
                why=nudged if name == "logits" else "one rounding may flip a selection",
                passed=difference == 0 if share is None else share >= QDQ_SHARE,
                share_within=share,
            )
        )
    return rows


def _difference(value: Tensor, expected: Tensor) -> float:
    """Largest absolute difference (infinite for a NaN); of ids, how many differ."""
    if not expected.is_floating_point():
        return float((value != expected).sum())
    gap = (value.double() - expected.double()).abs()
    return float(gap.nan_to_num(nan=torch.inf).amax()) if gap.numel() else 0.0


def _share_within(value: Tensor, expected: Tensor) -> float:
    """Share of positions whose values all lie within the tolerance for rounded caches."""
    gap = (value.double() - expected.double()).abs().reshape(len(value), -1).amax(1)
    return float((gap <= QDQ_TOLERANCE).double().mean())
