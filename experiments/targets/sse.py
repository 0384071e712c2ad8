"""Server-sent events from bytes, however the network cut them."""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """One event; its data lines joined."""

    name: str  # "" where none was given
    data: str


class EventParser:
    """Give it bytes as they come, take whole events.

    A line is decoded when it is whole, so a character cut in two by the network is one; bytes
    that are no UTF-8 become U+FFFD. Comments (keep-alive) are no events.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []

    def feed(self, received: bytes) -> list[Event]:
        """The events that these bytes complete."""
        lines = (self._rest + received).split(b"\n")
        self._rest = lines.pop()
        return [event for line in lines if (event := self._line(line)) is not None]

    def end(self) -> list[Event]:
        """What a stream that breaks off without an empty line still held."""
        return [event for event in self.feed(b"\n\n") if event.data]

    def _line(self, line: bytes) -> Event | None:
        text = line.removesuffix(b"\r").decode("utf-8", errors="replace")
        if text:
            self._field(*text.removeprefix("\ufeff").partition(":")[::2])
            return None
        event = Event(self._name, "\n".join(self._data))
        had_data = bool(self._data)
        self._name, self._data = "", []
        return event if had_data else None

    def _field(self, name: str, value: str) -> None:
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
