"""What crosses from step to step on the device, and from the host to a step."""

import pytest
import torch

from engine.request_table import RequestTable
from engine.staging import StagingRing
from tests.fakes.scheduling import add, results_of, scheduler


def test_the_device_keeps_the_tokens_of_a_row_until_its_slot_changes_hands():
    table = RequestTable(rows=2, ngram=3, draft_length=2, most_blocks=4, device="cpu")
    slots = torch.tensor([1])
    first, tokens = torch.tensor([-1]), torch.tensor([[-1, 4, 7, 8, 9]])
    table.write(slots, first, tokens, torch.tensor([1]), new=3)
    positions, tokens = table.newest(slots)
    assert (positions.tolist(), tokens.tolist()) == ([2], [[8, 7, 4]])
    table.write(slots, torch.tensor([3]), torch.tensor([[5, 0, 0]]), torch.tensor([0]), new=3)
    positions, tokens = table.newest(slots)
    assert (positions.tolist(), tokens.tolist()) == ([3], [[5, 8, 7]])


def test_a_row_that_nobody_wrote_is_not_read():
    s = scheduler()
    add(s, "a", 2)
    entry = s.schedule(1).sequences[0]
    table = RequestTable(rows=4, ngram=3, draft_length=0, most_blocks=8, device="cpu")
    with pytest.raises(AssertionError, match="before it is written"):
        table.news([entry._replace(is_ahead=True)])


def test_blocks_are_sent_once_and_again_when_a_slot_changes_hands():
    s = scheduler(max_num_batched_tokens=8, prefill_chunk_tokens=5)
    table = RequestTable(rows=4, ngram=1, draft_length=0, most_blocks=8, device="cpu")
    add(s, "a", 9, max_tokens=1)
    sent = []
    for name in ("a", "b"):
        while s.has_unfinished():
            batch = s.schedule(1)
            sent.append(list(table.news(batch.sequences)["table_columns"]))
            s.settle(batch, results_of(batch), 2)
        if name == "a":
            add(s, "b", 3, max_tokens=1)
    assert sent == [[0, 1], [2], [0]]


def test_numbers_of_a_step_last_until_the_second_upload_after_it():
    ring = StagingRing("cpu", torch.int64, numbers=2)
    first = ring.upload({"a": [1, 2], "none": [], "b": [3]})
    second = ring.upload({"a": [4]})
    assert {name: found.tolist() for name, found in first.items()} == {
        "a": [1, 2],
        "none": [],
        "b": [3],
    }
    ring.upload({"a": [5, 6]})
    assert second["a"].tolist() == [4]
    assert first["a"].tolist() == [5, 6]
