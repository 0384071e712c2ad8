"""Compile every kernel for devices that need not be here: `python -m kernels.aot`.

For each kernel, at the sizes of the release, for sm_90 and sm_100: registers, spilled bytes,
shared memory and matrix instructions, held against `configs/budget.json`. `--write` records what
is found as the new budget. Exit code 1 where a kernel does not compile or exceeds its budget.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

BUDGET = Path(__file__).parent / "configs" / "budget.json"
ARCHITECTURES = (90, 100)
POINTERS = ("*bf16", "*fp32")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A kernel with the types of its arguments, as its launcher starts it."""

    address: str  # module:kernel
    types: Mapping[str, str]
    constants: Mapping[str, object] = field(default_factory=dict)
    warps: int = 4

    @property
    def name(self) -> str:
        """`rms_norm_kernel BLOCK=8192`."""
        told = " ".join(f"{k}={v}" for k, v in self.constants.items())
        return f"{self.address.rpartition(':')[2]} {told}".strip()


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a compiled kernel takes. Bytes a thread for spills, bytes a block for shared memory."""

    registers: int
    spill_bytes: int
    shared_bytes: int


def _pointers(names: str, kind: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), kind)


def launches() -> Iterator[Launch]:
    """Every kernel at the sizes of DeepSeek-V4.1-Flash."""
    hyper = "kernels.hyper_connection.triton_cuda"
    yield Launch(
        address="kernels.norm.triton_cuda:rms_norm_kernel",
        types=_pointers("x out", "*bf16")
        | {"weight": "*fp32", "row_stride": "i32", "width": "i32", "eps": "fp32"},
        constants={"BLOCK": 8192},
        warps=8,
    )
    yield Launch(
        address="kernels.activation.triton_cuda:swiglu_kernel",
        types=_pointers("gate_up out", "*bf16")
        | {"weight": "*fp32", "width": "i32", "blocks": "i32", "limit": "fp32"},
        constants={"HAS_WEIGHT": True, "BLOCK": 1024},
    )
    yield Launch(
        address="kernels.rotary.triton_cuda:rotate_kernel",
        types=_pointers("x out", "*bf16")
        | _pointers("cos sin", "*fp32")
        | _pointers("heads row_stride head_stride dim width turn_stride", "i32"),
        constants={"BLOCK": 512},
        warps=1,
    )
    yield Launch(
        address=f"{hyper}:partial_kernel",
        types=_pointers("streams", "*bf16")
        | _pointers("fn partial", "*fp32")
        | _pointers("rows columns outputs", "i32"),
        constants={"NARROW": True, "GROUP": 8, "OUT": 32, "ROWS": 64, "SLICE": 320, "BLOCK": 32},
        warps=8,
    )
    yield Launch(
        address=f"{hyper}:finish_kernel",
        types=_pointers("partial base scale pre post matrix", "*fp32")
        | _pointers("rows columns groups iterations", "i32")
        | _pointers("norm_eps eps", "fp32"),
        constants={"MEMBERS": 8, "N": 4, "N2": 4, "OUT": 32},
        warps=1,
    )
    yield Launch(
        address=f"{hyper}:collapse_norm_kernel",
        types=_pointers("streams out", "*bf16")
        | _pointers("pre weight", "*fp32")
        | {"width": "i32", "eps": "fp32"},
        constants={"N": 4, "BLOCK": 8192},
        warps=8,
    )
    yield Launch(
        address=f"{hyper}:expand_kernel",
        types=_pointers("y streams out", "*bf16")
        | _pointers("post matrix", "*fp32")
        | _pointers("width blocks", "i32"),
        constants={"N": 4, "BLOCK": 1024},
    )


def compiled(launch: Launch, arch: int) -> Resources:
    """Compile for an architecture; raises what the compiler raises."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module, _, name = launch.address.partition(":")
    kernel = getattr(__import__(module, fromlist=[name]), name)
    constants = {(kernel.arg_names.index(k),): v for k, v in launch.constants.items()}
    signature = {
        n: "constexpr" if n in launch.constants else launch.types[n] for n in kernel.arg_names
    }
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, n in enumerate(kernel.arg_names)
        if launch.types.get(n) in POINTERS
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    made = triton.compile(
        source, target=GPUTarget("cuda", arch, 32), options={"num_warps": launch.warps}
    )
    registers, spilled = _usage(made.asm["cubin"])
    return Resources(registers=registers, spill_bytes=spilled, shared_bytes=made.metadata.shared)


def _usage(cubin: bytes) -> tuple[int, int]:
    """Registers and stack bytes of a thread, as the tool of the Triton package tells them."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", told)
    assert found is not None, f"cuobjdump said: {told[:500]}"
    return int(found[1]), int(found[2])


def over(found: Resources, budget: Mapping[str, int]) -> list[str]:
    """What exceeds the budget, in words."""
    return [
        f"{name} {value} > {budget[name]}"
        for name, value in asdict(found).items()
        if value > budget[name]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m kernels.aot", description=__doc__)
    parser.add_argument("--write", action="store_true", help="record the findings as the budget")
    write = parser.parse_args(arguments).write
    found = {f"{one.name} sm_{a}": compiled(one, a) for one in launches() for a in ARCHITECTURES}
    if write:
        BUDGET.parent.mkdir(exist_ok=True)
        text = json.dumps({name: asdict(r) for name, r in found.items()}, indent=1)
        BUDGET.write_text(text + "\n")
    budget = json.loads(BUDGET.read_text())
    failed = False
    for name, resources in found.items():
        excess = over(resources, budget[name]) if name in budget else ["it has no budget"]
        failed = failed or bool(excess)
        told = " ".join(f"{k}={v}" for k, v in asdict(resources).items())
        print(f"{name:60} {told}  {'; '.join(excess)}")  # noqa: T201
    print("over budget" if failed else "all within budget")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
