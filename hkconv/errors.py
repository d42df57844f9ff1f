"""The error that says what was wrong with which input and what would be right."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """An argument, file or dataset cannot be used; the message is one line written for a person.

    The command line prints it and exits with code 2. It is a :class:`ValueError`, so library users
    catch it as they would catch PyTorch's own complaints.
    """


def did_you_mean(given: object, accepted: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest accepted one, or all where none is near."""
    accepted = list(accepted)
    nearest = difflib.get_close_matches(str(given), accepted, n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"accepted: {', '.join(accepted)}"
