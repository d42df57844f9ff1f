"""What every request passes before it is looked at: the token, how many there are, and how large it is."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hkconv.serving.limits import Limits
from hkconv.serving.metrics import Metrics
from hkconv.serving.refusals import RefusalError
from hkconv.serving.tokens import is_allowed

# Its lines go where uvicorn's go.
logger = logging.getLogger("uvicorn.error")

HEALTH, METRICS = "/health", "/metrics"
OTHER_PATHS = "other"
RETRY_AFTER = "1"
# What web servers write into their logs where a client left before there was an answer.
GONE = 499


class Gate:
    """Lets a request through with its whole body in memory, or tells the client why not.

    A client that is refused is heard out first, its words forgotten as they come: one that is still sending when its
    connection closes would not see why.

    Args:
        app: answers what comes through.
        limits: how much and how many.
        token: that clients must show, except for the health; None for no token.
        metrics: told of every request.
        paths: that ``app`` knows.
    """

    def __init__(self, app: ASGIApp, *, limits: Limits, token: str | None, metrics: Metrics, paths: Collection[str]):
        self.app, self.limits, self.token, self.metrics, self.paths = app, limits, token, metrics, paths
        self.at_once = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0

        async def noted_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await self._sent(send(message))

        self.metrics.in_progress += 1
        try:
            await self._answer(scope, receive, noted_send)
        except _GoneError:
            status = GONE
        # Raised on, it would close the connection, and with it what the client may have sent already.
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if not status:
                failed = RefusalError(500, "the server failed, not the request; its log says why")
                await failed.response()(scope, receive, noted_send)
        finally:
            self.metrics.in_progress -= 1
            path = scope["path"] if scope["path"] in self.paths else OTHER_PATHS
            self.metrics.add_request(path, status, time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        refusal = self._refusal(scope["path"], headers)
        # A busy server still says that it lives, and how busy it is.
        counts = refusal is None and scope["path"] not in (HEALTH, METRICS)
        self.at_once += counts
        try:
            refusal = refusal or self._too_large(int(headers.get(b"content-length", 0)))
            # Who asks first whether to send the body is told before.
            if refusal is None or b"expect" not in headers:
                body, refusal = await self._body(receive, refusal)
            if refusal is not None:
                await refusal.response()(scope, receive, send)
            else:
                await self.app(scope, _replayed(body, receive), send)
        finally:
            self.at_once -= counts

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> RefusalError | None:
        if path == HEALTH:
            return None
        if self.token is not None and not is_allowed(headers.get(b"authorization"), self.token):
            message = "the header Authorization must be Bearer and the token of this server"
            return RefusalError(401, message, {"WWW-Authenticate": "Bearer"})
        if path != METRICS and self.at_once >= self.limits.max_requests:
            message = f"{self.limits.max_requests} requests are being answered: try again in {RETRY_AFTER} s"
            return RefusalError(503, message, {"Retry-After": RETRY_AFTER})
        return None

    def _too_large(self, size: int) -> RefusalError | None:
        if size <= self.limits.max_bytes:
            return None
        return RefusalError(413, f"the body must have at most {self.limits.max_bytes} bytes")

    async def _body(self, receive: Receive, refusal: RefusalError | None) -> tuple[bytes, RefusalError | None]:
        """The body, empty where there is a refusal already or one with the body itself."""
        try:
            return await asyncio.wait_for(self._read(receive, refusal), self.limits.max_seconds)
        except TimeoutError:
            late = RefusalError(408, f"the body must arrive within {self.limits.max_seconds:g} seconds")
            return b"", refusal or late

    async def _sent(self, sending: Awaitable[None]) -> None:
        """Waits for a client that does not read, but not for ever: its place is taken from others."""
        try:
            await asyncio.wait_for(sending, self.limits.max_seconds)
        except TimeoutError:
            raise _GoneError from None

    async def _read(self, receive: Receive, refusal: RefusalError | None) -> tuple[bytes, RefusalError | None]:
        body = bytearray()
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _GoneError
            chunk = message.get("body", b"")
            size += len(chunk)
            # Not every body is announced.
            refusal = refusal or self._too_large(size)
            if refusal is None:
                body += chunk
            else:
                body.clear()
            if not message.get("more_body", False):
                return bytes(body), refusal


class _GoneError(Exception):
    """The client closed the connection in the middle of its request, or does not read the answer."""


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that has the whole body first."""
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay
