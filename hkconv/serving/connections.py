"""Open connections: the time that a client may take, how many there may be, and a log that clients cannot fill."""

import asyncio
import logging
import resource
from collections import Counter
from enum import Enum
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from hkconv.serving.limits import Limits

logger = logging.getLogger("uvicorn.error")

# For a header to arrive, where a body does not have less.
HEADER_SECONDS = 10.0
# Longer than proxies keep a connection that nobody uses, so that it is not closed here while they send on it.
KEEP_ALIVE = 75
LOG_SECONDS = 5.0
# Each may hold some hundred kilobytes.
MOST_CONNECTIONS = 4096
ACCEPTED_AT_ONCE = 16
# For files of the process itself, and for connections that do not count yet: asyncio accepts three times before those
# that give way to the first are closed.
SPARE_FILES = 64 + 3 * ACCEPTED_AT_ONCE


def max_connections() -> int:
    """Number of connections that the limit on open files of this process leaves room for."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(1, min(files - SPARE_FILES, MOST_CONNECTIONS))


class DigestLogger(logging.Logger):
    """Logger of what clients can cause as often as they like: equal messages are counted and written as one line."""

    def __init__(self) -> None:
        super().__init__(logger.name, logging.WARNING)
        self._counts: Counter[str] = Counter()

    def handle(self, record: logging.LogRecord) -> None:
        """Count a message; write one with a traceback at once."""
        if record.exc_info:
            logger.handle(record)
            return
        if not self._counts:
            asyncio.get_running_loop().call_later(LOG_SECONDS, self.write)
        self._counts[record.getMessage()] += 1

    def write(self) -> None:
        """Write what was counted."""
        for message, count in self._counts.items():
            logger.warning("%d x %s", count, message)
        self._counts.clear()


class Stage(Enum):
    """Progress of a connection with its current request."""

    HEADER = "its header"
    BODY = "its request"
    ANSWER = "its answer"
    UNREAD = "the reading of its answer"
    IDLE = "its next request"


# They share their time.
REQUEST = (Stage.BODY, Stage.ANSWER, Stage.UNREAD)


class Connections:
    """Open connections of one server.

    Args:
        limits: on its requests.
    """

    def __init__(self, limits: Limits):
        self.most = max_connections()
        self.log = DigestLogger()
        # A body, its answer, and a client that reads it may each take as long as they are allowed to. uvicorn closes an
        # idle connection a second earlier, unless it waits for a client that does not read.
        self.seconds = dict.fromkeys(REQUEST, 3 * limits.max_seconds) | {
            Stage.HEADER: min(HEADER_SECONDS, limits.max_seconds),
            Stage.IDLE: KEEP_ALIVE + 1.0,
        }
        # Dictionaries for their order: those that entered a stage first come first.
        self._stages: dict[Stage, dict[TimedConnection, None]] = {stage: {} for stage in Stage}

    def move(self, connection: "TimedConnection", old: Stage | None, new: Stage | None) -> None:
        """Note that a connection is at another stage; None before the first and after the last."""
        if old is not None:
            del self._stages[old][connection]
        if new is not None:
            self._stages[new][connection] = None

    def longest_waiting(self) -> "TimedConnection | None":
        """Connection to close when there are too many; None if the server owes an answer to all.

        It is the oldest of the fullest stage: a flood makes room for others, whatever it is that its clients put off.
        """
        fullest = max(
            (stage for stage in Stage if stage is not Stage.ANSWER), key=lambda stage: len(self._stages[stage])
        )
        return next(iter(self._stages[fullest]), None)


class TimedConnection(H11Protocol):
    """Connection of a client that must send a header and take its answer in time, and may have to make room.

    uvicorn itself limits the time between two requests alone. That of a body the gate limits too, which can tell the
    client.

    Args:
        others: the connections of the server.
        given: what uvicorn gives.
    """

    def __init__(self, others: Connections, **given: Any):
        super().__init__(**given)
        self.others, self.logger = others, others.log
        self.stage: Stage | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, in the place of another client where there is no more room."""
        super().connection_made(transport)
        if len(self.connections) > self.others.most:
            (self.others.longest_waiting() or self).drop(f"closed a connection, there is room for {self.others.most}")
        if not transport.is_closing():
            self._enter(Stage.HEADER)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._enter(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        if self.stage is Stage.IDLE:
            self._enter(Stage.HEADER)
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may be here already."""
        if not self.transport.is_closing():
            self._enter(Stage.IDLE)
        super().on_response_complete()
        self._follow()

    def pause_writing(self) -> None:
        """Wait until the client reads."""
        super().pause_writing()
        self._follow()

    def resume_writing(self) -> None:
        """Write on."""
        super().resume_writing()
        self._follow()

    def drop(self, reason: str) -> None:
        """Close the connection, without waiting for the client in any way."""
        self.logger.warning(reason)
        self._enter(None)
        self.connections.discard(self)
        self.transport.abort()

    def _follow(self) -> None:
        """Note how far the request is."""
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY:
            self._enter(Stage.BODY)
        elif self.conn.their_state is not h11.IDLE:
            self._enter(Stage.UNREAD if self.flow.write_paused else Stage.ANSWER)
        elif self.conn.trailing_data[0]:
            self._enter(Stage.HEADER)

    def _enter(self, stage: Stage | None) -> None:
        if stage is self.stage:
            return
        self.others.move(self, self.stage, stage)
        if self._timer is not None and not (stage in REQUEST and self.stage in REQUEST):
            self._timer.cancel()
            self._timer = None
        self.stage = stage
        if stage is not None and self._timer is None:
            seconds = self.others.seconds[stage]
            message = f"closed a connection, {stage.value} took more than {seconds:g} s"
            self._timer = self.loop.call_later(seconds, self.drop, message)
