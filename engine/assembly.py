"""The parts of an engine, made from its configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.cache.sizing import count_blocks
from engine.cache.storage import CacheStorage
from engine.choices import AcceleratorKind, ReplayMode
from engine.decode_inputs import Spare
from engine.errors import CapacityError
from engine.model_runner import DeviceCaches
from engine.models.registry import torch_dtype
from engine.sequence import Sequence
from engine.step import SchedulerLimits
from engine.swapping import HostCaches

if TYPE_CHECKING:
    from concurrent.futures import Future

    from engine.accelerator.interface import Accelerator
    from engine.models.protocol import Model
    from engine.request import Request
    from engine.resolution import ResolvedConfig
    from engine.stop_strings import StopStrings

_NS_PER_S = 10**9
_STEP_BYTES = 2**30  # what the operations of a step hold at once, on a device


def allocate_caches(
    model: Model, resolved: ResolvedConfig, accelerator: Accelerator
) -> DeviceCaches:
    """Cache rows as many as memory and configuration allow, and those in host memory.

    ConfigError and CapacityError as `count_blocks` and `CacheStorage.allocate` say.
    """
    config, dtype = resolved.config, torch_dtype(resolved.dtype)
    groups = model.cache_groups(max_backtrack=resolved.ring_slack)
    blocks = count_blocks(
        groups,
        resolved,
        dtype=dtype,
        free_bytes=accelerator.memory_free_bytes(),
        reserve_bytes=_reserve_bytes(resolved, accelerator),
    )

    def allocate(blocks: int, slots: int, device: str) -> CacheStorage:
        return CacheStorage.allocate(
            groups,
            blocks=blocks,
            block_tokens=config.block_tokens,
            slots=slots,
            dtype=dtype,
            device=device,
        )

    slots, host_blocks = config.max_num_seqs, config.swap_tokens // config.block_tokens
    pads = resolved.graphs and model.can_capture
    device = allocate(blocks + pads, slots + pads, accelerator.device)
    host = None
    if host_blocks:
        planned = allocate(host_blocks, slots, "meta")
        host = HostCaches(device, _in_host_memory(planned, accelerator))
    return DeviceCaches(
        device=device,
        host=host,
        spare=Spare(slot=slots, block=blocks) if pads else None,
    )


def _in_host_memory(planned: CacheStorage, accelerator: Accelerator) -> CacheStorage:
    """A storage without memory ("meta") as one in memory that the device copies to and from."""
    try:
        tensors = {name: accelerator.zeros_on_host(t) for name, t in planned.tensors.items()}
    except (RuntimeError, MemoryError) as error:  # torch has no one error for it
        sizes = [tensor.numel() * tensor.element_size() for tensor in planned.tensors.values()]
        raise CapacityError(
            f"the host does not give {sum(sizes)} bytes for preempted sequences: {error}.",
            where="swap_tokens",
            remedy="Lower swap_tokens or max_num_seqs.",
        ) from error
    return replace(planned, tensors=tensors)


def _reserve_bytes(resolved: ResolvedConfig, accelerator: Accelerator) -> int:
    """Memory that caches leave alone: what the configuration says, else for steps and graphs."""
    if resolved.config.memory_reserve_bytes is not None:
        return resolved.config.memory_reserve_bytes
    if resolved.accelerator is AcceleratorKind.CPU:
        return 0
    recorder = accelerator.recorder if resolved.graphs else None
    return _STEP_BYTES + (recorder.budget_bytes() if recorder is not None else 0)


def scheduler_limits(resolved: ResolvedConfig, blocks: int, eos_token_id: int) -> SchedulerLimits:
    """What a scheduler counts with."""
    config = resolved.config
    return SchedulerLimits(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        prefill_chunk_tokens=resolved.prefill_chunk_tokens,
        block_tokens=config.block_tokens,
        blocks=blocks,
        host_blocks=config.swap_tokens // config.block_tokens,
        max_model_len=resolved.max_model_len,
        draft_length=resolved.draft_length,
        eos_token_id=eos_token_id,
        admission=config.admission,
    )


def new_sequence(
    request: Request,
    resolved: ResolvedConfig,
    *,
    longest: int,
    arrived_ns: int,
    preparing: Future[object] | None,
    stop_strings: StopStrings | None,
) -> Sequence:
    """The sequence of an admitted request; `longest` is what the caches hold at most."""
    sampling, prompt = request.sampling, request.prompt_token_ids
    assert sampling.seq_seed is not None, "admission gives a seed"
    deadline_ns = None
    if request.timeout_s is not None:
        deadline_ns = arrived_ns + round(request.timeout_s * _NS_PER_S)
    return Sequence(
        request=request,
        seed=sampling.seq_seed,
        tokens=list(prompt),
        last_length=min(len(prompt) + sampling.max_tokens, longest),
        decoder_start=_decoder_start(request, resolved),
        arrived_ns=arrived_ns,
        deadline_ns=deadline_ns,
        preparing=preparing,
        stop_strings=stop_strings,
    )


def _decoder_start(request: Request, resolved: ResolvedConfig) -> int:
    if resolved.replay_mode is ReplayMode.OFF or request.sampling.prompt_logprobs:
        return 0
    return max(0, len(request.prompt_token_ids) - resolved.replay_keep_tokens)
