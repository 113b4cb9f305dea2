"""``read_program``: a MetaGraphDef as a Program."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

from tensortide.expr import Expr, as_expr
from tensortide.importers.tf1.optypes import ENTERS, VARIABLES
from tensortide.importers.tf1.program import OUTSIDE, Loop, MetaGraphError, Node, Program, Shape, Spec, stated_shapes
from tensortide.importers.tf1.reading.functions import lowered
from tensortide.importers.tf1.reading.link import Linked, linked
from tensortide.importers.tf1.reading.prune import PRESETS, prepared, pruned, step_roots
from tensortide.importers.tf1.reading.raw import RawGraph, load, node_name
from tensortide.importers.tf1.signatures import output_dtypes
from tensortide.importers.tf1.sizes.bind import Binding, exemplified, named
from tensortide.importers.tf1.sizes.loops import Trips, forward_loops, trip_counts
from tensortide.importers.tf1.sizes.propagate import Bindings, Propagated, propagated
from tensortide.importers.tf1.sizes.unify import Origin, Sizes

__all__ = ["Preparation", "read_program"]

Preparation = Literal["default", "catamount"]


def read_program(
    source: str | Path | bytes,
    *,
    preparation: Preparation = "default",
    preset: str = "none",
    drop: Sequence[str] = (),
    fetches: Sequence[str] = (),
    bind: Mapping[str, Sequence[int | str | Expr]] | None = None,
    keep_sizes: Collection[int] = (),
    masks: bool = False,
) -> Program:
    """Read the training step of a MetaGraphDef (or GraphDef), with every size and trip count as an expression.

    Args:
        source: a file (``.meta``, ``.pb``, either compressed with gzip) or its bytes.
        preparation: ``default`` keeps what the step's roots need, control edges included, and sizes are exact;
            ``catamount`` keeps everything but savers and initializers, ignores control edges, and divides sizes by
            strides whatever the padding.
        preset: with ``catamount``, what else to remove, by model: a name in ``prune.PRESETS``.
        drop: with ``catamount``, what else to remove: regular expressions that match whole node names.
        fetches: the nodes to run instead of the file's own roots.
        bind: sizes that the caller names: a regular expression that matches whole node names, and for each dim of the
            matching placeholders, variables and other nodes, or each element of matching constants, a number, a symbol
            or an expression (``"4*h"``).
        keep_sizes: stored sizes that stay numbers.
        masks: sizes that data decide stay symbols, ``num_true(op)`` and ``num_unique(op)``; otherwise they are taken
        to be the most that they can be (``bounds`` says what, either way).

    Raises MetaGraphError for a file that is damaged or something else, for shapes that do not fit, and for bindings
    that contradict the file or each other."""
    raw = lowered(load(source))
    if preset not in PRESETS:
        raise MetaGraphError(f"there is no preset {preset!r}: {', '.join(PRESETS)}")
    roots = step_roots(raw, fetches)
    nodes = prepared(raw, [*PRESETS[preset], *drop]) if preparation == "catamount" else pruned(raw, roots)
    graph = linked(raw, nodes)
    bindings = _bindings(bind or {})
    found = propagated(graph, bindings, exact=preparation == "default")
    unmatched = [pattern for pattern in bind or {} if pattern not in found.bound]
    if unmatched:
        raise raw.fail(f"no node is named {unmatched[0]!r}, for which sizes are bound")
    trips = _trips(graph, found)
    binding = named(graph, found, [t.count for t in trips], keep_sizes, masks)
    return _Writer(raw, graph, found, binding).program(trips, roots)


def _bindings(bind: Mapping[str, Sequence[int | str | Expr]]) -> Bindings:
    try:
        return [(re.compile(pattern), tuple(as_expr(dim) for dim in dims)) for pattern, dims in bind.items()]
    except re.error as error:
        raise MetaGraphError(f"{error.pattern!r} is no regular expression: {error}") from None


def _trips(graph: Linked, found: Propagated) -> list[Trips]:
    """Every loop's trips; a symbol where they cannot be derived."""
    sizes = found.sizes
    trips: list[Trips] = []
    forward = forward_loops(graph)
    for i, derived in enumerate(trip_counts(graph, found.tensors, sizes)):
        name = graph.frames[forward.get(i, i)].name
        trips.append(derived or Trips(sizes.new(f"trips({name})", None, Origin.DERIVED)))
    return trips


