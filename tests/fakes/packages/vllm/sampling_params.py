"""The kinds of output that vLLM can be asked for."""

from enum import Enum


class RequestOutputKind(Enum):
    DELTA = 1
