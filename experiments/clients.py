"""The load in several client processes: each sends its share, and all share one clock.

An order goes to every client through a pipe of its own, and its report comes back through it
when it is done: the two never cross, and a client that dies closes its pipe, so nothing waits
for it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable
from functools import reduce
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from experiments.arrival import WHOLE, Share
from experiments.client_cpu import busiest
from experiments.client_process import (
    READY,
    ClientReport,
    ConnectTo,
    Order,
    Tally,
    serve_client,
    shared_phase,
)
from experiments.gates_client import CLIENT_DIED
from experiments.load import Phase, PhaseOf, PhaseResult
from experiments.load_tally import LoadTally
from experiments.records import RequestRecord
from experiments.workload import WorkItem
from kernels.errors import WorkbenchError

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

START_S = 120.0  # for a process to start, import and connect
LEAD_S = 0.05  # until the common beginning of a phase
GRACE_S = 60.0  # after the end of a phase, until a client that does not report is killed
END_S = 5.0
HEED_S = 0.25


class ClientPool:
    """So many client processes, alive until `close`. One that died is replaced at the next run."""

    def __init__(self, connect: ConnectTo, processes: int) -> None:
        self._clients = [_Client(connect, Share(index=i, of=processes)) for i in range(processes)]
        self.heed: Callable[[], None] = _nothing
        """Called several times a second while a phase runs; what it raises ends the phase."""

    def run(
        self, phase_of: PhaseOf, origin_ns: int, now_ns: Callable[[], int], url: str | None = None
    ) -> PhaseResult:
        """Every client runs its share of the phase, from one common instant on.

        What a client that died had sent is recorded as failed, of the kind `client_died`; an
        error that a client met is raised. `url` names a server in place of the target's own.
        The window ends when the first client stops sending: from then on the load is less.
        """

        def now_s() -> float:
            return (now_ns() - origin_ns) / 1e9

        for client in self._clients:
            client.order(Order(phase_of=phase_of, share=client.share, origin_ns=origin_ns, url=url))
        try:
            self._await(START_S)
            start_s = now_s() + LEAD_S
            for client in self._clients:
                client.start(start_s)
            self._await(_most_s(phase_of(WHOLE)))
        except BaseException:
            self.close()  # nobody waits for this phase any more
            raise
        return self._merged(phase_of, (start_s, now_s()))

    @property
    def pids(self) -> tuple[int | None, ...]:
        """The processes, in the order of their shares; None for one that was never needed."""
        return tuple(client.pid for client in self._clients)

    def tally(self) -> Tally:
        """Of all clients together, in the phase that runs."""
        told = [client.tally() for client in self._clients]
        return Tally(*(sum(values) for values in zip(*told, strict=True)))

    def close(self) -> None:
        """End every client, one that is busy at once; the next run starts new ones."""
        for client in self._clients:
            client.let_go()
        for client in self._clients:
            client.close()

    def _await(self, most_s: float | None) -> None:
        """Until every client has answered or died; one that is overdue is killed."""
        begun_s = time.monotonic()
        while waiting := [client for client in self._clients if not client.heard()]:
            left_s = None if most_s is None else most_s - (time.monotonic() - begun_s)
            if left_s is not None and left_s <= 0:
                for client in waiting:
                    client.kill()
                left_s = END_S
            wait([client.pipe for client in waiting], min(HEED_S, left_s or HEED_S))
            self.heed()

    def _merged(self, phase_of: PhaseOf, span_s: tuple[float, float]) -> PhaseResult:
        reports = [client.report for client in self._clients]
        for report in reports:
            if isinstance(report, WorkbenchError):
                raise report
        told = [report for report in reports if isinstance(report, ClientReport)]
        requests = [request for report in told for request in report.result.requests]
        for client, report in zip(self._clients, reports, strict=True):
            if report is None:
                requests += client.lost(phase_of, span_s)
        start_s = min((r.result.window_s[0] for r in told), default=span_s[0])
        stop_s = min((r.result.window_s[1] for r in told), default=span_s[1])
        return PhaseResult(
            requests=tuple(sorted(requests, key=_when_sent)),
            window_s=(start_s, stop_s),
            tally=reduce(LoadTally.joined, (r.result.tally for r in told), LoadTally()),
            client_cpu=busiest([report.cpu_percent for report in told], start_s),
        )


class _Client:
    """One client process, as the parent sees it."""

    def __init__(self, connect: ConnectTo, share: Share) -> None:
        self.share = share
        self.report: object = None  # its last answer; None: it died
        self._connect = connect
        self._process: SpawnProcess | None = None
        self._heard = True
        self._shared = multiprocessing.get_context("spawn").RawArray("d", len(Tally._fields))

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._process is None else self._process.pid

    def order(self, order: Order) -> None:
        """Have it get ready; where no process lives, one is started."""
        self._revive()
        self._shared[:] = Tally()
        self._send(order)

    def start(self, start_s: float) -> None:
        """Have it begin at that instant; not one that died, or said what is wrong, before."""
        if self.report == READY:
            self._send(start_s)

    def _send(self, message: object) -> None:
        self.report, self._heard = None, False
        with contextlib.suppress(BrokenPipeError, ConnectionError):  # `heard` finds it dead
            self.pipe.send(message)

    def _revive(self) -> None:
        if self._process is not None and self._process.is_alive():
            return
        self.close()
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=serve_client, args=(theirs, self._connect, self._shared), daemon=True
        )
        self._process.start()
        theirs.close()

    def tally(self) -> Tally:
        """What it did in this phase so far."""
        return Tally(*self._shared)

    def heard(self) -> bool:
        """True once it has answered, or is dead."""
        if not self._heard and self.pipe.poll():
            self._heard = True
            with contextlib.suppress(EOFError, ConnectionError):
                self.report = self.pipe.recv()
        return self._heard

    def lost(self, phase_of: PhaseOf, span_s: tuple[float, float]) -> list[RequestRecord]:
        """What a dead client had sent, and at least the first that it was to send."""
        assert self._process is not None, "only a process can die"
        self._process.join(END_S)
        said = f"client process {self.share.index} died (exit code {self._process.exitcode})"
        phase = shared_phase(phase_of, self.share)
        found: list[RequestRecord] = []
        for _ in range(max(1, round(self.tally().taken))):
            due_s = phase.feed.due_s(0)
            if due_s is None:
                break
            sent_s = min(span_s[0] + due_s, span_s[1])
            found.append(_lost(phase, phase.feed.take(), (sent_s, span_s[1]), said, self.share))
        return found

    def kill(self) -> None:
        """End it without asking."""
        if self._process is not None:
            self._process.kill()

    def let_go(self) -> None:
        """Close its pipe, which ends it when it is idle; what is busy is killed."""
        if self._process is None:
            return
        if not self._heard:
            self._process.kill()
        self.pipe.close()
        self._heard = True

    def close(self) -> None:
        """Let it go, and wait for its end."""
        self.let_go()
        if self._process is None:
            return
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process = None


def _nothing() -> None:
    """Nobody watches."""


def _most_s(phase: Phase) -> float | None:
    return None if phase.limit_s is None else phase.limit_s + phase.drain_s + GRACE_S


def _lost(
    phase: Phase, item: WorkItem, span_s: tuple[float, float], said: str, share: Share
) -> RequestRecord:
    return RequestRecord(
        request_id=f"{phase.name}-{item.index}",
        index=item.index,
        intended_s=span_s[0],
        dispatched_s=None,
        sent_s=span_s[0],
        chunks=(),
        ended_s=span_s[1],
        finish_reason="error",
        error=said,
        error_kind=CLIENT_DIED,
        prompt_tokens=len(item.prompt_token_ids),
        output_tokens=0,
        requested_output_tokens=item.output_tokens,
        warm_up=phase.warm_up,
        session=item.session,
        turn=item.turn,
        worker=share.index,
    )


def _when_sent(request: RequestRecord) -> tuple[float, int]:
    return (request.intended_s if request.sent_s is None else request.sent_s, request.index)
