"""A model server to try a client on: it answers at once, so that what is measured is the client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def null_server() -> Iterator[str]:
    """The address of a server on this host, in a process of its own, while the context lasts.

    It speaks chat completions, completions, responses and messages; its model is called `null`.
    """
    from experiments.calibration import NullServer

    server = NullServer()
    try:
        yield server.url
    finally:
        server.close()
