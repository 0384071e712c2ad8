"""A scheduler without an engine: sequences go in, and every step finds what the test says."""

from engine.choices import AdmissionMode
from engine.request import Request, SamplingParams
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.step import SchedulerLimits, StepResults

EOS = 1


def scheduler(**limits):
    defaults = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 16,
        "block_tokens": 4,
        "blocks": 8,
        "host_blocks": 0,
        "admission": AdmissionMode.GREEDY,
        "max_model_len": 32,
        "draft_length": 0,
        "eos_token_id": EOS,
    }
    asked = {**defaults, **limits}
    budget = asked["max_num_batched_tokens"]
    chunk = max(1, budget - asked["max_num_seqs"], budget // 2)
    return Scheduler(SchedulerLimits(**{"prefill_chunk_tokens": chunk, **asked}))


def add(target, name, prompt_tokens, *, arrived_ns=0, priority=0, deadline_ns=None, **params):
    preparing = params.pop("preparing", None)
    sampling = SamplingParams(**{"max_tokens": 8, **params})
    request = Request(
        request_id=name,
        prompt_token_ids=tuple(range(2, 2 + prompt_tokens)),
        sampling=sampling,
        priority=priority,
    )
    sequence = Sequence(
        request=request,
        seed=0,
        tokens=list(request.prompt_token_ids),
        last_length=min(prompt_tokens + sampling.max_tokens, target.limits.longest_sequence),
        decoder_start=0,
        arrived_ns=arrived_ns,
        deadline_ns=deadline_ns,
        preparing=preparing,
    )
    target.add(sequence)
    return sequence


def shape(batch):
    return [(s.sequence.request.request_id, s.first, s.known, s.drafts) for s in batch.sequences]


def results_of(batch, *, accepted=0, token=9):
    """What a device finds when every sequence that samples gets `token`."""
    stands = [min(accepted, s.drafts) if s.samples else 0 for s in batch.sequences]
    counts = [s.samples + stand for s, stand in zip(batch.sequences, stands, strict=True)]
    return StepResults.of_tokens([(token,) * count for count in counts], stands)


def step(target, *, accepted=0, token=9, time_ns=1):
    """Run one step in line; what it planned and what clients hear."""
    batch = target.schedule(time_ns)
    outputs = []
    if not batch.is_empty:
        results = results_of(batch, accepted=accepted, token=token)
        outputs = target.settle(batch, results, time_ns + 1)
    target.check_integrity()
    return shape(batch), outputs
