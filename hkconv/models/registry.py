"""Registry of classes by the names people type: a class is imported when it is looked up, and not before."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from hkconv.errors import unknown_name
from hkconv.lazy import load_attribute

Kind = TypeVar("Kind")


class Registry(Mapping[str, type[Kind]], Generic[Kind]):
    """Mapping from names to classes, which are imported when they are looked up.

    Args:
        noun: what a name stands for, for the message about an unknown one.
        package: where the modules are.
        places: ``"module:Class"`` of each name, the module relative to the package.
        exports: ``"module:name"`` of what else the package offers besides these classes.
    """

    def __init__(self, noun: str, package: str, places: Mapping[str, str], exports: Iterable[str] = ()):
        self.noun, self.package, self.places = noun, package, places
        #: The module of each class and each other export, by its name in Python, relative to the package.
        self.homes: dict[str, str] = {}
        for place in (*places.values(), *exports):
            module, _, name = place.partition(":")
            self.homes[name] = module

    def __getitem__(self, name: str) -> type[Kind]:
        return self.load(self.places[name].partition(":")[2])

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def find(self, name: str) -> type[Kind]:
        """Return the class of a name, or raise an :class:`~hkconv.errors.InputError` that names those there are."""
        if name not in self:
            raise unknown_name(self.noun, name, self)
        return self[name]

    def load(self, attribute: str) -> Any:
        """Return a class or another export by its name in Python; the ``__getattr__`` of the package."""
        return load_attribute(self.package, self.homes, attribute)
