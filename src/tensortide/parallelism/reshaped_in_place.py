"""Tensors whose shape a step changes in place (``transpose_``): in the Graph of a rank the op makes a view instead.

A tensor of a Graph has one shape. Once an op has changed it in place, another rank would be sent the tensor, and a
program would read it, under a shape that it no longer has.
"""

from __future__ import annotations

from msgspec.structs import replace

from tensortide.graph.model import Call, Graph

_OVERLOADS = {
    "transpose": "int",
    "squeeze": "",
    **dict.fromkeys(("t", "unsqueeze", "swapaxes", "swapdims", "as_strided"), "default"),
}
"""Ops that change a shape in place, without their underscore: the overload that returns a view (empty: the same)."""


def with_views(graph: Graph) -> Graph:
    """``graph`` with views in the place of shapes that change."""
    calls = tuple(map(_viewing, graph.calls))
    return graph if calls == graph.calls else replace(graph, calls=calls)


def _viewing(call: Call) -> Call:
    plain, _, overload = call.op.removeprefix("aten.").partition("_.")
    if not overload or plain not in _OVERLOADS or not call.op.startswith("aten."):
        return call
    return replace(call, op=f"aten.{plain}.{_OVERLOADS[plain] or overload}", mutated=(), tags=("view",))
