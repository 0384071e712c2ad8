"""Compiling beforehand what is timed later: every implementation at every size, once."""

from dataclasses import replace

import torch

from kernels import warm
from kernels.cases import SMALL_CASES
from kernels.ops import REFERENCE
from kernels.registry import Implementation, Needs

CPU = torch.device("cpu")
NORM = next(case for case in SMALL_CASES if case.op == "rms_norm")


def test_every_implementation_is_launched_at_every_size_and_what_raises_is_told(monkeypatch):
    seen = []

    def run(x, weight, eps):
        seen.append((len(x), x.dtype))
        if len(x) == 32:
            raise RuntimeError("no such instruction")
        return REFERENCE.rms_norm(x, weight, eps)

    ours = Implementation(op="rms_norm", name="ours", address="", unsuited=lambda *_: None)
    other = Implementation(op="swiglu", name="ours", address="", unsuited=lambda *_: None)
    monkeypatch.setattr(warm, "IMPLEMENTATIONS", (ours, other))
    monkeypatch.setattr(warm, "load", lambda implementation: run)
    [told] = warm.warm([NORM], CPU)
    assert seen == [(rows, torch.bfloat16) for rows in NORM.timed_rows]
    assert told.startswith("FAILED rms_norm ours 32 rows")
    assert "no such instruction" in told
    assert warm.main(["--device", "cpu", "--small", "--op", "rms_norm"]) == 1


def test_what_is_written_for_one_kind_of_weights_is_launched_on_cases_of_that_kind(monkeypatch):
    seen = []
    ours = Implementation(
        op="rms_norm", name="ours", address="", unsuited=lambda *_: None,
        needs=Needs(dtype="bfloat16", weights="tiles"),
    )  # fmt: skip
    monkeypatch.setattr(warm, "IMPLEMENTATIONS", (ours,))
    monkeypatch.setattr(warm, "load", lambda implementation: lambda x, *_: seen.append(len(x)))
    assert list(warm.warm([NORM, replace(NORM, weights="tiles", timed_rows=(7,))], CPU)) == []
    assert seen == [7]
