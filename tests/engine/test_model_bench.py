"""Whole steps beside their floors, on a small model and without a device."""

import json
from dataclasses import replace

import pytest
import torch

from engine.llm import LLM
from engine.model_bench import (
    StepTime,
    decode_batch,
    fill,
    lines,
    main,
    open_subject,
    prefill_batch,
)
from engine.models.deepseek_v41.contract import parameters
from engine.models.deepseek_v41.costs import StepSize, part_of, step_costs
from engine.models.dummy_v41 import V41DummySource
from engine.random_shapes import EIGHT_LAYERS, TOY
from engine.request import SamplingParams
from kernels.cost import Ceilings

CEILINGS = Ceilings(copy_bytes_s=4e12, bf16_flops_s=8e14, fp8_flops_s=16e14)


@pytest.fixture(scope="module")
def subject():
    source = V41DummySource(shape=TOY)
    return open_subject(source, sequences=3, context=70, accelerator="cpu", weights="packed")


def decode_size(rows, context=8192):
    return StepSize(
        rows=rows, decoder_rows=rows, logit_rows=rows, context=context, sequences=rows
    )  # fmt: skip


def test_eight_layers_have_every_role_at_the_widths_of_the_release():
    layers = V41DummySource(shape=EIGHT_LAYERS).config.layers
    roles = {(plan.ratio, plan.mode.value, plan.engram is not None) for plan in layers}
    assert roles == {
        (0, "window_only", False),
        (0, "window_only", True),
        (2, "full", False),
        (2, "reuse", False),
        (1, "full", False),
        (1, "reuse", False),
        (1, "reindex", False),
    }
    assert any(plan.draft_tap for plan in layers)
    assert any(plan.is_candidate_source for plan in layers)


def test_a_step_costs_every_weight_that_it_multiplies_by_once():
    config = V41DummySource(shape=EIGHT_LAYERS).config
    costs = step_costs(config, decode_size(100_000))
    held = sum(cost.bytes for cost in costs["experts"])
    moved = 100_000 * 6 * (3 * (5120 + 2304)) * 2 * 8
    assert held - moved == pytest.approx(8 * 384 * 3 * 5120 * 2304 * (0.5 + 1 / 32), rel=1e-6)


def test_one_row_costs_the_experts_that_it_chooses():
    config = V41DummySource(shape=EIGHT_LAYERS).config
    costs = step_costs(config, decode_size(1))
    chosen = 8 * 6 * 3 * 5120 * 2304 * (0.5 + 1 / 32)
    assert sum(c.bytes for c in costs["experts"]) == pytest.approx(chosen, rel=0.01)
    assert sum(c.flops for c in costs["experts"]) == pytest.approx(8 * 6 * 6 * 5120 * 2304)


def test_experts_that_were_counted_are_those_that_are_paid_for():
    config = V41DummySource(shape=EIGHT_LAYERS).config
    size = replace(decode_size(32), busy_experts=(10, 20, 0, 0, 0, 0, 0, 30))
    costs = step_costs(config, size)
    moved = 32 * 6 * 3 * (5120 + 2304) * 2 * 8
    held = 60 * 3 * 5120 * 2304 * (0.5 + 1 / 32)
    assert sum(c.bytes for c in costs["experts"]) - moved == pytest.approx(held, rel=1e-6)


def test_choices_of_experts_are_counted_by_layer(subject):
    batch = decode_batch(subject, 3, 70)
    counts = subject.busy.of(lambda: subject.model.forward(batch, subject.caches))
    assert len(counts) == 10
    assert all(2 <= count <= 6 for count in counts)


def test_only_tables_and_gate_weights_belong_to_no_part_of_a_forward():
    config = V41DummySource(shape=EIGHT_LAYERS).config
    matrices = {n: part_of(n) for n, p in parameters(config).items() if len(p.shape) > 1}
    assert {n for n, part in matrices.items() if part is None and not n.startswith("mtp.")} == {
        "embed.weight",
        "layers.1.engram.embed.weight",
        "layers.1.engram.q_weight",
        "layers.1.engram.k_weight",
    }
    drafting = {n for n, part in matrices.items() if part == "draft context"}
    assert drafting == {
        "mtp.0.main_proj.weight",
        *(f"mtp.{stage}.attn.wkv.weight" for stage in range(3)),
    }


def test_a_model_of_random_weights_decodes_and_prefills(subject):
    for batch in (decode_batch(subject, 3, 70), prefill_batch(subject, 70)):
        logits = subject.model.forward(batch, subject.caches).logits
        assert logits.shape == (len(batch.logit_rows), 512)
        assert logits.isfinite().all()
        assert logits.std() > 0.01


def test_caches_are_filled_with_numbers(subject):
    fill(subject.caches)
    for name, tensor in subject.caches.tensors.items():
        values = subject.caches.read(name, torch.arange(len(tensor)))
        assert values.isfinite().all()
        assert values.abs().amax(-1).min() > 0


def test_an_engine_serves_random_weights():
    with LLM(
        "random", source=V41DummySource(shape=TOY), accelerator="cpu", weights="packed"
    ) as llm:
        done = llm.generate([[1, 2, 3]], SamplingParams(temperature=0.0, max_tokens=4))
    assert len(done[0].token_ids) == 4


def test_a_step_is_told_with_its_floors_and_its_kernels():
    step = StepTime(
        name="decode 1 x 64", rows=1, context=64, captured=True, busy_experts=(6, 5), step_s=4e-6,
        floor_s={"experts": 1e-6, "head": 2e-6}, kernels={"gemm x3": 3e-6},
    )  # fmt: skip
    assert step.fraction == pytest.approx(0.75)
    told = "\n".join(lines(step))
    assert "4 us captured, floor 3 us, 0.75" in told
    assert "experts 1, head 2" in told
    assert "3.0 us  gemm x3" in told


def test_steps_are_written_as_they_are_timed_and_not_timed_again(tmp_path, capsys):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    arguments = ["--shape", "toy", "--accelerator", "cpu", "--weights", "packed", "--batch", "2",
                 "--context", "64"]  # fmt: skip
    main([*arguments, "--prefill", "0", "--json", str(first)])
    main([*arguments, "--prefill", "64", "--json", str(second), "--beside", str(first)])
    made = [json.loads(file.read_text()) for file in (first, second)]
    assert [[s["name"] for s in one["steps"]] for one in made] == [
        ["decode 2 x 64"],
        ["prefill 64"],
    ]
    assert made[0]["steps"][0]["step_s"] > 0
    assert made[0]["ceilings"]["copy_bytes_s"] > 0
