"""The error that says what was wrong with which input and what would be right, and errors for want of memory."""

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

# Ways in which PyTorch, CUDA and the system say so.
_NO_MEMORY = re.compile(r"out of memory|allocate memory|not enough memory|ALLOC_FAILED|bad_alloc", re.IGNORECASE)
_OF_A_GPU = re.compile(r"CUDA|CUBLAS|GPU|pinned", re.IGNORECASE)
_SIZE = re.compile(r"allocate (\d[\d.]* ?\w+)")


class InputError(ValueError):
    """An argument, file or dataset cannot be used; the message is one line written for a person.

    The command line prints it and exits with code 2. It is a :class:`ValueError`, so library users
    catch it as they would catch PyTorch's own complaints.
    """


def did_you_mean(given: object, accepted: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest accepted one, or all where none is near."""
    accepted = list(accepted)
    nearest = nearest_name(given, accepted)
    return f"did you mean {nearest!r}?" if nearest else f"accepted: {', '.join(accepted)}"


def unknown_name(noun: str, given: object, accepted: Iterable[str]) -> InputError:
    """An error about an unknown name: the nearest accepted one, if one is near, and all of them."""
    accepted = list(accepted)
    nearest = nearest_name(given, accepted)
    guess = f"did you mean {nearest!r}? " if nearest else ""
    return InputError(f"unknown {noun} {given!r}; {guess}accepted: {', '.join(accepted)}")


def nearest_name(given: object, accepted: Iterable[str]) -> str | None:
    """Return the accepted name that is spelled most alike, whatever its case; None where none is near."""
    by_lower = {name.lower(): name for name in accepted}
    found = difflib.get_close_matches(str(given).lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the memory of the machine or of a GPU ran out."""
    is_told = isinstance(error, RuntimeError | OSError) and _NO_MEMORY.search(str(error)) is not None
    return is_told or isinstance(error, MemoryError)


def describe_shortage(error: BaseException) -> str:
    """Return what ran out, in words, and the notes of an error of :func:`is_out_of_memory`."""
    size = _SIZE.search(str(error))
    place = "the GPU" if _OF_A_GPU.search(str(error)) else "this machine"
    wanted = f" ({size[1]} more were asked for)" if size else ""
    advice = getattr(error, "__notes__", None) or ["smaller batches, a smaller model or less data need less"]
    return "; ".join([f"the memory of {place} ran out{wanted}", *advice])


@contextmanager
def advised_on_memory(advice: str) -> Iterator[None]:
    """Add a note to an error for want of memory: what to do."""
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            error.add_note(advice)
        raise
