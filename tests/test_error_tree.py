"""The errors that a user may meet: one of each, drawn where it is defined."""

import sys

import engine.errors
import experiments.errors
import kernels.errors
import workbench.errors

TREES = (kernels.errors, engine.errors, experiments.errors, workbench.errors)


def below(kind):
    """A class and all that were made of it."""
    return [kind, *(one for child in kind.__subclasses__() for one in below(child))]


ERRORS = [
    one for one in dict.fromkeys(below(kernels.errors.WorkbenchError))
    if one.__module__.partition(".")[0] in {"kernels", "engine", "experiments", "workbench"}
]  # fmt: skip


def test_no_two_errors_share_a_name():
    names = [one.__name__ for one in ERRORS]
    assert sorted(names) == sorted({*names})


def test_every_error_of_a_tree_is_drawn_on_its_top():
    drawn = [one for one in ERRORS if sys.modules[one.__module__] in TREES]
    assert len(drawn) > 30
    for one in drawn:
        assert f" {one.__name__} " in f"{sys.modules[one.__module__].__doc__}".replace("\n", " ")
