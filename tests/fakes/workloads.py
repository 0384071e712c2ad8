"""Workloads as a plan writes them, prepared for a model that is not there."""

from pydantic import TypeAdapter

from experiments.prepare import prepare
from experiments.targets.base import TargetFacts
from experiments.workload_specs import WorkloadSpec, resolved_source

FACTS = TargetFacts(
    model="m",
    fingerprint="f",
    configuration={},
    vocab_size=512,
    eos_token_id=1,
    reserved_token_ids=(0, 1),
    window=32,
    draft_block=5,
    can_truncate=True,
    max_positions=2048,
    devices=1,
    accelerator="cpu",
    random_weights=True,
)


def workload(base_dir=None, encode=lambda text: list(text.encode()), facts=FACTS, **fields):
    spec = TypeAdapter(WorkloadSpec).validate_python({"name": "w", **fields})
    return prepare(resolved_source(spec, base_dir), facts, encode)


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def items(source, count, salt="s"):
    return [source.item(index, salt) for index in range(count)]
