"""Where compiled loops are kept between starts.

numba finds a kept function again by the contents of its own file, and would go on running what
it had inlined of other files. So the folder is named by all sources that loops are made of.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

import numba

if TYPE_CHECKING:
    from collections.abc import Iterator

_KERNELS = Path(__file__).parent
_log = logging.getLogger(__name__)
_held = RLock()


@contextmanager
def keeping() -> Iterator[bool]:
    """Yields whether numba may keep what it is given within, for which a folder is set.

    Where no folder can be written, that is logged and loops are compiled at each start.
    """
    with _held:
        before, found = numba.config.CACHE_DIR, _folder()
        try:
            numba.config.CACHE_DIR = before if found is None else str(found)
            yield found is not None
        finally:
            numba.config.CACHE_DIR = before


@cache
def _folder() -> Path | None:
    places = [place / f"loops-{_stamp()}" for place in _places()]
    for place in places:
        try:
            is_new = not place.is_dir()
            place.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=place).close()
        except OSError:
            continue
        if is_new:
            _log.warning("event=loops_are_compiled takes=seconds, once kept_in=%s", place)
        return place
    tried = ", ".join(str(place.parent) for place in places)
    _log.warning(
        "event=loops_not_kept reason=none of %s can be written; every start compiles them; "
        "remedy=set NUMBA_CACHE_DIR to a folder that can",
        tried,
    )
    return None


def _places() -> list[Path]:
    """In order: what NUMBA_CACHE_DIR asks for, beside the sources, the user's."""
    asked = numba.config.CACHE_DIR
    places = [Path(asked)] if asked else []
    places.append(_KERNELS / "__pycache__")
    with suppress(RuntimeError):  # a user without a home
        places.append(Path.home() / ".cache" / "inference-workbench")
    return places


def _stamp() -> str:
    """Of the files that hold loops, and of the definitions beside them, whose numbers they take."""
    loops = [*_KERNELS.glob("numba_*.py"), *_KERNELS.glob("*/numba_*.py")]
    beside = {loop.parent / "reference.py" for loop in loops}
    sources = sorted({*loops, *(path for path in beside if path.exists())})
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:12]
