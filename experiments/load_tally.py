"""What a phase of load tells of itself beside its requests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SessionTally:
    """How the conversations of a phase ended."""

    started: int
    completed: int  # every turn was answered
    failed: int  # a turn failed or was given up: the rest was not asked
    context_ended: int  # the next turn would not have fitted the context

    @property
    def unfinished(self) -> int:
        """Still going on when sending stopped."""
        return self.started - self.completed - self.failed - self.context_ended


@dataclass(frozen=True, kw_only=True)
class RoundTally:
    """The rounds of a phase that sends in rounds."""

    size: int  # requests of a round
    measured: int  # that have a window
    left_out: int  # cut short, failed in part, or without a window
    prefill: bool  # a window is a prefill; else a full batch that decodes


@dataclass(frozen=True, kw_only=True)
class LoadTally:
    """Facts of the sending side; None where the load has no such thing."""

    unsent: int | None = None
    """Due while sending went on, and still in the client's queue when it was over."""
    sessions: SessionTally | None = None
    rounds: RoundTally | None = None

    def joined(self, other: LoadTally) -> LoadTally:
        """Of two client processes of one load, which has no rounds then."""
        counts = [n for n in (self.unsent, other.unsent) if n is not None]
        return LoadTally(
            unsent=sum(counts) if counts else None,
            sessions=_joined(self.sessions, other.sessions),
        )


def _joined(one: SessionTally | None, other: SessionTally | None) -> SessionTally | None:
    if one is None or other is None:
        return one or other
    return SessionTally(
        started=one.started + other.started,
        completed=one.completed + other.completed,
        failed=one.failed + other.failed,
        context_ended=one.context_ended + other.context_ended,
    )
