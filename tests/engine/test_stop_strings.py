import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.stop_strings import StopStrings


def ends(strings, pieces):
    """Which of the pieces a stop string ends in."""
    found = StopStrings(strings, lambda token_id: pieces[token_id])
    return [token_id for token_id in range(len(pieces)) if found.ends_with(token_id)]


@pytest.mark.parametrize(
    ("strings", "pieces", "expected"),
    [
        (["."], [b"a", b"b.", b"c"], [1]),
        (["END"], [b"E", b"N", b"D"], [2]),
        (["END"], [b"xxEND yy", b"END"], [0, 1]),
        (["END"], [b"EN", b"", b"D"], [2]),
        (["\u00e9"], [b"\xc3", b"\xa9"], [1]),
        (["ab", "wxyz"], [b"ab", b"c", b"w", b"xyz"], [0, 3]),
        (["aa"], [b"a", b"a", b"a"], [1, 2]),
    ],
)
def test_a_string_is_found_in_the_token_that_completes_it(strings, pieces, expected):
    assert ends(strings, pieces) == expected


@given(
    st.lists(st.binary(max_size=3).map(lambda b: bytes(97 + x % 2 for x in b)), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_it_is_the_search_of_the_whole_text(pieces, strings):
    whole, expected = b"", []
    for number, piece in enumerate(pieces):
        longer = whole + piece
        wanted = [string.encode() for string in strings]
        if any(
            longer.endswith(w, 0, e) for w in wanted for e in range(len(whole) + 1, len(longer) + 1)
        ):
            expected.append(number)
        whole = longer
    assert ends(strings, pieces) == expected