class _Writer:
    """Puts the names in and writes everything down."""

    def __init__(self, raw: RawGraph, graph: Linked, found: Propagated, binding: Binding) -> None:
        self.raw, self.graph, self.found, self.binding = raw, graph, found, binding
        self.sizes: Sizes = found.sizes
        self._written: dict[Expr, Expr] = {}

    def _write(self, expr: Expr) -> Expr:
        """Return an expression in the final names."""
        written = self._written.get(expr)
        if written is None:
            final = self.sizes.now(expr)
            renamed = {n: self.binding.substitution[n] for n in final.symbols if n in self.binding.substitution}
            written = self._written[expr] = final.subs(renamed) if renamed else final
        return written

    def _shape(self, shape: Shape | None) -> Shape | None:
        return None if shape is None else tuple(map(self._write, shape))

    def program(self, trips: Sequence[Trips], roots: tuple[str, ...]) -> Program:
        nodes = tuple(self._node(i) for i in range(len(self.graph.nodes)))
        forward = forward_loops(self.graph)
        loops = tuple(
            Loop(frame.name, frame.parent, self._write(t.count), forward.get(i, OUTSIDE), t.bound)
            for i, (frame, t) in enumerate(zip(self.graph.frames, trips, strict=True))
        )
        dims = {dim for node in nodes for spec in node.outputs for dim in spec.shape or ()} | {
            loop.trips for loop in loops
        }
        used = {name for dim in dims for name in dim.symbols}
        hints = exemplified(self.binding, dims)
        kept = {node.name for node in nodes}
        return Program(
            nodes=nodes,
            loops=loops,
            hints={name: value for name, value in hints.items() if name in used},
            collections=self.raw.collections,
            variables=tuple(node.name for node in nodes if node.type in VARIABLES),
            trainable=tuple(v.name for v in self.raw.variables.values() if v.trainable and v.name in kept),
            roots=roots,
            version=self.raw.version,
            notes=(*self.binding.notes, *self._left_out(kept), *self._disagreements(nodes, hints)),
            bounds=self.binding.bounds,
            unresolved=tuple(sorted(n for n in used if "::dim_" in n or n.startswith("trips("))),
        )

    def _node(self, i: int) -> Node:
        raw, tensors = self.graph.nodes[i], self.found.tensors[i]
        dtypes = output_dtypes(raw.type, raw.attributes, len(tensors))
        outputs = tuple(Spec(dtype, self._shape(t.shape)) for dtype, t in zip(dtypes, tensors, strict=True))
        if raw.type == "VarHandleOp":
            outputs = (Spec(str(raw.attributes.get("dtype")), self._shape(self.found.state.elements.get(i))),)
        attributes = {key: value for key, value in raw.attributes.items() if key != "_output_shapes"}
        loop = self.graph.frame[i]
        if raw.type in ENTERS:
            loop = self.graph.frames[loop].parent
        return Node(raw.name, raw.type, self.graph.inputs[i], self.graph.control[i], outputs, attributes, loop)

    def _left_out(self, kept: Collection[str]) -> list[str]:
        """Updates that the file lists apart (moving averages) and that the step does not run."""
        updates = self.raw.collections.get("update_ops", ())
        missing = [name for name in map(node_name, updates) if name not in kept]
        return [f"{len(missing)} of {len(updates)} update_ops are no part of it: {missing[0]}, ..."] if missing else []

    def _disagreements(self, nodes: Sequence[Node], hints: Mapping[str, int]) -> list[str]:
        """Stored sizes that the expressions do not give at the stored values."""
        wrong: list[str] = []
        values: dict[Expr, object] = {}
        for node, raw in zip(nodes, self.graph.nodes, strict=True):
            stored = stated_shapes(raw.attributes) if raw.type != "VarHandleOp" else ()
            for k, (spec, shape) in enumerate(zip(node.outputs, stored, strict=False)):
                if spec.shape is None or not isinstance(shape, tuple):
                    continue
                if len(shape) != len(spec.shape):
                    wrong.append(f"{node.name}:{k} has {len(spec.shape)} dimensions; the file says {len(shape)}")
                    continue
                for dim, number in zip(spec.shape, shape, strict=True):
                    if dim not in values:
                        values[dim] = dim.subs(hints).value
                    if isinstance(number, int) and number >= 0 and values[dim] != number:
                        wrong.append(f"{node.name}:{k} has a size of {dim} = {values[dim]}; the file says {number}")
        return wrong
