"""The table of layers, and one call of a layer in the hands of its function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tensortide.dtypes import DTYPES
from tensortide.graph.builder import GraphBuilder
from tensortide.graph.handles import Handle, Out
from tensortide.graph.model import Role, Value
from tensortide.importers.shapes import ShapeError, Table, axis_of, layout

Shape: TypeAlias = tuple[int, ...]
Function: TypeAlias = "Callable[[Layer], Handle | list[Handle]]"

LAYERS: Table[Function] = Table()
"""By the name of the class."""

layer = LAYERS.rows


@dataclass(frozen=True)
class Weights:
    """The variables of all layers by path: a layer that is called twice has them once."""

    b: GraphBuilder
    made: dict[str, Handle] = field(default_factory=dict)

    def get(self, path: str, shape: Shape, dtype: str, role: Role, trainable: bool) -> Handle:
        """Return the variable at ``path``, made at its first use."""
        if path not in self.made:
            self.made[path] = self.b.value(path, shape, dtype, role=role, trainable=trainable)
        return self.made[path]


@dataclass(frozen=True)
class Layer:
    """One call of a layer: its class, path, description, inputs and keyword arguments of the call."""

    b: GraphBuilder
    weights: Weights
    kind: str
    path: str
    config: Mapping[str, Any]
    inputs: Sequence[Handle]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    trainable: bool = True
    apply: Callable[[Mapping[str, Any], str, Sequence[Handle], bool], list[Handle]] | None = None

    @property
    def x(self) -> Handle:
        """The first input."""
        if not self.inputs:
            raise ShapeError("it has no input")
        return self.inputs[0]

    def axes(self, name: str = "axis") -> list[int]:
        """Return one axis of the first input, or several, counted from the front. Raises ShapeError."""
        value = self.config.get(name, -1)
        given = [value] if isinstance(value, int) else value
        if not given or not isinstance(given, list) or any(not isinstance(axis, int) for axis in given):
            raise ShapeError(f"its {name} is {value!r}")
        return [axis_of(axis, len(self.x.shape)) for axis in given]

    def number(self, name: str, default: int | None = None) -> int:
        """Return a whole number of the description. Raises ShapeError for anything else, or a negative one."""
        value = self.config.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ShapeError(f"its {name} is {value!r}")
        return value

    def numbers(self, name: str, count: int, default: int = 1) -> Shape:
        """Return ``count`` numbers of the description; one stands for all."""
        value = self.config.get(name, default)
        found = (value,) * count if isinstance(value, int) else tuple(value) if isinstance(value, list) else ()
        if len(found) != count or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in found):
            raise ShapeError(f"its {name} is {value!r}")
        return found

    def is_true(self, name: str, default: bool = False) -> bool:
        """Return a yes or no of the description."""
        return bool(self.config.get(name, default))

    def name_of(self, name: str, default: str = "linear") -> str:
        """Return the name of a function of the description: an activation, by its name or its class."""
        value = self.config.get(name)
        if isinstance(value, dict):
            inner = value.get("config")
            value = inner if isinstance(inner, str) else value.get("class_name")
        return value if isinstance(value, str) else default

    def layout(self, x: Handle) -> tuple[int, range]:
        """Return the axis of channels and those of space."""
        return layout(len(x.shape), self.config.get("data_format") == "channels_first")

    @property
    def policy(self) -> tuple[str, str]:
        """The dtypes that it computes with and that its variables have."""
        value = self.config.get("dtype")
        if isinstance(value, dict):
            value = value.get("config", {}).get("name")
        name = value if isinstance(value, str) else "float32"
        name = name.rpartition("_from_")[2]
        if name.startswith("mixed_"):
            return name.removeprefix("mixed_"), "float32"
        if name not in DTYPES:
            raise ShapeError(f"its dtype {name} is unknown")
        return name, name

    def weight(self, name: str, *shape: int) -> Handle:
        """Return a trained variable."""
        return self.weights.get(f"{self.path}.{name}", shape, self.policy[1], Role.PARAMETER, self.trainable)

    def buffer(self, name: str, *shape: int) -> Handle:
        """Return a variable that is not trained."""
        return self.weights.get(f"{self.path}.{name}", shape, self.policy[1], Role.BUFFER, False)

    def op(
        self, kind: str, inputs: Mapping[str, Handle], shape: Sequence[int], dtype: str = "", **arguments: Value
    ) -> Handle:
        """Append ``keras.<kind>`` with inputs by name and an output of ``shape``."""
        out = Out(tuple(shape), dtype or self.policy[0])
        return self.b.op(
            f"keras.{kind}", *inputs.values(), out=out, arguments=arguments, names=tuple(inputs), label=self.path
        )

    def view(self, kind: str, x: Handle, shape: Sequence[int]) -> Handle:
        """Append an op that only renames its input."""
        return self.b.op(f"keras.{kind}", x, out=Out(tuple(shape), x.dtype, view_of=x), label=self.path)

    def activated(self, x: Handle, name: str = "activation") -> Handle:
        """Append the activation of the layer, where it has one."""
        kind = self.name_of(name)
        return x if kind == "linear" else self.op(f"activation_{kind}", {"x": x}, x.shape, x.dtype)
