"""A network that is kept in a folder or on the Hugging Face hub, in the files of a run's checkpoint.

What a run has trained is loaded from its folder ``MODEL/splitI-seedJ``, and what is saved here is a checkpoint.
"""

import inspect
import json
import os
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import torch

from hkconv.atomic import write_bytes
from hkconv.errors import InputError
from hkconv.models.checkpoint_files import CONFIG_FILE, WEIGHTS_FILE, pack, read_config, restore

Network = TypeVar("Network", bound="Pretrained")


class Pretrained(torch.nn.Module):
    """A network that remembers what it was built with, and can be saved and loaded by itself."""

    #: The name under which :func:`hkconv.models.create` knows it.
    registered_name: ClassVar[str]
    #: The arguments that it was built with, by name.
    build_options: dict[str, Any]

    def __new__(cls: type[Network], *arguments: Any, **options: Any) -> Network:
        made = super().__new__(cls)
        # A copy and a pickle are made without arguments, and get those of the original afterwards.
        bound = inspect.signature(cls.__init__).bind_partial(made, *arguments, **options)
        made.build_options = dict(list(bound.arguments.items())[1:])
        return made

    def save_pretrained(self, folder: Path | str) -> None:
        """Write ``model.safetensors`` and ``config.json``, each atomically, without anything that could be run.

        Args:
            folder: made if it is not there; an older network in it is replaced.
        """
        for name, value in self.build_options.items():
            if not _fits_json(value):
                raise InputError(f"a network can be saved if {name} is a plain value, got a {type(value).__name__}")
        unknown: dict[str, Any] = {"dataset": {}, "training": {}}
        content, config = pack(self, {"model": self.registered_name, "config": self.build_options, **unknown})
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"folder {folder} cannot be written to ({error.strerror})") from None
        write_bytes(folder / WEIGHTS_FILE, content)
        write_bytes(folder / CONFIG_FILE, f"{json.dumps(config, indent=2)}\n".encode())

    @classmethod
    def from_pretrained(cls: type[Network], place: Path | str, *, revision: str | None = None) -> Network:
        """The network of a folder or of a repository on the Hugging Face hub. Nothing from the files is executed.

        Args:
            place: a folder that :meth:`save_pretrained` or a run has written; or, if there is no such folder, a
                repository ``"owner/name"``, for which the extra ``hub`` is needed.
            revision: branch, tag or commit of a repository.

        Returns:
            The network, in evaluation mode on the CPU.
        """
        folder = Path(place) if os.path.isdir(place) else _downloaded(str(place), revision)
        config = read_config(folder)
        if config["model"] != cls.registered_name:
            raise InputError(f"checkpoint {place} is of model {config['model']!r}, expected {cls.registered_name!r}")
        return restore(folder, config, cls)

    def push_to_hub(self, repository: str, *, private: bool = False) -> None:
        """Put the network into a repository on the Hugging Face hub, which is made if it is not there.

        Args:
            repository: ``"owner/name"``.
            private: of a new repository.
        """
        hub = _hub(repository)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            try:
                hub.create_repo(repository, private=private, exist_ok=True)
                hub.upload_folder(repo_id=repository, folder_path=folder)
            except (OSError, ValueError, hub.errors.HTTPError) as error:
                raise _hub_error(repository, error) from None


def _fits_json(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _downloaded(repository: str, revision: str | None) -> Path:
    if repository.count("/") != 1:
        raise InputError(f"pretrained must be a folder or a repository owner/name, got {repository!r}")
    hub = _hub(repository)
    try:
        files = [CONFIG_FILE, WEIGHTS_FILE]
        return Path(hub.snapshot_download(repository, revision=revision, allow_patterns=files))
    except (OSError, ValueError, hub.errors.HTTPError) as error:
        raise _hub_error(repository, error) from None


def _hub(repository: str) -> ModuleType:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError:
        raise InputError(
            f"{repository!r} is no folder here, and for a repository the extra hub is needed: pip install 'hkconv[hub]'"
        ) from None
    return huggingface_hub


def _hub_error(repository: str, error: Exception) -> InputError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(f"repository {repository!r} cannot be reached on the hub: {reason}")
