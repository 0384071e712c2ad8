"""Compile what `kernels.bench` will launch, by launching it: `python -m kernels.warm`.

Every implementation runs once on each timed case at each of its sizes, through the path that a
model takes, so that the compiler's cache on the disk holds it under the key that is asked for
later. `--share I/N` is one of N shares of the cases: processes compile side by side. What raises
is told, and exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    import torch

    from kernels.case import VALUE_BYTES, Case
    from kernels.cases import RELEASE_CASES, SMALL_CASES, TIMED_CASES
    from kernels.plan import arch_of
    from kernels.program import device_here, ended, share
    from kernels.registry import IMPLEMENTATIONS, Implementation, load
    from kernels.shares import share_of

PATIENCE_S = (2.0, 5.0, 10.0)  # before it is tried again
LARGE_BYTES = 1 << 31  # of a case that is launched once, and then let go


def warm(cases: Sequence[Case], device: torch.device) -> Iterator[str]:
    """Launch each implementation on each case at each size; yields what raised."""
    arch = arch_of(device)
    for case in cases:
        for rows in case.timed_rows:
            for implementation in IMPLEMENTATIONS:
                if case.is_served_by(implementation, arch, torch.bfloat16):
                    try:
                        _launch_when_there_is_room(implementation, case, rows, device)
                    except Exception as error:  # noqa: BLE001  a compiler may raise anything
                        about = f"{case.op} {implementation.name} {rows} rows, {case.name}"
                        yield f"FAILED {about}: {type(error).__name__}: {str(error)[:200]}"


def _launch_when_there_is_room(
    implementation: Implementation, case: Case, rows: int, device: torch.device
) -> None:
    """Processes beside this one may hold the device's memory for a while."""
    for patience_s in PATIENCE_S:
        try:
            _launch(implementation, case, rows, device)
        except torch.OutOfMemoryError:
            torch.accelerator.memory.empty_cache()
            time.sleep(patience_s)
        else:
            return
    _launch(implementation, case, rows, device)


def _launch(implementation: Implementation, case: Case, rows: int, device: torch.device) -> None:
    case.call(load(implementation), case.make(rows, torch.bfloat16, device))
    if device.type != "cpu":
        torch.accelerator.synchronize()


def _bytes(case: Case) -> int:
    return case.cost(max(case.timed_rows), VALUE_BYTES).bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    large = (*RELEASE_CASES, *TIMED_CASES)
    parser = argparse.ArgumentParser(prog="python -m kernels.warm", description=__doc__)
    parser.add_argument("--device", type=device_here, default="cuda")
    parser.add_argument("--op", action="append", metavar="OP", help="only these operations",
                        choices=sorted({case.op for case in (*SMALL_CASES, *large)}))  # fmt: skip
    parser.add_argument("--small", action="store_true", help="the small cases instead")
    parser.add_argument("--share", type=share, default="1/1", metavar="I/N",
                        help="one of N shares of them")  # fmt: skip
    options = parser.parse_args(arguments)
    every = SMALL_CASES if options.small else large
    cases = share_of(
        [c for c in every if options.op is None or c.op in options.op],
        options.share,
        _bytes,
        LARGE_BYTES,
    )
    begun_s, failed = time.monotonic(), 0
    for case in cases:
        for line in warm([case], options.device):
            print(line, flush=True)  # noqa: T201
            failed += 1
        print(f"{time.monotonic() - begun_s:7.1f} s  {case.op}, {case.name}", flush=True)  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(ended(main))
