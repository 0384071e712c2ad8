"""What `workbench verify` says of its comparisons."""

import dataclasses

from engine.golden_outputs import Feeding
from engine.verify import KeyResult
from workbench.cli_check import summary_rows, verdict

GOOD = KeyResult(
    key="fp32.logits",
    feeding=Feeding.AT_ONCE,
    difference=1e-5,
    tolerance=5e-4,
    judged=True,
    why="exact caches are judged",
    passed=True,
)
WORSE = dataclasses.replace(GOOD, key="fp32.taps.3", difference=3e-4)
ONLY_REPORTED = dataclasses.replace(
    GOOD, key="qdq.logits", judged=False, passed=False, difference=1.0, why="a rounding may flip"
)
IDS = dataclasses.replace(GOOD, key="fp32.greedy.ids", feeding=Feeding.SERVED, tolerance=0.0)


def test_each_feeding_has_one_row_with_its_worst_key():
    rows = summary_rows([GOOD, WORSE, ONLY_REPORTED])
    assert rows == [
        ("fp32", "at once", "2 of 2", "taps.3", "0.0003", "0.0005"),
        ("qdq", "at once", "reported", "logits", "1", "0.0005"),
    ]


def test_ids_that_differ_are_the_worst_whatever_their_number():
    served = dataclasses.replace(WORSE, feeding=Feeding.SERVED)
    ((_, _, passed, worst, *_),) = summary_rows(
        [served, dataclasses.replace(IDS, difference=1.0, passed=False)]
    )
    assert (passed, worst) == ("1 of 2", "greedy.ids")


def test_the_verdict_tells_judged_from_reported():
    said = verdict([GOOD, WORSE, ONLY_REPORTED])
    assert said.startswith("passed: 2 of 2 judged")
    assert "1 qdq comparisons were only reported (a rounding may flip)" in said
    failed = verdict([GOOD, dataclasses.replace(WORSE, passed=False)])
    assert failed.startswith("past the tolerance: 1 of 2 judged")
    assert "nothing was only reported" in failed
