"""The dtype in which sensitive arithmetic runs."""

from __future__ import annotations

import torch


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """float64 stays float64, everything narrower is computed in float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32
