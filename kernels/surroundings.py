"""Where and when a bench ran: device, driver, versions, commit; None for what cannot be known."""

from __future__ import annotations

import platform
import shutil
import subprocess
import time
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent


def surroundings(device: torch.device) -> dict[str, object]:
    """What every document of a bench begins with."""
    return {
        **(_cuda_device(device) if device.type == "cuda" else _processor()),
        "torch": torch.__version__,
        "triton": _triton_version(),
        "commit": commit(ROOT),
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _cuda_device(device: torch.device) -> dict[str, object]:
    properties = torch.cuda.get_device_properties(device)  # noqa: TID251
    driver = _told_by("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    arch = 10 * properties.major + properties.minor
    return {"device": properties.name, "arch": arch, "driver": driver}


def _processor() -> dict[str, object]:
    return {"device": platform.processor() or platform.machine(), "arch": None, "driver": None}


def commit(root: Path) -> str | None:
    """Of this source: git's, or that of a file COMMIT where a copy was made without git."""
    told = _told_by("git", "-C", str(root), "rev-parse", "HEAD")
    file = root / "COMMIT"
    return told or (file.read_text().strip() if file.is_file() else None)


def _told_by(*command: str) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip().partition("\n")[0] or None if done.returncode == 0 else None


def _triton_version() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return triton.__version__
