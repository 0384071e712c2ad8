"""What configuration chooses among."""

from __future__ import annotations

from enum import StrEnum

from kernels.target import KernelChoice

__all__ = [
    "AcceleratorKind",
    "CacheFormat",
    "KernelChoice",
    "Precision",
    "ReplayMode",
    "WeightFormat",
]


class Precision(StrEnum):
    """Number format of weights and arithmetic."""

    AUTO = "auto"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BFLOAT16 = "bfloat16"


class CacheFormat(StrEnum):
    """How cache rows are stored: in the model's own format, or packed as the release does."""

    AUTO = "auto"
    PLAIN = "plain"
    RELEASED = "released"


class WeightFormat(StrEnum):
    """How matrices are held that a checkpoint stores packed (fp8 with tile scales, mxfp4).

    DEQUANTISED: in the arithmetic of the model. PACKED: as they are stored. RELEASED: packed,
    and products round their inputs to fp8 as the release does (W8A8, W4A8).
    """

    AUTO = "auto"
    DEQUANTISED = "dequantised"
    PACKED = "packed"
    RELEASED = "released"


class AcceleratorKind(StrEnum):
    """What the model runs on."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class ReplayMode(StrEnum):
    """Which prompt rows run the decoder half.

    OFF: all, with full windows. MASK: all, but windows see the kept rows only (the oracle of
    COMPACT). COMPACT: the last `replay_keep_tokens` rows of the prompt only.
    """

    OFF = "off"
    MASK = "mask"
    COMPACT = "compact"


class GraphMode(StrEnum):
    """Whether short steps are captured and replayed. AUTO: where device and kernels can."""

    AUTO = "auto"
    OFF = "off"


class AdmissionMode(StrEnum):
    """When a waiting sequence gets a slot.

    PREDICTED: when it is expected to fit beside the others until they end. GREEDY: when what it
    runs next fits, so that others may have to be preempted for it later.
    """

    PREDICTED = "predicted"
    GREEDY = "greedy"
