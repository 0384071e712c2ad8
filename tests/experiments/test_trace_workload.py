"""Requests as a trace recorded them, scaled to a model."""

import pytest

from experiments.arrival import Horizon, arrival
from experiments.errors import WorkloadError
from experiments.load_specs import TraceLoad
from experiments.trace_workload import TraceWorkload
from tests.fakes.workloads import items, workload, written


def test_the_azure_sample_keeps_its_shape_under_one_factor():
    source = workload(kind="trace", path="sample:azure")
    said = source.description()
    assert said["rows"] == 300
    assert said["scale_used"] == pytest.approx((2048 - 2) / 7448)
    assert not said["shared_prefixes"]
    first = source.item(0, "s")
    assert len(first.prompt_token_ids) == round(4808 * said["scale_used"])
    assert first.output_tokens == round(10 * said["scale_used"])
    for item in items(source, 300):
        assert len(item.prompt_token_ids) + item.output_tokens <= 2048
    assert source.arrival_s(1) == pytest.approx(0.052, abs=1e-6)


def test_equal_hash_ids_are_equal_blocks_at_equal_places():
    source = workload(kind="trace", path="sample:mooncake", scale=0.016)
    first, second = source.item(0, "s"), source.item(1, "s")
    block = round(512 * 0.016)  # both rows begin with hash id 0, then part
    assert first.prompt_token_ids[:block] == second.prompt_token_ids[:block]
    assert first.prompt_token_ids[block:] != second.prompt_token_ids[block:]
    other = source.item(0, "t")
    assert other.prompt_token_ids[:block] != first.prompt_token_ids[:block]
    lap = source.item(120, "s")
    assert len(lap.prompt_token_ids) == len(first.prompt_token_ids)
    assert lap.prompt_token_ids != first.prompt_token_ids
    assert source.arrival_s(120) is None


def test_a_shared_prefix_has_the_scaled_length_of_its_blocks(tmp_path):
    rows = (
        '{"timestamp": 0, "input_length": 2048, "output_length": 8, "hash_ids": [7, 8, 9, 1]}\n'
        '{"timestamp": 5, "input_length": 2000, "output_length": 8, "hash_ids": [7, 8, 9, 2]}\n'
    )
    path = written(tmp_path, "t.jsonl", rows)
    source = workload(kind="trace", path=path, scale=0.1)
    one, two = (item.prompt_token_ids for item in items(source, 2))
    shared = next(i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    assert 154 <= shared <= 156  # three blocks of 51.2; a chance match may add one


def test_two_files_are_dealt_out_in_turn_each_with_its_factor():
    source = workload(kind="trace", path=["sample:azure", "sample:mooncake"])
    assert source.description()["rows"] == 240
    assert "," in source.description()["scale_used"]
    factors = [row.factor for row in source.trace]
    assert len(set(factors)) == 2
    assert factors[0] == factors[2]


def test_minimum_lengths_hold_and_the_longest_row_still_fits():
    source = workload(
        kind="trace", path="sample:mooncake", min_prompt_tokens=16, min_output_tokens=8
    )
    for item in items(source, 120):
        assert len(item.prompt_token_ids) >= 16
        assert item.output_tokens >= 8
        assert len(item.prompt_token_ids) + item.output_tokens <= 2048


def test_a_schedule_makes_no_prompt(monkeypatch):
    source = workload(kind="trace", path="sample:azure")
    monkeypatch.setattr(TraceWorkload, "item", None)  # whoever asks for a prompt fails
    load = TraceLoad(kind="trace", time_scale=2.0)
    schedule = arrival(load, source, horizon=Horizon(requests=10_000), salt="s")
    assert schedule.due_s(1, 0) == pytest.approx(0.026, abs=1e-6)
    assert schedule.due_s(300, 0) is None


def texts(tmp_path, **fields):
    path = tmp_path / "prose.txt"
    path.write_text("".join(chr(97 + i % 26) * (i % 7 + 1) for i in range(400)), encoding="utf-8")
    return workload(kind="trace", path="sample:mooncake", scale=0.016, content=str(path), **fields)


def test_a_trace_filled_with_text_asks_for_consecutive_pieces_of_it(tmp_path):
    source = texts(tmp_path)
    whole = (tmp_path / "prose.txt").read_bytes() * 2
    own = bytes(source.content.passage(40, 3, "salt"))
    assert own in whole
    assert source.description()["content"] == "text"


def test_text_blocks_are_shared_as_the_trace_shares_them(tmp_path):
    source = texts(tmp_path)
    first, second = source.item(0, "salt"), source.item(1, "salt")
    shared = round(512 * 0.016)  # the first block of both rows has the same id
    assert first.prompt_token_ids[:shared] == second.prompt_token_ids[:shared]
    assert first.prompt_token_ids[shared:] != second.prompt_token_ids[shared:]
    assert source.item(0, "other").prompt_token_ids != first.prompt_token_ids


def test_another_text_is_another_content(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "prose.txt").write_text("abc", encoding="utf-8")
    other = workload(
        kind="trace", path="sample:mooncake", scale=0.016, content=str(tmp_path / "a/prose.txt")
    )
    random = workload(kind="trace", path="sample:mooncake", scale=0.016)
    assert len({texts(tmp_path).content_hash, other.content_hash, random.content_hash}) == 3


def test_a_trace_cannot_be_filled_with_an_empty_text(tmp_path):
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    with pytest.raises(WorkloadError, match=r"empty\.txt.*has no text"):
        workload(kind="trace", path="sample:azure", content=str(tmp_path / "empty.txt"))
