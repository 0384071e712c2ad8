"""When Python looks for cycles of garbage in a process that only serves.

A step makes hundreds of tuples and lets go of them by count; there are no cycles among them, so
to look for some finds nothing and holds up a step. By default that is done whenever 700 more
objects were made than let go of, as happens where much is made beside the steps.
"""

from __future__ import annotations

import gc

_YOUNG_OBJECTS = 20_000  # many times what a step of 256 sequences has at once


def calm_collector() -> None:
    """Set aside all that is there, and look at what comes only once there is much of it.

    For a whole process, so for those that are the engine's own, once they are ready to serve.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
