"""Checks of kernels on a device as a run."""

from tests.fakes.foreign_files import imported, written

CHECK = {
    "format": "kernel check", "version": 1, "device": "NVIDIA H200", "driver": "570.1",
    "torch": "2.11", "triton": "3.6", "commit": "abc123", "share": "1/1",
    "results": [
        {"op": "rms_norm", "implementation": "triton", "dtype": dtype, "checks": 14,
         "passed": passed, "worst_error": 2e-3, "worst_limit": 4e-3, "worst_case": "width 64",
         "worst_rows": 5}
        for dtype, passed in (("float32", 14), ("bfloat16", 12))
    ],
    "failed": [{"op": "rms_norm", "why": "FAILED rms_norm triton bfloat16 5 rows"}],
    "cases": ["rms_norm: width 64"],
}  # fmt: skip


def test_every_implementation_of_an_operation_in_a_dtype_is_a_point(tmp_path):
    run = imported(tmp_path, written(tmp_path, "check.json", CHECK))
    assert run.summary.accelerator == "NVIDIA H200"
    assert run.origin["tool_version"] == "abc123"
    points = run.points()
    assert dict(zip(points["axis.dtype"], points["valid"], strict=True)) == {
        "float32": True, "bfloat16": False,
    }  # fmt: skip
    told = {one.key: one.value for one in run.trial(min(run.trial_ids())).foreign}
    assert told["checks"] == 14
    assert told["worst_error / worst_limit"] == 0.5
    assert run.origin["notes"] == ["FAILED rms_norm triton bfloat16 5 rows"]
