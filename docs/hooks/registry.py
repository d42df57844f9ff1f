"""The reference shows what the registries of models name, although Python imports it only when it is used."""

import griffe

from hkconv.models import MODELS
from hkconv.models.translation import TRANSLATION_MODELS


class Registered(griffe.Extension):
    """Adds the names of each registry to the package that offers them."""

    def on_package(self, *, pkg: griffe.Module, **_) -> None:
        for registry in (MODELS, TRANSLATION_MODELS):
            room = pkg[registry.package.partition(".")[2]]
            for name, home in registry.homes.items():
                room.set_member(name, griffe.Alias(name, f"{registry.package}.{home}.{name}"))
            room.exports = [*room.exports, *registry.homes]
