"""What is found out about a host."""

import sys

import numba

from kernels.target import numba_compiles


def test_numba_serves_where_it_can_be_imported_and_may_compile(monkeypatch):
    assert numba_compiles()
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert not numba_compiles()
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "numba", None)  # as if it were not there, or refused numpy
    assert not numba_compiles()
