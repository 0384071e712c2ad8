"""Programs of models, in a child that cannot take the test down with it."""

import pytest

from experiments.evals.code_run import CodeLimits, program, run_program
from experiments.evals.questions import CodeTest

TEST = CodeTest(
    prompt="import math\n\n\ndef area(r):\n    '''Of a circle.'''\n",
    entry_point="area",
    source="def check(candidate):\n    assert abs(candidate(1) - 3.14159) < 1e-3\n",
)
FAILING = [
    ("    return 3", "AssertionError"),
    ("    return 1 / 0", "ZeroDivisionError"),
    ("    return (", "SyntaxError"),
    ("    import sys; sys.exit(0)", "SystemExit"),
    ("    import os; os._exit(0)", "exit code 0"),
    ("    return 'a' * (1 << 34)", "MemoryError"),
    ("    while True: pass", "ran longer than 1 s"),
]


@pytest.mark.parametrize(
    "answer", ["    return math.pi * r * r", "def area(r):\n    return math.pi * r ** 2\n"]
)
def test_the_rest_of_a_function_and_a_whole_one_pass(answer):
    assert run_program(program(TEST, answer)).passed


@pytest.mark.parametrize(("answer", "reason"), FAILING)
def test_a_program_that_does_not_reach_the_end_of_its_test_fails_with_the_reason(answer, reason):
    found = run_program(program(TEST, answer), CodeLimits(wall_s=1.0))
    assert not found.passed
    assert reason in str(found.reason)


def test_a_program_sees_nothing_of_our_environment_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("EVAL_JUDGE_API_KEY", "secret")
    monkeypatch.chdir(tmp_path)
    source = (
        "import os\nassert 'EVAL_JUDGE_API_KEY' not in os.environ\nopen('left', 'w').write('x')"
    )
    assert run_program(source).passed
    assert not list(tmp_path.iterdir())


def test_what_a_program_prints_is_not_kept():
    assert run_program("import sys\nfor _ in range(100000): print('x' * 100)").reason is None
