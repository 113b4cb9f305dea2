"""Calls that are kept in order by a token: each is the op that it calls, since tokens are no data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tensortide.errors import GraphError
from tensortide.graph.model import Const
from tensortide.importers.exported.program import Node

_WITH_EFFECTS = "higher_order.with_effects"


def without_tokens(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield ``nodes`` with ``with_effects(token, op, ...)``, which returns a token and what ``op`` does, as calls of
    ``op``. Raises GraphError for one that names no op."""
    for node in nodes:
        if node.op.partition(".default")[0] != _WITH_EFFECTS:
            yield node
            continue
        called = node.arguments[1][1] if len(node.arguments) > 1 else None
        op = called.value if isinstance(called, Const) else called
        if not isinstance(op, str):
            raise GraphError(f"{node.name} ({node.op}): it names no op")
        yield replace(
            node, op=op.removeprefix("torch.ops."), arguments=node.arguments[2:], outputs=node.outputs[1:],
            positional=max(node.positional - 2, 0),
        )  # fmt: skip
