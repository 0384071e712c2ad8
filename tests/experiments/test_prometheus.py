from hypothesis import given
from hypothesis import strategies as st

from experiments.clock import VirtualClock
from experiments.targets.openai_http import HttpTarget
from experiments.targets.prometheus import counters
from tests.fakes.openai_server import serving, spec

TEXT = """
# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{model="a b",code="200"} 7 1700000000
requests_total{model="c}",code="500"} 2
# TYPE steps counter
steps 12
# TYPE running gauge
running 3
latency_seconds_sum 1.5
latency_seconds_count 4
latency_seconds_bucket{le="+Inf"} 4
broken_total nonsense
unknown_total NaN
{"a.quoted.name_total"} 7
{
"""


def test_counters_are_summed_over_their_labels_and_gauges_are_none():
    assert counters(TEXT) == {
        "requests_total": 9.0,
        "steps": 12.0,
        "latency_seconds_sum": 1.5,
        "latency_seconds_count": 4.0,
    }


@given(st.text(max_size=200))
def test_no_text_crashes_the_reader(noise):
    counters(noise)


def test_a_server_without_a_path_for_counters_has_none():
    with serving(lambda _: None) as server:
        assert HttpTarget(spec(server.url), clock=VirtualClock()).stats() == {}
