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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kernels.launches import POINTERS, Launch, launches
from kernels.launches_causal import causal_launches
from kernels.launches_elementwise import elementwise_launches

BUDGET = Path(__file__).parent / "configs" / "budget.json"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a compiled kernel takes. Bytes a thread for spills, bytes a block for shared memory."""

    registers: int
    spill_bytes: int
    shared_bytes: int


def compiled(launch: Launch, arch: int) -> Resources:
    """Compile for an architecture; raises what the compiler raises."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    module, _, name = launch.address.partition(":")
    kernel = getattr(__import__(module, fromlist=[name]), name)
    constants = {(kernel.arg_names.index(k),): v for k, v in launch.constants.items()}
    signature = {
        n: "constexpr" if n in launch.constants else launch.types[n] for n in kernel.arg_names
    }
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, n in enumerate(kernel.arg_names)
        if launch.types.get(n) in POINTERS or n in launch.even
    }
    language = GluonASTSource if kernel.is_gluon() else ASTSource
    source = language(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=launch.options)
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
    every = (*launches(), *causal_launches(), *elementwise_launches())
    found = {f"{one.name} sm_{a}": compiled(one, a) for one in every for a in one.architectures}
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
