"""How torch computes in this process, where it has been loaded."""

from __future__ import annotations

import re
import sys
from types import ModuleType


def torch_threads() -> dict[str, int]:
    """Threads in force: within one operation, and between operations."""
    torch = _torch()
    return {"intra_op": torch.get_num_threads(), "inter_op": torch.get_num_interop_threads()}


def torch_build() -> dict[str, str]:
    """What torch was built with and what it uses of this processor."""
    torch = _torch()
    shown = torch.__config__.show()
    found = {
        "blas": re.search(r"BLAS_INFO=(\w+)", shown),
        "lapack": re.search(r"LAPACK_INFO=(\w+)", shown),
        "mkl": re.search(r"Math Kernel Library Version (\S+)", shown),
        "onednn": re.search(r"MKL-DNN (\S+)", shown),
        "openmp": re.search(r"OpenMP (\d+)", shown),
        "cpu_capability": re.search(r"CPU capability usage: (\S+)", shown),
    }
    versions = {"version": torch.__version__, "cuda": torch.version.cuda or "none"}
    return versions | {name: match.group(1) for name, match in found.items() if match}


def _torch() -> ModuleType:
    """The module, if something has imported it: a simulated run does without."""
    if "torch" not in sys.modules:
        raise LookupError("torch was not loaded in this process")
    return sys.modules["torch"]
