"""The environment: the only file that reads os.environ.

Names are DeepInfer's (`DEEPINFER_*`), so that its recipes carry over. Some are aliases of
`EngineConfig` fields; the rest of the names it knows are listed so that setting one here gives
a warning instead of silence; any other `DEEPINFER_*` name is refused.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from engine import checks
from engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX = "DEEPINFER_"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EnvironmentFields:
    """EngineConfig fields that the environment sets, and the variable each came from."""

    values: dict[str, str | int]
    variables: dict[str, str]
    without_counterpart: tuple[str, ...]  # known to DeepInfer, without effect here


def read_fields(environ: Mapping[str, str] | None = None) -> EnvironmentFields:
    """Read the DEEPINFER_* variables; None reads the process environment, now.

    An empty value counts as not set. ConfigError names a variable that DeepInfer does not
    have, or one whose value is not of its type. Ranges are EngineConfig's to check.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, str | int] = {}
    variables: dict[str, str] = {}
    ignored: list[str] = []
    known = {PREFIX + name for name in (*_ALIASES, *_WITHOUT_COUNTERPART)}
    for variable in sorted(name for name in environ if name.startswith(PREFIX)):
        name, text = variable.removeprefix(PREFIX), environ[variable].strip()
        if name in _ALIASES:
            field, parse = _ALIASES[name]
            value = parse(variable, text) if text else None
            if value is not None:
                values[field], variables[field] = value, variable
        elif name in _WITHOUT_COUNTERPART:
            ignored.append(variable)
        else:
            raise checks.unknown_name(variable, known, "a DeepInfer variable")
    return EnvironmentFields(values=values, variables=variables, without_counterpart=tuple(ignored))


def read_secret(name: str, environ: Mapping[str, str] | None = None) -> str:
    """The value of a variable that holds a key; it is stored nowhere.

    None reads the process environment, now. ConfigError where it is not set or empty.
    """
    return read_variable(name, "the plan reads a key from it", environ)


def read_variable(name: str, why: str, environ: Mapping[str, str] | None = None) -> str:
    """The value of a variable that is needed because of `why`, a clause.

    None reads the process environment, now. ConfigError where it is not set or empty.
    """
    value = (os.environ if environ is None else environ).get(name, "").strip()
    if not value:
        raise ConfigError(
            f"is not set, and {why}.", where=name, remedy=f"Set it: export {name}=..."
        )
    return value


def openmp_is_dynamic(environ: Mapping[str, str] | None = None) -> bool:
    """Whether OpenMP was told to grant fewer threads than asked for as it sees fit.

    None reads the process environment, which OpenMP itself reads once, when it is loaded.
    """
    environ = os.environ if environ is None else environ
    return environ.get("OMP_DYNAMIC", "").strip().lower() in ("true", "1", "yes", "on")


def warn_of_ignored(fields: EnvironmentFields) -> None:
    """Log a warning for each DeepInfer variable without counterpart, once a process."""
    for variable in fields.without_counterpart:
        _warn_once(variable)


@cache
def _warn_once(variable: str) -> None:
    _log.warning(
        "%s has no counterpart in this engine and is ignored; unset it to silence this", variable
    )


def _text(_variable: str, text: str) -> str:
    return text


def _integer(variable: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is not a whole number.", where=variable, remedy="Give digits only."
        ) from error


def _keep_tokens(variable: str, text: str) -> int | None:
    return _integer(variable, text) or None  # DeepInfer writes "not set" as 0


def _truth(_variable: str, text: str) -> bool:
    return text.lower() not in ("0", "false")  # as DeepInfer reads them


def _accelerator(variable: str, text: str) -> str:
    kinds = {"nvidia": "cuda", "cuda": "cuda", "cpu": "cpu"}
    if text not in kinds:
        raise ConfigError(
            f"{text!r} is not supported here.", where=variable, remedy="Use nvidia or cpu."
        )
    return kinds[text]


_ALIASES: dict[str, tuple[str, Callable[[str, str], str | int | None]]] = {
    "HF_MODEL_DIR": ("model", _text),
    "ACCELERATOR": ("accelerator", _accelerator),
    "USE_NEXTN_DECODE": ("draft_length", _integer),
    "MAX_BACKTRACKING_TOKENS": ("max_backtrack_tokens", _integer),
    "YOCO_PREFILL_TRUNCATION_MODE": ("replay_mode", _text),
    "YOCO_PREFILL_KEEP_TOKENS": ("replay_keep_tokens", _keep_tokens),
    "ZERO_OVERHEAD_SCHEDULING": ("overlap", _truth),
}

_NAMES_WITHOUT_COUNTERPART = """
COMPUTE_SUM_SMALLER_PROBS JIT_CACHE_DIR NCCL_NUM_SMS USERBUFFER_COMM_SMS GLOO_TIMEOUT
REARRANGE_P2P_GROUPS OVERRIDE_NUM_EXTRA_EXPERTS EXPERT_COUNT_WINDOW_SIZE
EXPERT_REARRANGEMENT_STEP_INTERVAL REARRANGE_AFTER_PREFILL_IN_NORMAL_ENGINE
MOE_LB_STAT_INTERVAL FORCE_IMBALANCE_RATIO FORCE_LOAD_BALANCE SHOW_EPLB_DETAIL
PREFILL_MAX_SUM_SEQLEN_K INDEX_ATTN_MEMORY_LIMIT ENABLE_MTP_VARLEN
DFLASH_CONFIDENCE_HEAD_TEMPERATURE ENGRAM_PAD_TOKEN ENGRAM_FORCE_GPU_STORAGE
SAMPLER_FORCE_TOPK DECODE_TOKEN_BLACKLIST ENFORCE_EAGER DFLASH_ENFORCE_EAGER
CUDAGRAPH_BATCH_SIZE_INTERVAL DFLASH_CUDAGRAPH_BATCH_SIZE_INTERVAL DECODE_PERF_CACHE_DIR
DECODE_PERF_CACHE_TTL_SEC NUM_STATE_SLOTS_RATIO PREFILL_STORE_EXTRA_STATE
PREFILL_STORE_EXTRA_SIZE XGRAMMAR_DEBUG XGRAMMAR_TIMEOUT XGRAMMAR_DISABLE_CACHE
XGRAMMAR_CACHE_LIMIT_BYTES SO_BUILDER_CPUS PREFILL_ATTEMPT_INTERVAL
PREFILL_ANY_ATTEMPT_INTERVAL LOGGING_INTERVAL_STEP
NCCL_MEMORY_SAMPLE_INTERVAL_STEPS RINGBUFFER_WARNING_INTERVAL GC_INTERVAL_STEP
BATCH_INVARIANT DISABLE_SYNC_GUARD PROFILE_TORCH_CUDA_MEMORY ENABLE_MEMORY_TRACING
PROFILE_HTTP_ENABLE PROFILE_HTTP_PORT_BASE TORCH_PROFILER_DIR USE_MULTIMODAL_POOL
MULTIMODAL_POOL_SIZE_GB MULTI_MODAL_BUFFER_SIZE MULTI_MODAL_WORKER_TIMEOUT CPP_LOG_LEVEL
FUSED_SAMPLE_STRESS_TEST FUSED_SAMPLE_DETAIL_LOG
"""
_WITHOUT_COUNTERPART = frozenset(_NAMES_WITHOUT_COUNTERPART.split())
