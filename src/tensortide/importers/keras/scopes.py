"""Names of layers for the scopes that TensorFlow makes of them: those of a second call have numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tensortide.importers.keras.modules import layers_of

_NUMBER = re.compile(r"_\d+$")
_GRADIENTS = re.compile(r"^gradient_tape(?:_\d+)?/")


class Scopes:
    """Scopes of a traced model and the layers they are of. What a layer reads its variables under tells which it is;
    another scope is that of the layer whose name it has, its number left out."""

    def __init__(self, model: Any) -> None:
        self.model = model.name
        self.names = {layer.name for layer in layers_of(model)}
        self.known: dict[tuple[str, ...], str] = {}

    def learn(self, scope: str, variable: str) -> None:
        """Learn from the place where a variable is read, and its path: ``net_1/dense_2/Cast``, ``net/dense/kernel``."""
        places, layers = self._inside(scope.split("/")), self._inside(variable.split("/")[:-1])
        if len(places) <= len(layers) or any(not _is_of(a, b) for a, b in zip(places, layers, strict=False)):
            return
        for i, name in enumerate(layers):
            self.known.setdefault(tuple(places[: i + 1]), name)

    def learn_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Learn from several."""
        for scope, variable in pairs:
            self.learn(scope, variable)

    def shorten(self, name: str) -> str:
        """Return the name of a node with the names of layers for scopes, that of the model left out."""
        found = _GRADIENTS.match(name)
        before = found[0] if found else ""
        places = self._inside(name[len(before) :].split("/"))
        parts = [self._part(tuple(places[: i + 1])) for i in range(len(places) - 1)]
        return before + "/".join([*parts, places[-1]])

    def _inside(self, places: list[str]) -> list[str]:
        """Return scopes without that of the model."""
        return places[1:] if len(places) > 1 and _is_of(places[0], self.model) else places

    def _part(self, places: tuple[str, ...]) -> str:
        if places in self.known:
            return self.known[places]
        base = _base(places[-1])
        return base if base in self.names else places[-1]


def _base(name: str) -> str:
    return _NUMBER.sub("", name)


def _is_of(scope: str, name: str) -> bool:
    """Tell whether a scope has a name, or a number after it."""
    return scope == name or _base(scope) == name
