"""Values of an ONNX graph as the importer follows them: shape, dtype and, of small ones, the contents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tensortide.errors import GraphFileError
from tensortide.graph.handles import Handle
from tensortide.importers.symbols import LENGTH

Contents: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.object_]]"
"""Elements of a small tensor; None in it is an element that is not known. Sizes keep their expressions."""

FEW = 512
"""Tensors of up to so many elements keep their contents."""
MOST_DIMS = 64
"""Most dimensions of a tensor."""


class OnnxError(GraphFileError):
    """A model is damaged, contradicts itself, or is of an opset that is not read; the message names node and place."""


@dataclass(slots=True, eq=False)
class Value:
    """A tensor, or with ``items`` a sequence or an optional of tensors. ``handle`` is its place in the Graph under
    construction; ``name`` that in the model."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    contents: Contents | None = None
    handle: Handle | None = None
    items: tuple[Value, ...] | None = None
    name: str = ""
    iteration: int | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class Spec:
    """An output as a shape function describes it. ``view_of`` is the number of the input whose storage it shares;
    ``items``: it is a sequence."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    contents: Contents | None = None
    view_of: int | None = None
    items: tuple[Value, ...] | None = None


@dataclass(slots=True)
class Settings:
    """Symbols of a model: values that were ``given``, ``values`` of all, ``notes`` of what was assumed, ``guesses`` on
    which costs depend, and the names that were ``asked`` for. ``length`` is taken for dimensions that have none, but
    the first of an input."""

    given: dict[str, int]
    values: dict[str, int] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    guesses: dict[str, None] = field(default_factory=dict)
    asked: dict[str, None] = field(default_factory=dict)
    length: int = LENGTH

    def size(self, name: str, hint: int, why: str = "") -> int:
        """Return the symbol ``name`` as a size: its value is the one given, or ``hint``."""
        from tensortide.expr import sized, symbol

        self.asked[name] = None
        if name not in self.values:
            self.values[name] = self.given.get(name, hint)
            if name not in self.given:
                self.notes[f"{name} = {hint}{why and f': {why}'} (--set {name}=...)"] = None
        return sized(symbol(name), self.values[name])

    def known(self, size: int) -> bool:
        """Return whether every symbol in ``size`` was given."""
        from tensortide.expr import expr_of

        return all(name in self.given for name in expr_of(size).symbols)
