"""``read_program``: a MetaGraphDef as a Program."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tensortide.collector import no_collection
from tensortide.dtypes import ITEM_BYTES
from tensortide.expr import Expr, as_expr
from tensortide.importers.tensorflow.optypes import ENTERS, PASSES
from tensortide.importers.tensorflow.program import MetaGraphError, Node, Program, Ref, Spec, stated_shapes
from tensortide.importers.tensorflow.reading.functions import lowered
from tensortide.importers.tensorflow.reading.link import Linked, linked
from tensortide.importers.tensorflow.reading.prune import PRESETS, prepared, pruned, step_roots
from tensortide.importers.tensorflow.reading.raw import RawGraph, load, node_name
from tensortide.importers.tensorflow.signatures import output_dtypes
from tensortide.importers.tensorflow.sizes.names import Names
from tensortide.importers.tensorflow.sizes.propagate import Bindings, Propagation, propagated
from tensortide.importers.tensorflow.sizes.unify import Conflict, Origin

Preparation = Literal["default", "catamount"]

ELEMENTS = "::elements"
"""The end of the symbols for sizes of tensors of which not even the rank is known."""


@no_collection()
def read_program(
    source: str | Path | bytes | RawGraph,
    *,
    preparation: Preparation = "default",
    preset: str = "none",
    drop: Sequence[str] = (),
    fetches: Sequence[str] = (),
    bind: Mapping[str, Sequence[int | str | Expr]] | None = None,
    words: Mapping[str, str] | None = None,
) -> Program:
    """Read the training step of a MetaGraphDef (or GraphDef), with every size and trip count as an expression.

    Args:
        source: a file (``.meta``, ``.pb``, either compressed with gzip), its bytes, or what it was loaded as.
        preparation: ``default`` keeps what the step's roots need, control edges included, and sizes are exact;
            ``catamount`` keeps everything but savers and initializers, ignores control edges, and divides sizes by
            strides whatever the padding.
        preset: with ``catamount``, what else to remove, by model: a name in ``prune.PRESETS``.
        drop: with ``catamount``, what else to remove: regular expressions that match whole node names.
        fetches: the nodes to run instead of the file's own roots.
        bind: sizes that the caller names: a regular expression that matches whole node names, and for each dim of the
            matching placeholders, variables and other nodes, or each element of matching constants, a number, a symbol
            or an expression (``"4*h"``).
        words: other names for sizes that get one of a letter: ``{"b": "batch"}``.

    Sizes that data decide are taken to be the most that they can be. Raises MetaGraphError for a file that is damaged
    or something else, for shapes that do not fit, and for bindings that contradict the file or each other."""
    raw = lowered(source if isinstance(source, RawGraph) else load(source))
    if preset not in PRESETS:
        raise MetaGraphError(f"there is no preset {preset!r}: {', '.join(PRESETS)}")
    roots, exact = step_roots(raw, fetches), preparation == "default"
    kept = pruned(raw, roots) if exact else prepared(raw, [*PRESETS[preset], *drop])
    found = propagated(linked(raw, kept), _bindings(bind or {}), exact)
    unmatched = [pattern for pattern in bind or {} if pattern not in found.bound]
    if unmatched:
        raise raw.fail(f"no node is named {unmatched[0]!r}, for which sizes are bound")
    return _program(found, roots, words or {})


def _bindings(bind: Mapping[str, Sequence[int | str | Expr]]) -> Bindings:
    try:
        return [(re.compile(pattern), tuple(as_expr(dim) for dim in dims)) for pattern, dims in bind.items()]
    except re.error as error:
        raise MetaGraphError(f"{error.pattern!r} is no regular expression: {error}") from None


def _program(found: Propagation, roots: tuple[str, ...], words: Mapping[str, str]) -> Program:
    """Name the sizes that are left, and write everything down under these names."""
    raw, loops = found.graph.raw, found.counters.loops()
    try:
        names = Names(found, [loop.trips for loop in loops], words)
    except Conflict as error:
        raise raw.fail(f"sizes do not fit: {error}", found.sizes.place) from None
    final = functools.cache(names.final)
    dtypes, guesses = _dtypes(found)
    nodes = tuple(_nodes(found, dtypes, final))
    loops = [msgspec.structs.replace(loop, trips=final(loop.trips)) for loop in loops]
    dims = {dim for node in nodes for spec in node.outputs for dim in spec.shape or ()} | {loop.trips for loop in loops}
    used = {name for dim in dims for name in dim.symbols}
    hints = {name: value for name, value in names.hints(dims).items() if name in used}
    kept = {node.name for node in nodes}
    notes = [*names.notes, *_left_out(raw, kept), *_disagreements(found, nodes, hints)]
    unsized = [name.removesuffix(ELEMENTS) for name in hints if name.endswith(ELEMENTS)]
    if unsized:
        note = f"The file does not tell the rank of {len(unsized)} tensors ({unsized[0]}, ...): each has a symbol."
        notes.append(note)
    return Program(
        nodes=nodes,
        loops=tuple(loops),
        hints=hints,
        trainable=tuple(name for name, trainable in raw.variables.items() if trainable and name in kept),
        roots=roots,
        version=raw.version,
        notes=tuple(notes),
        guesses=guesses,
        open=tuple(name for name in map(names.name_of, sorted(found.sizes.unstored)) if name in hints),
        unknown_trips=tuple(
            name
            for old in sorted(found.sizes.unstored)
            if old.startswith(("trips(", "value(")) and (name := names.name_of(old)) in hints
        ),
    )


def _dtypes(found: Propagation) -> tuple[list[Sequence[str]], tuple[str, ...]]:
    """Find the dtypes of all outputs, and say of which ops nothing tells them.

    Calls and control flow of functions are written out in ops without attributes: these have the dtypes of what they
    pass on.
    """
    graph = found.graph
    said = [
        (str(node.attributes.get("dtype")),)
        if node.type == "VarHandleOp"
        else output_dtypes(node.type, node.attributes, len(tensors))
        for node, tensors in zip(graph.nodes, found.tensors, strict=True)
    ]
    dtypes: list[Sequence[str]] = []
    untold: Counter[str] = Counter()
    for i, node in enumerate(graph.nodes):
        known = [dtype or _passed(graph, said, Ref(i, k)) for k, dtype in enumerate(said[i])]
        untold[node.type] += known.count("")
        dtypes.append([dtype or "float32" for dtype in known])
        if unknown := {*dtypes[i]} - ITEM_BYTES.keys():
            raise graph.raw.fail(f"a result has the unknown dtype {min(unknown)}", node.name)
    guesses = (f"{kind}: nothing says the dtype of {n} results: float32 is taken" for kind, n in (+untold).items())
    return dtypes, tuple(guesses)


def _passed(graph: Linked, dtypes: Sequence[Sequence[str]], ref: Ref) -> str:
    """The dtype of what an op passes on; empty if it does not or nothing says it."""
    seen: set[Ref] = set()
    while not (dtype := dtypes[ref.node][ref.output]) and ref not in seen:
        node = graph.nodes[ref.node]
        place = ref.output if node.type == "IdentityN" else 0
        if node.type not in PASSES | {"IdentityN"} or place >= len(node.inputs):
            break
        seen.add(ref)
        ref = node.inputs[place]
    return dtype


def _nodes(found: Propagation, dtypes: Sequence[Sequence[str]], final: Callable[[Expr], Expr]) -> Iterator[Node]:
    """Nodes with their outputs; the handle of a variable has the dtype and shape of the variable.

    A tensor of which not even the rank is known has one dimension, a symbol.
    """
    graph = found.graph
    for i, (node, tensors) in enumerate(zip(graph.nodes, found.tensors, strict=True)):
        shapes = [tensor.shape for tensor in tensors]
        if node.type == "VarHandleOp":
            shapes = [found.state.elements.get(i)]
        outputs = []
        for k, (dtype, shape) in enumerate(zip(dtypes[i], shapes, strict=True)):
            known = shape is not None or not ITEM_BYTES.get(dtype, 0)
            own = shape if known else (found.sizes.new(f"{node.name}:{k}{ELEMENTS}", 1, Origin.DERIVED),)
            outputs.append(Spec(dtype, None if own is None else tuple(map(final, own))))
        attributes = {key: value for key, value in node.attributes.items() if key != "_output_shapes"}
        loop = graph.frames[graph.frame[i]].parent if node.type in ENTERS else graph.frame[i]
        yield msgspec.structs.replace(node, outputs=tuple(outputs), attributes=attributes, loop=loop)


def _left_out(raw: RawGraph, kept: Collection[str]) -> list[str]:
    """Updates that the file lists apart (moving averages) and that the step does not run."""
    updates = raw.collections.get("update_ops", ())
    missing = [name for name in map(node_name, updates) if name not in kept]
    return [f"{len(missing)} of {len(updates)} update_ops are no part of it: {missing[0]}, ..."] if missing else []


def _disagreements(found: Propagation, nodes: Sequence[Node], hints: Mapping[str, int]) -> Iterator[str]:
    """Stored sizes that the expressions do not give at the stored values."""
    value = functools.cache(lambda dim: dim.subs(hints).value)
    for node, stored in zip(nodes, found.graph.nodes, strict=True):
        shapes = stated_shapes(stored.attributes) if node.type != "VarHandleOp" else ()
        for k, (spec, shape) in enumerate(zip(node.outputs, shapes, strict=False)):
            if spec.shape is None or not isinstance(shape, tuple):
                continue
            if len(shape) != len(spec.shape):
                yield f"{node.name}:{k} has {len(spec.shape)} dimensions; the file says {len(shape)}"
                continue
            for dim, number in zip(spec.shape, shape, strict=True):
                if isinstance(number, int) and number >= 0 and value(dim) != number:
                    yield f"{node.name}:{k} has a size of {dim} = {value(dim)}; the file says {number}"
