"""The gate before the application: the token, limits on number and size of requests, and counters for Prometheus."""

import asyncio
import hmac
import logging
import os
import re
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Awaitable, Collection
from itertools import accumulate
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hkconv.errors import InputError
from hkconv.opening import read_text
from hkconv.serving.limits import Limits, RefusalError

# Its lines go where uvicorn's go.
logger = logging.getLogger("uvicorn.error")

HEALTH, METRICS = "/health", "/metrics"
OTHER_PATHS = "other"
RETRY_AFTER = "1"
# In the logs of web servers: the client left before there was an answer.
GONE = 499

# The secret is no argument of the command, for all users of a machine can see those. This is the name of a variable.
TOKEN_VARIABLE = "HKCONV_TOKEN"  # nosec B105
# What RFC 6750 lets a client send.
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Upper ends in seconds; the last bucket, without an end, is counted too.
BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


class Metrics:
    """Counters of one server, written by its event loop alone.

    ``in_progress`` is the number of requests that are not answered yet, ``predictions`` that of nodes and graphs that
    were told their class.
    """

    def __init__(self) -> None:
        self.in_progress = 0
        self.predictions = 0
        self._requests: Counter[tuple[str, int]] = Counter()
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def add_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that ended.

        Args:
            path: one of the server's own, so that clients cannot make up series.
            status: of the response.
            seconds: from its first byte here to the last one sent.
        """
        self._requests[path, status] += 1
        self._counts[path][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[path] += seconds

    def text(self) -> str:
        """All counters."""
        lines = [
            "# HELP hkconv_requests_total Requests answered, by path and status.",
            "# TYPE hkconv_requests_total counter",
            *(
                f'hkconv_requests_total{{path="{path}",status="{status}"}} {number}'
                for (path, status), number in sorted(self._requests.items())
            ),
            "# HELP hkconv_request_seconds Time to answer a request, by path.",
            "# TYPE hkconv_request_seconds histogram",
            *(line for path in sorted(self._counts) for line in self._histogram(path)),
            "# HELP hkconv_requests_in_progress Requests that are not answered yet, this one included.",
            "# TYPE hkconv_requests_in_progress gauge",
            f"hkconv_requests_in_progress {self.in_progress}",
            "# HELP hkconv_predictions_total Nodes and graphs that were predicted.",
            "# TYPE hkconv_predictions_total counter",
            f"hkconv_predictions_total {self.predictions}",
        ]
        return "\n".join(lines) + "\n"

    def _histogram(self, path: str) -> list[str]:
        reached = list(accumulate(self._counts[path]))
        ends = [*map(str, BUCKETS), "+Inf"]
        name = "hkconv_request_seconds"
        buckets = [f'{name}_bucket{{path="{path}",le="{end}"}} {count}' for end, count in zip(ends, reached)]
        return [
            *buckets,
            f'{name}_sum{{path="{path}"}} {self._seconds[path]:.6f}',
            f'{name}_count{{path="{path}"}} {reached[-1]}',
        ]


def find_token(file: Path | str | None) -> str | None:
    """The token that a server asks for.

    Args:
        file: holds the token and nothing else; the environment's ``HKCONV_TOKEN``, if left out.

    Returns:
        The token, None where there is neither.
    """
    if file is None:
        given, place = os.environ.get(TOKEN_VARIABLE), f"{TOKEN_VARIABLE} in the environment"
        if given is None:
            return None
    else:
        given, place = _read(Path(file)), f"token file {file}"
    token = given.strip()
    if not TOKEN.fullmatch(token):
        # Without the token: this line ends up in logs.
        raise InputError(f"{place} must hold one token of letters, digits and ._~+/-, it is empty or holds others")
    return token


def is_allowed(authorization: bytes | None, token: str) -> bool:
    """Compare a header ``Authorization`` with the token, in constant time."""
    scheme, _, shown = (authorization or b"").partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(), token.encode())


def _read(path: Path) -> str:
    try:
        return read_text(path)
    except OSError as error:
        raise InputError(f"token file {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"token file {path} is not text in UTF-8") from None


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
            late = refusal or RefusalError(408, f"the body must arrive within {self.limits.max_seconds:g} seconds")
            # What still comes would be taken for the body for ever.
            late.headers = {**(late.headers or {}), "Connection": "close"}
            return b"", late

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
