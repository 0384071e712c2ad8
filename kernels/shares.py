"""Cases shared among processes that use one device at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from kernels.case import Case


def share_of(
    cases: Sequence[Case], share: str, bytes_of: Callable[[Case], int], large_bytes: int
) -> list[Case]:
    """The share `I/N`, from 1: of several shares the first has the large cases alone:
    those of more than `large_bytes`, which others may not find room beside.

    The small cases of an operation, which compile the same kernels, are in one share.
    """
    number, count = map(int, share.split("/"))
    if count == 1:
        return list(cases)
    small = [case for case in cases if bytes_of(case) <= large_bytes]
    if number == 1:
        return [case for case in cases if bytes_of(case) > large_bytes]
    loads = [0] * (count - 1)
    mine: set[str] = set()
    for op, size in Counter(case.op for case in small).most_common():
        least = loads.index(min(loads))
        loads[least] += size
        if least == number - 2:
            mine.add(op)
    return [case for case in small if case.op in mine]
