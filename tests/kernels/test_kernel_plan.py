"""Which kernels serve a model, and why not others."""

from dataclasses import replace

import pytest

from kernels import ops
from kernels.plan import KernelError, resolve
from kernels.registry import IMPLEMENTATIONS, ModelShape
from kernels.target import CPU, KernelChoice, Mode, Target

HOPPER = Target(device_type="cuda", arch=90, has_triton=True)
FLASH = ModelShape(
    dtype="bfloat16", width=5120, head_dim=512, streams=4, experts=384, index_dim=128
)
QWEN3 = ModelShape(dtype="bfloat16", width=1024, head_dim=128, streams=1)


def by_op(plan):
    return {d.op: (d.implementation, d.reason) for d in plan.decisions}


def test_a_cpu_is_served_by_the_definitions_and_the_plan_says_why():
    plan = resolve(CPU, FLASH, KernelChoice.AUTO)
    assert plan.ops == ops.REFERENCE
    assert by_op(plan)["mixes"] == ("reference", "Triton kernels do not run on cpu")


def test_hopper_gets_every_kernel_that_there_is_where_all_are_asked_for():
    pytest.importorskip("triton", reason="triton is not installed")
    plan = resolve(HOPPER, FLASH, KernelChoice.TRITON)
    plans = (plan, resolve(HOPPER, QWEN3, KernelChoice.TRITON))
    found = {op for p in plans for op, (name, _) in by_op(p).items() if name != "reference"}
    assert found == {i.op for i in IMPLEMENTATIONS}
    assert by_op(plan)["attend_fresh"][1] == "heads of 512, powers of two from 16 to 128 are served"
    assert plan.ops.mixes.__module__ == "kernels.hyper_connection.triton_cuda"


def test_only_what_a_device_has_run_is_taken_unasked_on_cuda(monkeypatch):
    pytest.importorskip("triton", reason="triton is not installed")
    new = [replace(i, checked_on=(), used_on=()) for i in IMPLEMENTATIONS if i.op == "expand"]
    monkeypatch.setattr("kernels.plan.IMPLEMENTATIONS", tuple(new))
    (found,) = [d for d in resolve(HOPPER, FLASH, KernelChoice.AUTO).decisions if d.op == "expand"]
    assert (found.implementation, found.evidence) == ("reference", None)
    assert found.reason == "triton: no device has run it yet; kernels: triton takes it"
    plan = resolve(HOPPER, FLASH, KernelChoice.TRITON)
    (asked,) = [d for d in plan.decisions if d.op == "expand"]
    assert (asked.implementation, asked.reason) == ("triton", None)
    assert asked.evidence == "no device has run it yet"


def test_what_is_new_gives_way_to_what_has_run_and_the_plan_says_so(monkeypatch):
    pytest.importorskip("triton", reason="triton is not installed")
    (old,) = [i for i in IMPLEMENTATIONS if i.op == "expand"]
    new = replace(old, name="gluon", checked_on=())
    monkeypatch.setattr("kernels.plan.IMPLEMENTATIONS", (new, old))
    (found,) = [d for d in resolve(HOPPER, FLASH, KernelChoice.AUTO).decisions if d.op == "expand"]
    assert (found.implementation, found.evidence) == ("triton", "checked on sm_90")
    assert found.reason == "gluon: no device has run it yet; kernels: triton takes it"


def test_of_two_that_are_checked_the_first_serves():
    pytest.importorskip("triton", reason="triton is not installed")
    found = by_op(resolve(HOPPER, FLASH, KernelChoice.AUTO))
    assert found["verify"] == found["route"] == ("triton", None)
    first, *_ = (i.name for i in IMPLEMENTATIONS if i.op == "run_experts" and i.checked_on)
    assert found["run_experts"][0] == first


def test_the_plan_tells_what_was_checked_from_what_whole_models_used(monkeypatch):
    pytest.importorskip("triton", reason="triton is not installed")
    used = [
        replace(i, checked_on=(), used_on=("sm_90",)) if i.op == "rotate" else i
        for i in IMPLEMENTATIONS
    ]
    monkeypatch.setattr("kernels.plan.IMPLEMENTATIONS", tuple(used))
    found = {d.op: d.evidence for d in resolve(HOPPER, FLASH, KernelChoice.AUTO).decisions}
    assert found["expand"] == "checked on sm_90"
    assert found["rotate"] == "used by whole models on sm_90"
    assert found["attend_fresh"] is None, "it is the definition, for heads of 512"


