"""The median that a phase of load keeps of what has ended."""

from hypothesis import given
from hypothesis import strategies as st

from experiments.running_median import RunningMedian


@given(st.lists(st.floats(0, 1e6), max_size=60))
def test_it_is_the_upper_median_of_what_was_added_at_every_step(values):
    found = RunningMedian()
    assert found.value() is None
    for count, value in enumerate(values, 1):
        found.add(value)
        assert found.value() == sorted(values[:count])[count // 2]
