"""The process of one replica: an engine at the end of a pipe.

To it: tuples of orders, each a Request to serve or a RequestId to abort. From it: first a
ServingLimits or the error that kept it from starting, then StepNews, one a step; LogLines at any
time. It ends when its parent closes the pipe or ends itself; a watcher sees to that even in the
middle of a long load.

No cycle of waiting: a thread of its own reads orders into a queue without bound and does nothing
else, so what the parent sends is always taken in, whatever the engine does. The parent therefore
comes back to hearing, and so what the engine sends is always taken in too. That thread and the
engine's take turns at the interpreter, so many small messages would come in slowly: what is
ordered together travels together.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from engine.accelerator.cpu import set_threads
from engine.collector import calm_collector
from engine.core import Engine
from engine.errors import ReplicaError, RequestError
from engine.request import FinishReason, Request, RequestOutput
from engine.tuples import new_tuple
from kernels.errors import WorkbenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from engine.config import EngineConfig
    from engine.models.registry import ModelSource
    from engine.request import RequestId
    from engine.stats import EngineStats

    Orders = tuple[Request | RequestId, ...]
    _Inbox = queue.SimpleQueue[Orders | None]  # None: the parent closed the pipe


@dataclass(frozen=True, kw_only=True)
class ReplicaTask:
    """What a replica process is told at birth."""

    config: EngineConfig
    source: ModelSource | None
    index: int
    threads: int
    log_level: int  # of the engine's loggers


@dataclass(frozen=True, slots=True)
class StepNews:
    """Outputs of a step, and the engine's counters after it.

    It travels column by column, and a column of equal values as one of them: most of what an
    output can say is the same for all outputs of a step.
    """

    outputs: tuple[RequestOutput, ...]
    stats: EngineStats

    def __reduce__(self) -> tuple[Callable[..., StepNews], tuple[object, ...]]:
        """What unpickling calls, and with what."""
        columns = [
            column[:1] if column.count(column[0]) == len(column) else column
            for column in zip(*self.outputs, strict=True)
        ]
        return _news_of, (len(self.outputs), columns, self.stats)


def _news_of(count: int, columns: Sequence[tuple[object, ...]], stats: EngineStats) -> StepNews:
    whole = (repeat(c[0], count) if len(c) < count else c for c in columns)
    outputs = map(partial(new_tuple, RequestOutput), zip(*whole, strict=True))
    return StepNews(tuple(outputs), stats)


@dataclass(frozen=True, slots=True)
class LogLines:
    """What the engine logged, each with its level."""

    lines: tuple[tuple[int, str], ...]


def serve_replica(pipe: Connection, task: ReplicaTask) -> None:
    """Start an engine, say so or say why not, serve until the pipe is closed, and exit.

    A bug in a step propagates: its traceback goes to stderr and the exit code is 1.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    inbox: _Inbox = queue.SimpleQueue()
    threading.Thread(target=_take_in, args=(pipe, inbox), daemon=True).start()
    set_threads(task.threads)
    log = _Log(pipe, task.log_level)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent wants no more
        try:
            _serve(pipe, inbox, task, log)
        finally:
            log.send()
    sys.stderr.flush()
    os._exit(0)  # taking torch down takes longer than a client should wait for `close`


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


class _Log(logging.Handler):
    """Keeps what the engine's loggers say until it is sent to the parent."""

    def __init__(self, pipe: Connection, level: int) -> None:
        super().__init__()
        self._pipe = pipe
        self._lines: list[tuple[int, str]] = []
        engine = logging.getLogger("engine")
        engine.setLevel(level)
        engine.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one event; a traceback stays with it."""
        self._lines.append((record.levelno, self.format(record)))

    def send(self) -> None:
        """Let go of what was kept."""
        if self._lines:
            lines, self._lines = self._lines, []
            self._pipe.send(LogLines(tuple(lines)))


def _take_in(pipe: Connection, inbox: _Inbox) -> None:
    try:
        while True:
            inbox.put(pipe.recv())
    except (EOFError, ConnectionResetError):
        inbox.put(None)


def _serve(pipe: Connection, inbox: _Inbox, task: ReplicaTask, log: _Log) -> None:
    try:
        engine = Engine(task.config, source=task.source, device_index=task.index)
    except WorkbenchError as error:
        pipe.send(error)
        return
    except Exception as error:  # noqa: BLE001  the parent raises it
        what = f"replica {task.index} could not start: {error}\n{traceback.format_exc()}"
        pipe.send(ReplicaError(what))
        return
    log.send()
    pipe.send(engine.limits)
    calm_collector()
    while _obey(inbox, engine, pipe):
        outputs = engine.step()
        log.send()
        if outputs or not engine.has_unfinished():
            pipe.send(StepNews(tuple(outputs), engine.stats()))


def _obey(inbox: _Inbox, engine: Engine, pipe: Connection) -> bool:
    """Carry out what the parent ordered, waiting only when idle; False to stop."""
    while not (inbox.empty() and engine.has_unfinished()):
        orders = inbox.get()
        if orders is None:
            return False
        for order in orders:
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
