"""The secret that clients show. It is no argument of the command, for all users of a machine can see those."""

import hmac
import os
import re
from pathlib import Path

from hkconv.errors import InputError

# The name of a variable, and no token.
TOKEN_VARIABLE = "HKCONV_TOKEN"  # nosec B105
# What RFC 6750 lets a client send.
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


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
    """Whether a header ``Authorization`` shows the token; how long that takes says nothing about where they differ."""
    scheme, _, shown = (authorization or b"").partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(), token.encode())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"token file {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"token file {path} is not text in UTF-8") from None
