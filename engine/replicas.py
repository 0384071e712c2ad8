"""Data parallelism: N processes, each a whole engine, behind the face of one.

Requests go to the replica with the fewest outstanding ones, the lowest index on ties. A replica
that dies ends its own requests with FinishReason.ERROR; the others serve on.

Processes come from a fork server: as clean as spawned ones (it has imported the engine, touched
no device and started no thread of ours), but importing torch is paid once, not once a replica.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from engine.accelerator.cpu import threads_of_replica
from engine.admission import Admission, ServingLimits
from engine.errors import EngineError, ReplicaError, RequestError
from engine.replica_process import LogLines, ReplicaTask, StepNews, serve_replica
from engine.request import FinishReason, RequestOutput
from engine.stats import EngineStats

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from engine.config import EngineConfig
    from engine.models.registry import ModelSource
    from engine.request import Request, RequestId

_STOP_WAIT_S = 5.0
_REMEMBERED = 65_536  # requests whose replica can still be asked for

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Replica:
    index: int
    process: BaseProcess
    pipe: Connection
    outstanding: set[RequestId] = field(default_factory=set)
    orders: list[Request | RequestId] = field(default_factory=list)  # to be sent
    stats: EngineStats = field(default_factory=EngineStats)
    failure: ReplicaError | None = None


class ReplicaGroup:
    """`data_parallel_size` replicas, even if that is one. Not thread safe.

    What is added or aborted goes out with the next `step`, in one message a replica: a batch of
    requests that is added at once is one to its replica, too.

    The constructor returns when all can serve, or raises the error of the first that cannot
    (the same type as in this process) after stopping the rest. A script that makes one at its
    top level needs `if __name__ == "__main__":`, as every use of multiprocessing does.
    """

    def __init__(self, config: EngineConfig, *, source: ModelSource | None = None) -> None:
        self._replicas: list[_Replica] = []
        self._owner: dict[RequestId, int] = {}
        try:
            self._start(config, source)
            limits = [self._await_start(replica) for replica in self._replicas]
        except BaseException:
            self.close()
            raise
        longest = min(limit.longest_sequence for limit in limits)
        self.limits: ServingLimits = replace(limits[0], longest_sequence=longest)
        self._admission = Admission(self.limits, config.seed)
        self._undelivered: list[RequestOutput] = []

    def check(self, request: Request) -> None:
        """Raise what `add_request` would, without queueing: RequestError and below."""
        self._admission.check(request)

    def add_request(self, request: Request) -> None:
        """Choose a request's replica. RequestError as in `Engine`; ReplicaError if all died."""
        live = [replica for replica in self._replicas if replica.failure is None]
        if not live:
            raise self._replicas[0].failure or ReplicaError("the replicas are closed")
        if any(request.request_id in replica.outstanding for replica in live):
            where = f"request {request.request_id}"
            raise RequestError("the id is in use.", where=where, remedy="Use one id a request.")
        admitted = self._admission.admit(request)
        replica = min(live, key=lambda r: (len(r.outstanding), r.index))
        replica.outstanding.add(request.request_id)
        self._remember(request.request_id, replica.index)
        replica.orders.append(admitted)

    def abort(self, request_id: RequestId) -> bool:
        """End a request early; its last output comes from a later step. False if unknown."""
        for replica in self._replicas:
            if request_id in replica.outstanding:
                replica.orders.append(request_id)
                return True
        return False

    def has_unfinished(self) -> bool:
        """Whether a request is under way or an output is still to be returned."""
        return bool(self._undelivered) or any(r.outstanding for r in self._replicas)

    def step(self, timeout_s: float = 0.05) -> list[RequestOutput]:
        """Send orders; outputs that replicas have sent, waiting `timeout_s` for the first."""
        for replica in self._replicas:
            if replica.orders:
                self._send_orders(replica)
        live = {replica.pipe: replica for replica in self._replicas if replica.failure is None}
        patience = 0.0 if self._undelivered else timeout_s
        for pipe in wait(list(live), patience):
            self._hear(live[pipe])  # type: ignore[index]
        outputs, self._undelivered = self._undelivered, []
        return outputs

    @property
    def size(self) -> int:
        """Replicas, dead ones too."""
        return len(self._replicas)

    def replica_of(self, request_id: RequestId) -> int:
        """Index of the replica that serves, or lately served, a request."""
        return self._owner[request_id]

    def failures(self) -> tuple[ReplicaError, ...]:
        """One error for each replica that died."""
        return tuple(r.failure for r in self._replicas if r.failure is not None)

    def stats(self) -> EngineStats:
        """Counters of all replicas together, as of what they sent last."""
        return sum((replica.stats for replica in self._replicas), EngineStats())

    def close(self) -> None:
        """Stop every process: politely, then by force. No request is outstanding after it."""
        for replica in self._replicas:
            replica.pipe.close()  # asks it to stop, and never waits for it
        deadline = time.monotonic() + _STOP_WAIT_S
        for replica in self._replicas:
            replica.process.join(max(0.0, deadline - time.monotonic()))
            if replica.process.is_alive():
                replica.process.kill()
                replica.process.join()
            replica.outstanding.clear()
            replica.failure = replica.failure or ReplicaError("the replicas are closed")

    def _start(self, config: EngineConfig, source: ModelSource | None) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([serve_replica.__module__])
        size = config.data_parallel_size
        threads = threads_of_replica(config.num_threads, size)
        for index in range(size):
            ours, theirs = context.Pipe()
            task = ReplicaTask(
                config=config,
                source=source,
                index=index,
                threads=threads,
                log_level=_log.getEffectiveLevel(),
            )
            process = context.Process(
                target=serve_replica, args=(theirs, task), name=f"replica-{index}", daemon=True
            )
            process.start()
            theirs.close()  # ours alone: its end shows as the end of the pipe
            self._replicas.append(_Replica(index, process, ours))

    def _await_start(self, replica: _Replica) -> ServingLimits:
        try:
            while isinstance(answer := replica.pipe.recv(), LogLines):
                _tell(replica, answer)
        except (EOFError, ConnectionResetError) as error:
            raise self._death(replica, "before it could serve") from error
        if isinstance(answer, EngineError):
            raise answer
        assert isinstance(answer, ServingLimits), f"unexpected {answer!r}"
        return answer

    def _send_orders(self, replica: _Replica) -> None:
        orders, replica.orders = tuple(replica.orders), []
        try:
            replica.pipe.send(orders)
        except (BrokenPipeError, ConnectionResetError):
            self._hear(replica)  # what it said last, then its end

    def _hear(self, replica: _Replica) -> None:
        try:
            while replica.pipe.poll():
                news = replica.pipe.recv()
                if isinstance(news, LogLines):
                    _tell(replica, news)
                    continue
                assert isinstance(news, StepNews), f"unexpected {news!r}"
                replica.stats = news.stats
                self._undelivered += news.outputs
                replica.outstanding -= {o.request_id for o in news.outputs if o.finished}
        except (EOFError, ConnectionResetError):
            self._bury(replica)

    def _bury(self, replica: _Replica) -> None:
        replica.failure = self._death(replica, "while it served")
        now = time.perf_counter_ns()
        self._undelivered += [
            RequestOutput(
                request_id=request_id,
                token_ids=(),
                time_ns=now,
                finish_reason=FinishReason.ERROR,
                error=str(replica.failure),
            )
            for request_id in sorted(replica.outstanding)
        ]
        replica.outstanding.clear()
        replica.orders.clear()

    def _death(self, replica: _Replica, when: str) -> ReplicaError:
        replica.process.join(_STOP_WAIT_S)
        return ReplicaError(
            f"replica {replica.index} ended with exit code {replica.process.exitcode} {when}.",
            remedy="Its own messages are on stderr. A script needs `if __name__ == "
            '"__main__":` around what starts replicas; a negative code is a signal, -9 often '
            "a lack of memory.",
        )

    def _remember(self, request_id: RequestId, index: int) -> None:
        self._owner.pop(request_id, None)
        self._owner[request_id] = index
        if len(self._owner) > _REMEMBERED:
            oldest = next(iter(self._owner))
            owner = self._owner.pop(oldest)
            if oldest in self._replicas[owner].outstanding:
                self._owner[oldest] = owner


def _tell(replica: _Replica, log: LogLines) -> None:
    for level, line in log.lines:
        _log.log(level, "replica=%d %s", replica.index, line)
