"""Limits on requests, and refusals: the status and one line of JSON that a client gets in place of an answer."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from hkconv.options import COUNT, POSITIVE


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the requests of a server.

    Args:
        max_bytes: of a request's body.
        max_nodes: of all graphs of a request together; also how many ids one may ask for.
        max_edges: of all graphs of a request together.
        max_seconds: for a body to arrive, and then for its answer.
        max_requests: that are read, wait or are answered at a time.
    """

    max_bytes: int = 1 << 20
    max_nodes: int = 1000
    max_edges: int = 10_000
    max_seconds: float = 30.0
    max_requests: int = 256

    def __post_init__(self) -> None:
        for entry in fields(self):
            interval = POSITIVE if entry.type is float else COUNT
            interval.check(entry.name, getattr(self, entry.name))


# Of a message that repeats a client's own words.
LONGEST_MESSAGE = 500


class RefusalError(Exception):
    """A request that is not answered.

    Args:
        status: of the response.
        message: what was wrong with what, and what would be right.
        headers: of the response.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.headers = status, headers

    def response(self) -> JSONResponse:
        """Response that tells the client."""
        return JSONResponse({"error": one_line(str(self))}, self.status, self.headers)


class Refusal(BaseModel):
    """Reason why a request is not answered, and what would be right."""

    error: str = Field(examples=["posted edges, row 2, column target: no node has the id 'paper 61'"])


def one_line(text: str) -> str:
    """The text without line breaks, cut off where it becomes too long to read."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 4] + " ..."
