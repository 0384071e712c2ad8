"""Request records as hypothesis draws them: sound, broken and absurd ones."""

import math

from hypothesis import strategies as st

from tests.experiments.records import request

times = st.floats(min_value=0.0, max_value=50.0, allow_nan=False)


odd = st.sampled_from([0.0, 5e-324, 1e-300, 1e300, math.inf, -math.inf, math.nan])


waits = st.floats(0, 2)


@st.composite
def any_requests(draw, instants=times, gaps=waits):
    made = []
    for index in range(draw(st.integers(0, 30))):
        sent = draw(instants)
        at, chunks = sent, []
        for gap, tokens in draw(st.lists(st.tuples(gaps, st.integers(1, 8)), max_size=6)):
            at += gap
            chunks.append((at, tokens))
        reason = draw(st.sampled_from(["length", "stop", "abort", "error", None]))
        error = "broken" if reason == "error" else None
        made.append(request(chunks, sent_s=sent, index=index, finish_reason=reason, error=error))
    return made
