"""The process of one replica: an engine at the end of a pipe.

To it: a Request to serve or a RequestId to abort. From it: first a ServingLimits or the error
that kept it from starting, then StepNews. It ends when its parent closes the pipe or ends
itself; a watcher sees to that even in the middle of a long load.

No cycle of waiting: a thread of its own reads orders into a queue without bound and does nothing
else, so what the parent sends is always taken in, whatever the engine does. The parent therefore
comes back to hearing, and so what the engine sends is always taken in too.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from engine.accelerator.cpu import set_threads
from engine.core import Engine
from engine.errors import ReplicaError, RequestError
from engine.request import FinishReason, Request, RequestOutput
from kernels.errors import WorkbenchError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from engine.config import EngineConfig
    from engine.models.registry import ModelSource
    from engine.request import RequestId
    from engine.stats import EngineStats

    _Orders = queue.SimpleQueue[Request | RequestId | None]  # None: the parent closed the pipe


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
    """Start an engine, say so or say why not, serve until the pipe is closed, and exit.

    A bug in a step propagates: its traceback goes to stderr and the exit code is 1.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    orders: _Orders = queue.SimpleQueue()
    threading.Thread(target=_take_in, args=(pipe, orders), daemon=True).start()
    set_threads(task.threads)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent wants no more
        _serve(pipe, orders, task)
    sys.stderr.flush()
    os._exit(0)  # taking torch down takes longer than a client should wait for `close`


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _take_in(pipe: Connection, orders: _Orders) -> None:
    try:
        while True:
            orders.put(pipe.recv())
    except (EOFError, ConnectionResetError):
        orders.put(None)


def _serve(pipe: Connection, orders: _Orders, task: ReplicaTask) -> None:
    try:
        engine = Engine(task.config, source=task.source, device_index=task.index)
    except WorkbenchError as error:
        pipe.send(error)
        return
    except Exception as error:  # noqa: BLE001  the parent raises it
        what = f"replica {task.index} could not start: {error}\n{traceback.format_exc()}"
        pipe.send(ReplicaError(what))
        return
    pipe.send(engine.limits)
    while _obey(orders, engine, pipe):
        outputs = engine.step()
        if outputs or not engine.has_unfinished():
            pipe.send(StepNews(tuple(outputs), engine.stats()))


def _obey(orders: _Orders, engine: Engine, pipe: Connection) -> bool:
    """Carry out what the parent ordered, waiting only when idle; False to stop."""
    while not (orders.empty() and engine.has_unfinished()):
        order = orders.get()
        if order is None:
            return False
        if isinstance(order, Request):
            _add(order, engine, pipe)
        else:
            engine.abort(order)
    return True


def _add(request: Request, engine: Engine, pipe: Connection) -> None:
    """Queue a request; one that only this engine can tell to be wrong ends at once."""
    try:
        engine.add_request(request)
    except RequestError as error:
        refusal = RequestOutput(
            request_id=request.request_id,
            token_ids=(),
            time_ns=time.perf_counter_ns(),
            finish_reason=FinishReason.ERROR,
            error=str(error),
        )
        pipe.send(StepNews((refusal,), engine.stats()))
