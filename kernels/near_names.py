"""What to say of a name that is unknown: the one that was meant, or all that there are."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

SHORTEST_STEM = 5  # letters
LEAST_ALIKE = 0.5  # of 1, which is the same name
_UNIT = re.compile(r"_(s|ms|percent|bytes)$")


def nearest(name: str, known: Iterable[str], *, otherwise: str | None = None) -> str:
    """`Did you mean X?`, all that begin alike; where none is near, `otherwise` or the known names.

    As sentences, in the order of the alphabet.
    """
    names = sorted(known)
    close = _alike(name, names)
    close = close or difflib.get_close_matches(name, names, n=1, cutoff=LEAST_ALIKE)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Known: {', '.join(names)}." if otherwise is None else otherwise


def _alike(name: str, names: list[str]) -> list[str]:
    """Names that begin as `name` does but for underscores and its unit: `warmup_s`, `warm_up_cv`.

    The name itself where only underscores differ; none where little is left to go by.
    """
    exact = [known for known in names if _plain(known) == _plain(name)]
    stem = _plain(_UNIT.sub("", name))
    begun = [known for known in names if _plain(known).startswith(stem)]
    return exact or (begun if len(stem) >= SHORTEST_STEM else [])


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()
