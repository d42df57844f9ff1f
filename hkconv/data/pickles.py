"""What a pickle asks for, read off before it is run: a pickle is a program, and its names are all it can reach."""

# It takes pickles apart and runs none.
import pickletools  # nosec B403
from collections.abc import Collection

from hkconv.errors import InputError

# Newer pickles take names from a stack, where they cannot be read off; extensions and persistent ids lead elsewhere.
_HIDDEN = ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4", "PERSID")


def check_pickle(content: bytes, allowed: Collection[str], place: str) -> None:
    """Raise if a pickle asks for a name that is not allowed, or for one that cannot be read off.

    Args:
        content: the pickle. What is damaged fails with whatever error comes first.
        allowed: names as ``"module name"``.
        place: how an error calls the file.
    """
    for step, argument, _ in pickletools.genops(content):
        if step.name in _HIDDEN or (step.name == "GLOBAL" and argument not in allowed):
            name = str(argument).replace(" ", ".") if step.name == "GLOBAL" else step.name
            raise InputError(f"{place} is refused: it asks for {name}, which a graph of tensors does not need")
