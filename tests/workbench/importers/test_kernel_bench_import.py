"""A bench of kernels, and one of whole steps, as runs."""

import copy
from dataclasses import asdict

import pytest

from kernels.bench import FORMAT, Missing, Timing, add_to
from kernels.bench_document import BenchDocument
from kernels.cost import Ceilings, Cost
from tests.fakes.foreign_files import imported, written
from workbench.errors import ForeignFileError
from workbench.report import report_files

CEILINGS = Ceilings(copy_bytes_s=4e12, bf16_flops_s=8e14, fp8_flops_s=16e14)
ABOUT = {"device": "NVIDIA H200", "driver": "570.1", "torch": "2.11", "triton": "3.6",
         "commit": "abc123"}  # fmt: skip


def timing(implementation, cold_s, *, is_peer=False, rows=128):
    return Timing(
        op="rms_norm", case="width 5120", rows=rows, implementation=implementation,
        is_peer=is_peer, cold_s=cold_s, warm_s=cold_s / 2, floor_s=1e-6,
        cost=Cost(bytes=4_000_000),
    )  # fmt: skip


def bench():
    told = [
        timing("triton", 2e-6),
        timing("slow peer", 8e-6, is_peer=True),
        timing("torch", 3e-6, is_peer=True),
        timing("triton", 4e-6, rows=1),
        Missing(op="swiglu", case="width 8", rows=1, implementation="other", why="absent"),
    ]
    document = BenchDocument(None, {"format": FORMAT, **ABOUT, "ceilings": asdict(CEILINGS)})
    add_to(document, told)
    return document.value()


STEPS = {
    "format": "model bench", "version": 1, **ABOUT, "ceilings": {"copy_bytes_s": 4e12},
    "steps": [{"name": "decode 32 x 8192", "rows": 32, "context": 8192, "captured": True,
               "step_s": 1e-2, "floor_s": {"experts": 5e-3, "head": 1e-3},
               "kernels": {"gemm x8": 7e-3}}],
}  # fmt: skip


def test_a_kernel_bench_is_a_run_of_every_case_and_implementation(tmp_path):
    run = imported(tmp_path, written(tmp_path, "bench.json", bench()))
    assert run.summary.accelerator == "NVIDIA H200"
    assert run.origin["tool_version"] == "abc123"
    points = run.points()
    assert len(points) == 4
    ours = points[(points["axis.implementation"] == "triton") & (points["axis.rows"] == 128)]
    assert ours["call_s"].item() == 2e-6
    assert ours["call_warm_s"].item() == 1e-6
    assert ours["floor_fraction"].item() == pytest.approx(0.5)
    assert ours["peer_s"].item() == 3e-6
    assert ours["peer_ratio"].item() == pytest.approx(1.5)
    assert "torch cold_s" in ours["peer_s.basis"].item()


def test_a_case_without_a_peer_has_none(tmp_path):
    points = imported(tmp_path, written(tmp_path, "bench.json", bench())).points()
    assert points[points["axis.rows"] == 1]["peer_s"].isna().all()
    assert points[points["axis.implementation"] == "torch"]["peer_s"].isna().all()


def test_ceilings_and_gaps_are_told_with_the_run(tmp_path):
    notes = imported(tmp_path, written(tmp_path, "bench.json", bench())).origin["notes"]
    assert any("copy_bytes_s 4e+12" in note for note in notes)
    assert "not timed: swiglu width 8 1 other: absent" in notes


def test_a_step_of_a_whole_model_has_the_sum_of_its_floors(tmp_path):
    run = imported(tmp_path, written(tmp_path, "steps.json", STEPS))
    points = run.points()
    assert points["call_s"].item() == 1e-2
    assert points["floor_s"].item() == pytest.approx(6e-3)
    assert points["floor_fraction"].item() == pytest.approx(0.6)
    (trial,) = run.trial_ids()
    parts = {one.key: one.value for one in run.trial(trial).foreign}
    assert parts["floor of experts"] == 5e-3
    assert parts["kernel gemm x8"] == 7e-3


def test_a_damaged_bench_is_refused_or_read_as_far_as_it_goes(tmp_path):
    with pytest.raises(ForeignFileError, match="without a result"):
        imported(tmp_path, written(tmp_path, "none.json", {"format": "kernel bench"}))
    odd = copy.deepcopy(bench())
    odd["timings"][0] |= {"cold_s": "nan", "floor_s": None, "cost": 7}
    points = imported(tmp_path, written(tmp_path, "odd.json", odd)).points()
    assert points["call_s"].isna().sum() == 1


def test_a_report_tells_a_kernel_bench_by_its_own_metrics(tmp_path):
    run = imported(tmp_path, written(tmp_path, "bench.json", bench()))
    told = report_files(run)["report.md"].decode()
    assert "Of the floor" in told
    assert "tok_s_user" not in told
