"""A TensorFlow 1 graph after reading: nodes with the shapes of their outputs as expressions, and the loops they run in.

What ``read`` makes of a MetaGraphDef and what becomes a Graph; nothing here knows protocol buffers or op costs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

import msgspec

from tensortide.errors import CaptureError
from tensortide.expr import Expr
from tensortide.importers.tensorflow.optypes import MERGES, NEXT

OUTSIDE = -1
"""Loop of a node that runs once."""

Shape: TypeAlias = tuple[Expr, ...]
Attribute: TypeAlias = "bool | int | float | str | bytes | tuple[Attribute, ...] | Constant | None"
"""Dtypes are names; shapes are tuples with -1 for unknown, None for unknown rank; functions are names."""


class MetaGraphError(CaptureError):
    """A file is no TensorFlow MetaGraph, is damaged, or contradicts itself; the message names file and node."""


class Constant(msgspec.Struct, frozen=True):
    """A tensor stored in the file: dtype, shape, and its elements where they are few numbers (else None)."""

    dtype: str
    shape: tuple[int, ...]
    values: tuple[int | float | bool | bytes, ...] | None = None


def stated_shapes(attributes: Mapping[str, Attribute]) -> tuple[Attribute, ...]:
    """Return the shapes that the file states for the outputs of a node, none if it does not."""
    shapes = attributes.get("_output_shapes")
    return shapes if isinstance(shapes, tuple) else ()


class Spec(msgspec.Struct, frozen=True):
    """An output of a node. ``shape`` is None where not even the rank is known. The handle of a variable has the dtype
    and the shape of the variable."""

    dtype: str
    shape: Shape | None


class Ref(msgspec.Struct, frozen=True, array_like=True):
    """Output ``output`` of node number ``node``."""

    node: int
    output: int = 0


class Node(msgspec.Struct, frozen=True):
    """One op of the file. ``loop`` is the innermost loop whose body it is in."""

    name: str
    type: str
    inputs: tuple[Ref, ...]
    control: tuple[int, ...]
    outputs: tuple[Spec, ...] = ()
    attributes: Mapping[str, Attribute] = {}
    loop: int = OUTSIDE


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes in the file's order, with edges between their numbers."""

    nodes: tuple[Node, ...]

    def source(self, ref: Ref, through: Collection[str]) -> Ref:
        """Follow ``ref`` back through the first inputs of nodes of the types ``through``."""
        seen = set()
        while self.nodes[ref.node].type in through and self.nodes[ref.node].inputs and ref.node not in seen:
            seen.add(ref.node)
            ref = self.nodes[ref.node].inputs[0]
        return ref

    def is_back_edge(self, node: Node, ref: Ref) -> bool:
        """Tell whether an input of ``node`` is the value that a loop carries into the next iteration."""
        return node.type in MERGES and self.nodes[ref.node].type in NEXT


class Loop(msgspec.Struct, frozen=True):
    """One while loop: its frame's name, the loop it is in (which stands before it), how often its body runs.

    ``gradient_of`` is the forward loop whose iterations a gradient loop retraces (OUTSIDE: it is no gradient loop)."""

    name: str
    parent: int
    trips: Expr
    gradient_of: int = OUTSIDE


class Program(Nodes, frozen=True, kw_only=True):
    """A whole file. ``hints`` gives every symbol of the expressions a value, the stored one where the file has one.

    ``trainable`` are the names of variables that are trained; ``roots`` name what one training step runs; ``notes`` say
    what was taken to be equal and what does not agree, ``guesses`` what nothing in the file says."""

    loops: tuple[Loop, ...] = ()
    hints: Mapping[str, int] = {}
    trainable: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    version: str = ""
    notes: tuple[str, ...] = ()
    guesses: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    unknown_trips: tuple[str, ...] = ()
