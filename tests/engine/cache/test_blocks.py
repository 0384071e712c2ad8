import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cache.blocks import Pool


def test_a_freed_id_is_reused_under_a_new_generation():
    pool = Pool(1)
    (first,) = pool.take(1)
    pool.release(first)
    (second,) = pool.take(1)
    assert second.id == first.id
    assert second != first
    assert not pool.is_live(first)


def test_freeing_twice_is_caught_even_after_the_id_was_reused():
    pool = Pool(1)
    (first,) = pool.take(1)
    pool.release(first)
    with pytest.raises(AssertionError, match="freed twice"):
        pool.release(first)
    pool.take(1)
    with pytest.raises(AssertionError, match="freed twice"):
        pool.release(first)


def test_taking_more_than_there_is_is_caught_and_takes_nothing():
    pool = Pool(2)
    with pytest.raises(AssertionError, match="3 wanted, 2 available"):
        pool.take(3)
    assert pool.available == 2


def test_a_leak_is_found():
    pool = Pool(2)
    held = pool.take(2)
    pool.check_integrity(held)
    with pytest.raises(AssertionError):
        pool.check_integrity(held[:1])


@given(st.integers(0, 5), st.lists(st.tuples(st.sampled_from("tr"), st.integers(0, 9))))
def test_counts_and_ids_always_match_the_holders(total, moves):
    pool, held = Pool(total), []
    for move, number in moves:
        if move == "t":
            held += pool.take(min(number, pool.available))
        elif held:
            pool.release(held.pop(number % len(held)))
        pool.check_integrity(held)
        assert pool.used == len(held)
        assert pool.used + pool.available == pool.total == total


def test_an_id_with_two_holders_is_found():
    pool = Pool(2)
    held = pool.take(1)
    with pytest.raises(AssertionError, match="two holders"):
        pool.check_integrity(held * 2)


def test_what_is_shared_is_freed_by_its_last_holder():
    pool = Pool(1)
    (block,) = pool.take(1)
    pool.share(block)
    pool.check_integrity([block, block])
    pool.release(block)
    assert pool.is_live(block)
    pool.release(block)
    assert pool.available == 1


def test_a_lost_holder_is_found():
    pool = Pool(1)
    (block,) = pool.take(1)
    pool.share(block)
    with pytest.raises(AssertionError, match="lost"):
        pool.check_integrity([block])


def test_what_a_step_may_touch_is_freed_when_the_step_has_settled():
    pool = Pool(3)
    first, second, third = pool.take(3)
    pool.settle(4)
    pool.retire([first], 4)  # has settled
    pool.retire([second], 6)
    pool.retire([third], 5)  # need not come in order
    assert (pool.available, pool.retiring) == (1, 2)
    pool.check_integrity([])
    pool.settle(5)
    assert pool.is_live(second)
    assert not pool.is_live(third)
    pool.settle(7)
    assert (pool.available, pool.retiring) == (3, 0)


def test_what_no_step_ever_touched_is_freed_at_once():
    pool = Pool(1)
    pool.retire(pool.take(1), None)
    assert pool.available == 1
