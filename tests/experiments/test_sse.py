from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from experiments.targets.sse import Event, EventParser

STREAM = (
    ": keep-alive\n\n"
    'event: delta\ndata: {"text": "漢字 🙂 é"}\n\n'
    "data: one\ndata: two\r\n\r\n"
    "id: 7\nretry: 5\n\n"
    "data:[DONE]\n\n"
).encode()
EVENTS = [
    Event("delta", '{"text": "漢字 🙂 é"}'),
    Event("", "one\ntwo"),
    Event("", "[DONE]"),
]


def parsed(*reads):
    parser = EventParser()
    return [event for read in reads for event in parser.feed(read)] + parser.end()


def test_a_stream_cut_at_any_byte_gives_the_same_events():
    for at in range(len(STREAM) + 1):
        assert parsed(STREAM[:at], STREAM[at:]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_a_stream_cut_at_any_bytes_gives_the_same_events(cuts):
    marks = [0, *sorted(cuts), len(STREAM)]
    assert parsed(*(STREAM[a:b] for a, b in pairwise(marks))) == EVENTS


def test_a_lone_bad_byte_is_a_replacement_character_and_no_crash():
    assert parsed(b"data: a\xff\xe6b\n\n") == [Event("", "a��b")]


def test_a_stream_that_breaks_off_gives_what_it_held():
    assert parsed(b"data: whole\n\ndata: half") == [Event("", "whole"), Event("", "half")]


def test_a_byte_order_mark_is_no_part_of_the_first_field():
    assert parsed("\ufeffdata: x\n\n".encode()) == [Event("", "x")]


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_parser(noise):
    parsed(noise)
