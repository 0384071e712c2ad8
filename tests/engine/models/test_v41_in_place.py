"""Attention over cache rows where they lie, against attention over a copy of them."""

import dataclasses

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.attention.reference import attend_turned
from kernels.ops import REFERENCE
from tests.engine.models.test_v41_invariance import (
    assert_same,
    at_once,
    configs,
    cuts,
    side_by_side,
    tokens,
)
from tests.fakes.models import VOCAB, Chunk, Harness, small_model

IN_PLACE = dataclasses.replace(REFERENCE, attend_turned=lambda *given: attend_turned(*given))


@st.composite
def pairs(draw):
    """The same model twice, the second one in place."""
    kind = {
        "config": draw(configs()),
        "seed": draw(st.integers(0, 99)),
        "released_caches": draw(st.booleans()),
    }
    return small_model(**kind), small_model(**kind, ops=IN_PLACE)


def test_a_plan_of_definitions_reads_copies_and_any_other_reads_in_place():
    assert not REFERENCE.reads_caches
    assert IN_PLACE.reads_caches


@given(st.data())
def test_logits_are_those_of_a_copy(data):
    copying, model = data.draw(pairs())
    for ids, logits in side_by_side(model, data):
        assert_same(logits, at_once(copying, ids))


@given(st.data())
def test_truncated_logits_are_those_of_a_copy(data):
    copying, model = data.draw(pairs())
    ids = tokens(data.draw)
    start, is_compact = data.draw(st.integers(0, len(ids) - 1)), data.draw(st.booleans())
    expected = Harness(copying).run([Chunk(0, ids, 0, len(ids), start)], compact=is_compact)[0]
    harness = Harness(model)
    pieces = cuts(data.draw, len(ids))
    got = [harness.run([Chunk(0, ids, *cut, start)], compact=is_compact)[0] for cut in pieces]
    assert_same(torch.cat(got), expected)


@given(st.data())
def test_drafts_are_those_of_a_copy_and_rejected_rows_leave_no_trace(data):
    copying, model = data.draw(pairs())
    ids = tokens(data.draw)
    whole = Chunk(0, ids, 0, len(ids))
    plain, harness = Harness(copying), Harness(model)
    plain.run([whole])
    for position in range(len(ids)):
        wrong = data.draw(st.lists(st.integers(0, VOCAB - 2), max_size=5))
        guessed = [*ids[: position + 1], *wrong]
        harness.run([Chunk(0, guessed, position, len(guessed))])
    length = data.draw(st.integers(1, 5))
    expected, got = plain.draft([whole], [5], length), harness.draft([whole], [5], length)
    assert torch.equal(got.token_ids, expected.token_ids)
    torch.testing.assert_close(got.logits, expected.logits, rtol=0, atol=1e-9)
    torch.testing.assert_close(got.confidence, expected.confidence, rtol=0, atol=1e-9)


@given(st.data())
def test_rows_that_lie_behind_what_the_host_expects_are_those_of_a_copy(data):
    copying, model = data.draw(pairs())
    ids = tokens(data.draw)
    start = data.draw(st.integers(1, len(ids) - 1))
    expected = at_once(copying, ids)[start:]
    for one in (copying, model):
        harness = Harness(one)
        harness.run([Chunk(0, ids, 0, start)])
        batch = harness.batch([Chunk(0, ids, start, len(ids))])
        late = data.draw(st.integers(0, 5))
        behind = dataclasses.replace(
            batch, context_length=(start + late,), behind=torch.tensor([late])
        )
        assert_same(one.forward(behind, harness.caches).logits, expected)