def test_a_shape_that_does_not_suit_one_kernel_keeps_the_others():
    pytest.importorskip("triton", reason="triton is not installed")
    shape = ModelShape(dtype="float32", width=5120, head_dim=512, streams=8)
    found = by_op(resolve(HOPPER, shape, KernelChoice.TRITON))
    assert found["rms_norm"] == ("triton", None)
    assert found["expand"] == ("reference", "8 residual streams, 2 to 5 are supported")


def test_rows_that_no_packed_kernel_can_read_are_attended_to_by_the_definition():
    pytest.importorskip("triton", reason="triton is not installed")
    narrow = ModelShape(dtype="bfloat16", width=64, head_dim=48, streams=2, experts=4, index_dim=32)
    found = by_op(resolve(HOPPER, narrow, KernelChoice.TRITON))
    why = "cached rows of 48 values, powers of two to 512 are supported"
    assert found["attend_turned"] == found["insert_rows"] == ("reference", why)
    wide = ModelShape(dtype="float32", width=64, head_dim=256, streams=2, experts=4, index_dim=32)
    found = by_op(resolve(HOPPER, wide, KernelChoice.TRITON))
    assert found["attend_turned"] == ("reference", "float32 heads wider than 128")
    assert found["insert_rows"] == ("triton", None)


@pytest.mark.parametrize(
    ("target", "dtype", "head_dim", "name"),
    [
        (HOPPER, "bfloat16", 512, "gluon"),
        (HOPPER, "bfloat16", 64, "triton"),
        (HOPPER, "float32", 64, "triton"),
        (Target(device_type="cuda", arch=100, has_triton=True), "bfloat16", 512, "triton"),
    ],
)
def test_attention_written_for_hopper_serves_the_heads_that_it_is_written_for(
    target, dtype, head_dim, name
):
    pytest.importorskip("triton", reason="triton is not installed")
    shape = replace(FLASH, dtype=dtype, head_dim=head_dim)
    assert by_op(resolve(target, shape, KernelChoice.AUTO))["attend_turned"] == (name, None)


def test_reference_is_the_definitions_whatever_the_device():
    assert resolve(HOPPER, FLASH, KernelChoice.REFERENCE).ops == ops.REFERENCE


@pytest.mark.parametrize(
    ("target", "dtype", "why"),
    [
        (CPU, "bfloat16", "do not run on cpu"),
        (Target(device_type="cuda", arch=90), "bfloat16", "triton is not installed"),
        (HOPPER, "float64", "float64 is computed by the definition"),
    ],
)
def test_triton_is_refused_where_it_cannot_run(target, dtype, why):
    shape = ModelShape(dtype=dtype, width=64, head_dim=16, streams=2)
    with pytest.raises(KernelError, match=why):
        resolve(target, shape, KernelChoice.TRITON)


def test_every_implementation_names_an_operation():
    for implementation in IMPLEMENTATIONS:
        assert hasattr(ops.REFERENCE, implementation.op)


def test_an_invariant_plan_takes_only_what_leaves_a_row_alone_and_names_what_does_not():
    pytest.importorskip("triton", reason="triton is not installed")
    plan = resolve(HOPPER, FLASH, KernelChoice.TRITON, Mode.INVARIANT)
    found = by_op(plan)
    assert {op for op, (name, _) in found.items() if name == "reference"} == set(plan.varying)
    assert {"linear", "run_experts", "rms_norm", "attend_turned"}.isdisjoint(plan.varying)
    assert found["linear"][0] == "invariant"
    assert found["run_experts"][0] in ("gluon invariant", "invariant")
    assert found["between_sublayers"][0] == "invariant"
    assert found["attend_turned"][0] == found["rms_norm"][0] == "triton"
    assert plan.ops.linear.__module__ == "kernels.matmul.triton_invariant"
    fast = resolve(HOPPER, FLASH, KernelChoice.TRITON)
    assert {"linear", "run_experts", "attend_turned"} <= set(fast.varying)


def test_an_invariant_plan_takes_unasked_only_what_a_device_has_run(monkeypatch):
    pytest.importorskip("triton", reason="triton is not installed")
    new = [replace(i, checked_on=()) if i.op == "linear" else i for i in IMPLEMENTATIONS]
    monkeypatch.setattr("kernels.plan.IMPLEMENTATIONS", tuple(new))
    plan = resolve(HOPPER, FLASH, KernelChoice.AUTO, Mode.INVARIANT)
    assert by_op(plan)["linear"] == (
        "reference",
        "invariant: no device has run it yet; kernels: triton takes it",
    )
    assert "linear" in plan.varying
    assert by_op(plan)["rms_norm"][0] == "triton"


def test_of_definitions_nothing_is_promised():
    plan = resolve(CPU, FLASH, KernelChoice.AUTO, Mode.INVARIANT)
    assert set(plan.varying) == {d.op for d in plan.decisions}
