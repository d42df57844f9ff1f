"""From an application to a process that listens: the socket, uvicorn, and an orderly end."""

import math
import socket
from functools import partial

import uvicorn
from fastapi import FastAPI

from hkconv.errors import InputError
from hkconv.serving.connections import ACCEPTED_AT_ONCE, KEEP_ALIVE, Connections, DigestLogger, TimedConnection
from hkconv.serving.limits import Limits

# Connections that wait to be accepted; the system may allow fewer.
BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """A socket that clients can connect to.

    Args:
        host: a name or address of this machine.
        port: 0 for any that is free.

    Returns:
        The socket; connections wait in it until they are accepted.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # Not socket.create_server: asyncio sends small answers at once only where a socket names its protocol.
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
        except BaseException:
            listening.close()
            raise
        return listening
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"host {host} and port {port} cannot be listened on ({reason})") from None


def address_of(listening: socket.socket) -> str:
    """The URL of a server."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(listening: socket.socket) -> bool:
    """Return True if only programs of this machine can connect."""
    host = listening.getsockname()[0]
    return host == "::1" or host.startswith("127.")


class Server(uvicorn.Server):
    """Server that accepts a few connections at a time, while many can wait for that.

    Args:
        config: of uvicorn.
        log: written to its end when the server ends.
    """

    def __init__(self, config: uvicorn.Config, log: DigestLogger):
        super().__init__(config)
        self.log = log

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. asyncio has one number for those that wait and those accepted at once, so the former is set again."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in order."""
        await super().shutdown(sockets)
        self.log.write()


def make_server(app: FastAPI, limits: Limits) -> uvicorn.Server:
    """The server of an application; ``run(sockets=[...])`` answers until Ctrl-C, SIGTERM or ``should_exit``, then what
    has been asked so far, and after that does what the signal does to any program.

    Args:
        app: from :func:`~hkconv.serving.app.create_app`.
        limits: of the app.

    Returns:
        The server.
    """
    connections = Connections(limits)
    config = uvicorn.Config(
        app,
        # What is tested: other implementations, if they happen to be installed, would be taken by default.
        loop="asyncio",
        http=partial(TimedConnection, connections),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=ACCEPTED_AT_ONCE,
        timeout_keep_alive=KEEP_ALIVE,
        # A body and its answer may take as long as each is allowed to.
        timeout_graceful_shutdown=math.ceil(2 * limits.max_seconds),
    )
    return Server(config, connections.log)
