"""Compile every kernel for devices that need not be here: `python -m kernels.aot`.

For each kernel, at the sizes of the release, for sm_90 and sm_100: registers, spilled bytes,
shared memory, held against `configs/budget/FAMILY.json`. `--write` makes what is found the
budget and forgets kernels that nobody compiles any more; `--family` does either for some families
alone. Exit code 1 where a kernel does not compile, exceeds its budget or has none, or where a
budget has no kernel.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    from kernels import budgets
    from kernels.budgets import Resources
    from kernels.launches import POINTERS, Launch, launches
    from kernels.launches_causal import causal_launches
    from kernels.launches_choice import choice_launches
    from kernels.launches_elementwise import elementwise_launches
    from kernels.launches_matmul import product_launches
    from kernels.launches_variants import variant_launches
    from kernels.program import ended


def every_launch() -> Iterator[Launch]:
    """All that is compiled."""
    yield from launches()
    yield from choice_launches()
    yield from causal_launches()
    yield from elementwise_launches()
    yield from product_launches()
    yield from variant_launches()


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


def main(arguments: Sequence[str] | None = None, folder: Path = budgets.FOLDER) -> int:
    """The command, on the budgets of a folder."""
    parser = argparse.ArgumentParser(prog="python -m kernels.aot", description=__doc__)
    parser.add_argument("--write", action="store_true", help="record the findings as the budget")
    parser.add_argument("--family", action="append", metavar="FAMILY", help="only these families",
                        choices=sorted({one.family for one in every_launch()}))  # fmt: skip
    options = parser.parse_args(arguments)
    families = set(options.family) if options.family else None
    found: dict[str, dict[str, Resources]] = {}
    for one in every_launch():
        if families is None or one.family in families:
            kernels = found.setdefault(one.family, {})
            for arch in one.architectures:
                kernels[f"{one.name} sm_{arch}"] = resources = compiled(one, arch)
                told = " ".join(f"{k}={v}" for k, v in asdict(resources).items())
                print(f"{one.family:17} {one.name} sm_{arch}: {told}")  # noqa: T201
    if options.write:
        budgets.write(found, families, folder)
    failed = list(budgets.faults(found, budgets.read(families, folder)))
    for name, why in failed:
        print(f"FAILED {name}: {why}")  # noqa: T201
    print("over budget" if failed else "all within budget")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(ended(main))
