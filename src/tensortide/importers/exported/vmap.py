"""``torch.vmap`` in a program: between two marks tensors lack the batch dimension, and every op runs on all of them.

Such a stretch is a loop over the batch, with what does not depend on it before the loop. Results are stacked behind it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tensortide.errors import GraphError
from tensortide.graph import Handle, Out
from tensortide.importers.exported.program import Node, Ref, Type, refs

if TYPE_CHECKING:
    from tensortide.importers.exported.build import Building

ENTER, LEAVE = "_vmap_increment_nesting", "_vmap_decrement_nesting"
_ADD, _REMOVE = "_add_batch_dim", "_remove_batch_dim"


def mark(op: str) -> str:
    """The last part of the name of an op, by which marks are known."""
    return op.rpartition(".")[2]


def hoisted(nodes: Sequence[Node]) -> list[Node]:
    """``nodes`` with those of each outermost stretch that do not depend on its batch moved before it."""
    found: list[Node] = []
    depth, batched = 0, set[str]()
    stretch: list[Node] = []
    for node in nodes:
        kind = mark(node.op)
        depth += (kind == ENTER) - (kind == LEAVE)
        if not stretch and kind != ENTER:
            found.append(node)
            continue
        reads = {name for _, value in node.arguments for name in refs(value)}
        if kind in (ENTER, LEAVE, _ADD, _REMOVE) or depth > 1 or not batched.isdisjoint(reads):
            batched.update(filter(None, node.outputs))
            stretch.append(node)
        else:
            found.append(node)
        if depth <= 0:
            found, stretch, batched = [*found, *stretch], [], set()
    return [*found, *stretch]


class Vmaps:
    """The stretches that are open, the innermost last: what ends each, its batch, and the results that are stacked."""

    def __init__(self, to: Building) -> None:
        self._to = to
        self._open: list[tuple[contextlib.ExitStack, int, list[tuple[str, Type, Handle]]]] = []

    def take(self, node: Node, types: Mapping[str, Type], values: dict[str, Handle]) -> Sequence[Handle | None] | None:
        """The results of a node that begins or ends a stretch or a batch; None for any other."""
        kind = mark(node.op)
        if kind not in (ENTER, LEAVE, _ADD, _REMOVE):
            return None
        items = [value for _, value in node.arguments]
        if kind == ENTER:
            count = items[0] if items else None
            if not isinstance(count, int):
                raise GraphError("its batch is no number")
            stack = contextlib.ExitStack()
            stack.enter_context(self._to.b.loop(node.name, count))
            self._open.append((stack, count, []))
            return []
        if not self._open:
            raise GraphError("it is outside of any vmap")
        if kind == LEAVE:
            self._leave(values)
            return []
        source = items[0] if items else None
        name = node.outputs[0] if node.outputs else None
        if not isinstance(source, Ref) or name is None:
            raise GraphError("it has no tensor")
        read = self._to.tensor(source.name, values)
        if kind == _REMOVE:
            self._open[-1][2].append((name, types[name], read))
            return [read]
        dim = items[1] if len(items) > 1 and isinstance(items[1], int) else 0
        kept = types[name]
        strides = kept.strides if len(kept.strides) == len(kept.shape) else None
        row = Out(kept.shape, kept.dtype, view_of=read, strides=strides)
        return self._to.b.call(
            "aten.select.int", [("self", read), ("dim", dim), ("index", 0)], positional=3, outs=[row]
        )

    def _leave(self, values: dict[str, Handle]) -> None:
        stack, count, results = self._open.pop()
        stack.close()
        for name, kind, row in results:
            out = Out(kind.shape, kind.dtype)
            rows = (row,) if count else ()  # an empty batch makes none
            made = self._to.b.call("aten.stack.default", [("tensors", rows), ("dim", 0)], positional=2, outs=[out])
            if made[0] is not None:
                values[name] = made[0]
