"""A target whose traffic is counted on the way, for whoever watches the sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from engine.request import Request, RequestId
from experiments.client_process import Tally
from experiments.clients import ClientPool
from experiments.clock import Clock
from experiments.errors import SkipRequestedError
from experiments.load_runner import SendsByClients
from experiments.records import TrialId
from experiments.watch import Second, Watch

if TYPE_CHECKING:
    from experiments.targets.base import Received, Target

_PUBLISH_NS = 250_000_000
_SECOND_NS = 1_000_000_000


def watched(target: Target, trial_id: TrialId, watch: Watch, clock: Clock) -> Target:
    """`target`, with every delivery counted into `watch`.

    `poll` raises SkipRequestedError once somebody asked for the trial to be skipped. A target
    whose load is sent by processes of its own is returned as it is: the wait for them counts,
    and raises. Their deliveries count in the second in which their request ends, one a token.
    """
    if isinstance(target, SendsByClients) and target.clients is not None:
        target.clients.heed = _ClientsEye(target.clients, trial_id, watch, clock)
        return target
    return cast("Target", _Watched(target, trial_id, watch, clock))


def _refuse_skipped(watch: Watch, trial_id: TrialId) -> None:
    if watch.skip_asked(trial_id):
        raise SkipRequestedError("skipped on request while it was measured")


class _Watched:
    """Counts a second at a time and publishes four times a second; all else is the target's."""

    def __init__(self, target: Target, trial_id: TrialId, watch: Watch, clock: Clock) -> None:
        self._target = target
        self._trial_id = trial_id
        self._watch = watch
        self._clock = clock
        self._origin_ns = clock.now_ns()
        self._published_ns = self._origin_ns
        self._waiting: dict[RequestId, int] = {}  # sent, and no token yet: when
        self._in_flight: set[RequestId] = set()
        self._tally = _Tally(0)

    def __getattr__(self, name: str) -> object:
        return getattr(self._target, name)

    def submit(self, request: Request) -> None:
        """As the target does."""
        self._target.submit(request)
        self._waiting[request.request_id] = self._clock.now_ns()
        self._in_flight.add(request.request_id)

    def poll(self, timeout_s: float) -> Sequence[Received]:
        """As the target does, unless the trial is to be given up."""
        _refuse_skipped(self._watch, self._trial_id)
        found = self._target.poll(timeout_s)
        now_ns = self._clock.now_ns()
        self._turn(now_ns)
        for received in found:
            self._count(received, now_ns)
        if found and now_ns - self._published_ns >= _PUBLISH_NS:
            self._publish(now_ns)
        return found

    def _turn(self, now_ns: int) -> None:
        """Another second has begun: what the last one held is final."""
        second = (now_ns - self._origin_ns) // _SECOND_NS
        if second != self._tally.second:
            if not self._tally.empty:
                self._publish(now_ns)
            self._tally = _Tally(second)

    def _count(self, received: Received, now_ns: int) -> None:
        output, tally = received.output, self._tally
        text = received.piece is not None and bool(received.piece.text)
        tokens = len(output.token_ids) or int(text)  # how many a text holds is counted later
        tally.tokens += tokens
        if tokens and output.request_id in self._waiting:
            tally.firsts += 1
            tally.ttft_ns += now_ns - self._waiting.pop(output.request_id)
        if output.finished:
            tally.ended += 1
            self._in_flight.discard(output.request_id)
            self._waiting.pop(output.request_id, None)

    def _publish(self, now_ns: int) -> None:
        self._published_ns = now_ns
        self._watch.counts(self._tally.second_with(len(self._in_flight)))


class _ClientsEye:
    """Reads what client processes have done since the second began."""

    def __init__(self, pool: ClientPool, trial_id: TrialId, watch: Watch, clock: Clock) -> None:
        self._pool = pool
        self._trial_id = trial_id
        self._watch = watch
        self._clock = clock
        self._origin_ns = clock.now_ns()
        self._second = 0
        self._before = self._last = Tally()

    def __call__(self) -> None:
        """Count, and raise SkipRequestedError once the trial is to be given up."""
        _refuse_skipped(self._watch, self._trial_id)
        second = (self._clock.now_ns() - self._origin_ns) // _SECOND_NS
        now = self._pool.tally()
        if second != self._second:
            self._second, self._before = second, self._last
        if now.taken < self._last.taken:  # another phase has begun
            self._before = Tally()
        self._last = now
        since = Tally(*(a - b for a, b in zip(now, self._before, strict=True)))
        if since.deliveries or since.ended:
            self._watch.counts(
                Second(
                    second=second,
                    output_tokens=round(since.deliveries),
                    ended_requests=round(since.ended),
                    in_flight=round(now.taken - now.ended),
                    first_tokens=round(since.answered),
                    ttft_s=since.ttft_s / since.answered if since.answered else None,
                )
            )


class _Tally:
    """What came during one second."""

    def __init__(self, second: int) -> None:
        self.second = second
        self.tokens = self.ended = self.firsts = self.ttft_ns = 0

    @property
    def empty(self) -> bool:
        return not (self.tokens or self.ended)

    def second_with(self, in_flight: int) -> Second:
        """As others read it."""
        return Second(
            second=self.second,
            output_tokens=self.tokens,
            ended_requests=self.ended,
            in_flight=in_flight,
            first_tokens=self.firsts,
            ttft_s=self.ttft_ns / self.firsts / 1e9 if self.firsts else None,
        )
