"""What the load generator does by itself, measured on a server that answers at once."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from experiments.arrival import WHOLE, Share
from experiments.client_metrics import highest
from experiments.clients import ClientPool
from experiments.clock import Clock
from experiments.errors import TargetError
from experiments.load import Phase, PhaseOf, PhaseResult
from experiments.measurement import e2e_s, succeeded
from experiments.records import Calibration

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

MOST_S = 10.0
"""A calibration takes as long as the measurement, but no longer than this."""
READY_S = 30.0
GUARD = (
    "In a script, put what it does under `if __name__ == '__main__':`, because each process that "
    "it starts reads it again."
)


class NullServer:
    """A process that answers everything at once, until `close`."""

    def __init__(self) -> None:
        if _is_being_read_again():
            raise SystemExit(1)  # quietly: the process that started this one says why
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve_null, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.url = f"http://127.0.0.1:{self._port()}"

    def _port(self) -> int:
        if not self._pipe.poll(READY_S):
            self.close()
            raise TargetError(f"the null server did not start within {READY_S:g} s")
        try:
            return int(self._pipe.recv())
        except EOFError as error:
            self.close()
            raise TargetError("the null server ended before it served", remedy=GUARD) from error

    def close(self) -> None:
        """End it."""
        self._pipe.close()
        self._process.kill()
        self._process.join()


def _is_being_read_again() -> bool:
    """True in a process that is only reading the script which started it."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


def _serve_null(pipe: Connection) -> None:
    import asyncio

    from experiments.targets.null_server import serve

    async def until_closed() -> None:
        closed = asyncio.Event()
        asyncio.get_running_loop().add_reader(pipe.fileno(), closed.set)
        serving = asyncio.create_task(serve(0, pipe.send))
        await closed.wait()
        serving.cancel()

    asyncio.run(until_closed())


def calibrate(pool: ClientPool, phase_of: PhaseOf, clock: Clock) -> Calibration:
    """Run the load on a null server, for at most 10 s. TargetError if nothing came back."""
    server = NullServer()
    try:
        result = pool.run(partial(_bounded, phase_of), clock.now_ns(), clock.now_ns, server.url)
    finally:
        server.close()
    start_s, stop_s = result.window_s
    due = _bounded(phase_of, WHOLE).feed.due_before(stop_s - start_s)
    return replace(calibration_of(result, len(pool.pids)), due_requests=due)


def _bounded(phase_of: PhaseOf, share: Share) -> Phase:
    phase = phase_of(share)
    seconds = min(MOST_S, phase.measured_s or MOST_S)
    return replace(phase, measured_s=seconds, limit_s=seconds, min_completed=0, measured_e2e=0.0)


def calibration_of(result: PhaseResult, processes: int) -> Calibration:
    """What a phase on the null server says of the clients."""
    ended = [request for request in result.requests if succeeded(request)]
    if not ended:
        first = next((r.error for r in result.requests if r.error), "nothing was sent")
        raise TargetError(f"the calibration on the null server measured nothing: {first}")
    times = [e2e_s(request) for request in ended]
    start_s, stop_s = result.window_s
    sent = sum(r.sent_s is not None and r.sent_s <= stop_s for r in result.requests)
    cpu = [s.client_cpu_percent for s in result.client_cpu if s.client_cpu_percent is not None]
    scheduled = any(r.sent_s != r.intended_s for r in ended)
    lags = [r.sent_s - r.intended_s for r in ended if r.sent_s is not None]
    return Calibration(
        requests=len(ended),
        achieved_request_s=sent / (stop_s - start_s),
        overhead_p50_s=highest(times, 0.5),
        overhead_p99_s=highest(times, 0.99),
        lag_p99_s=highest(lags, 0.99) if scheduled else None,
        client_cpu_percent=sum(cpu) / len(cpu) if cpu else None,
        processes=processes,
        sent_requests=sent,
    )
