"""The process of one replica: an engine at the end of a pipe.

To it: a Request to serve, a RequestId to abort, None to stop. From it: first a ServingLimits
or the error that kept it from starting, then StepNews. It ends when its parent does: the pipe
closes, and a watcher ends it even in the middle of a long load.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from engine.accelerator.cpu import set_threads
from engine.core import Engine
from engine.errors import ReplicaError
from engine.request import Request
from kernels.errors import WorkbenchError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from engine.config import EngineConfig
    from engine.models.registry import ModelSource
    from engine.request import RequestOutput
    from engine.stats import EngineStats


@dataclass(frozen=True, kw_only=True)
class ReplicaTask:
    """What a replica process is told at birth."""

    config: EngineConfig
    source: ModelSource | None
    index: int
    threads: int


@dataclass(frozen=True, slots=True)
class StepNews:
    """Outputs of a step, and the engine's counters after it."""

    outputs: tuple[RequestOutput, ...]
    stats: EngineStats


def serve_replica(pipe: Connection, task: ReplicaTask) -> None:
    """Start an engine, say so or say why not, serve until told to stop or orphaned, and exit.

    A bug in a step propagates: its traceback goes to stderr and the exit code is 1.
    """
    _serve(pipe, task)
    sys.stderr.flush()
    os._exit(0)  # taking torch down takes longer than a client should wait for `close`


def _serve(pipe: Connection, task: ReplicaTask) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_threads(task.threads)
    try:
        engine = Engine(task.config, source=task.source, device_index=task.index)
    except WorkbenchError as error:
        pipe.send(error)
        return
    except Exception as error:  # noqa: BLE001  the parent raises it
        what = f"replica {task.index} could not start: {error}\n{traceback.format_exc()}"
        pipe.send(ReplicaError(what))
        return
    try:
        pipe.send(engine.limits)
        while _obey(pipe, engine):
            _advance(pipe, engine)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is gone


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _obey(pipe: Connection, engine: Engine) -> bool:
    """Take in what the parent says, waiting only when idle; False to stop."""
    while pipe.poll(None if not engine.has_unfinished() else 0):
        order = pipe.recv()
        if order is None:
            return False
        if isinstance(order, Request):
            engine.add_request(order)
        else:
            engine.abort(order)
    return True


def _advance(pipe: Connection, engine: Engine) -> None:
    outputs = engine.step()
    if outputs:
        pipe.send(StepNews(tuple(outputs), engine.stats()))
