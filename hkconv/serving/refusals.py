"""What a client is told when there is no answer: a status and one line of JSON."""

from collections.abc import Mapping

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

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
        """What the client gets."""
        return JSONResponse({"error": one_line(str(self))}, self.status, self.headers)


class Refusal(BaseModel):
    """What was wrong with which part of the request, and what would be right."""

    error: str = Field(examples=["posted edges, row 2, column target: no node has the id 'paper 61'"])


def one_line(text: str) -> str:
    """The text without line breaks, cut off where it becomes too long to read."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 4] + " ..."
