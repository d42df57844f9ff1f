"""The error that says what was wrong with which input and what would be right."""


class InputError(ValueError):
    """An argument, file or dataset cannot be used; the message is one line written for a person.

    The command line prints it and exits with code 2. It is a :class:`ValueError`, so library users
    catch it as they would catch PyTorch's own complaints.
    """
