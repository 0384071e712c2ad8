"""What is said of a name that nobody knows."""

import pytest

from kernels.near_names import nearest

KNOWN = ("warm_up_cv", "warm_up_s", "measured_s", "draft_length")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("draft_lenght", "Did you mean draft_length?"),
        ("DraftLength", "Did you mean draft_length?"),
        ("warmup_s", "Did you mean warm_up_s?"),
        ("warmup_ms", "Did you mean warm_up_cv or warm_up_s?"),
        ("foo", "Known: draft_length, measured_s, warm_up_cv, warm_up_s."),
    ],
)
def test_one_that_is_near_is_named_else_all(name, words):
    assert nearest(name, KNOWN) == words


def test_who_asks_may_say_something_else_where_none_is_near():
    assert nearest("foo", KNOWN, otherwise="Leave it.") == "Leave it."
    assert nearest("draft_lenght", KNOWN, otherwise="Leave it.") == "Did you mean draft_length?"
