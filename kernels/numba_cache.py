"""Where compiled loops are kept between starts.

numba finds a kept function again by the contents of its own file, and would go on running what
it had inlined of other files. So the folder is named by all sources that loops are made of.

It also believes every file that it finds. So what is kept is sealed by its hash: a loop whose
files are damaged, or cannot be read, is compiled again.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import tempfile
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numba
from numba.core import caching

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
        before, found = (numba.config.CACHE_DIR, caching.IndexDataCacheFile), _folder()
        try:
            numba.config.CACHE_DIR = before[0] if found is None else str(found)
            caching.IndexDataCacheFile = _SealedFiles
            yield found is not None
        finally:
            numba.config.CACHE_DIR, caching.IndexDataCacheFile = before


class _SealedFiles(caching.IndexDataCacheFile):
    """The files of one loop: an index, and a file for each kind of arguments."""

    def load(self, key: object) -> Any:  # noqa: ANN401  numba's
        """What is kept; None where there is nothing, or nothing sound: then that is logged."""
        try:
            return super().load(key)
        except Exception as error:  # noqa: BLE001  damaged bytes raise anything
            path, why = self._index_path, f"{type(error).__name__}: {error}"
            _log.warning("event=kept_loop_is_unsound compiled=again index=%s reason=%s", path, why)
        with suppress(OSError):
            self.flush()
        return None

    def save(self, key: object, data: object) -> None:
        """Keep it; where that fails, that is logged and it is compiled at each start."""
        try:
            super().save(key, data)
        except Exception as error:  # noqa: BLE001  the index is read first
            path, why = self._index_path, f"{type(error).__name__}: {error}"
            _log.warning("event=loop_not_kept index=%s reason=%s", path, why)

    def _dump(self, obj: object) -> bytes:
        return pickle.dumps(_Sealed(super()._dump(obj)))


class _Sealed:
    """Pickled bytes: what they stand for comes of unpickling this, once the hash agrees."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __reduce__(self) -> tuple[object, ...]:
        return _unsealed, (self._content, _hash(self._content))


def _unsealed(content: bytes, found: str) -> object:
    if _hash(content) != found:
        raise ValueError("its bytes have changed since they were written")
    return pickle.loads(content)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


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
    return _hash(b"\0".join(path.read_bytes() for path in sources))[:12]
