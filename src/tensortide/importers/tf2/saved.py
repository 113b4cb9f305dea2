"""A SavedModel's folder as a graph to be read: one signature of it, and the variables that this signature uses."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tensortide.errors import WorkloadError
from tensortide.importers.protobuf import WireError
from tensortide.importers.tensorflow.program import MetaGraphError
from tensortide.importers.tensorflow.reading.functions import CALLS
from tensortide.importers.tensorflow.reading.raw import SCHEMA, RawGraph, content, node_name, raw_graph
from tensortide.importers.tf2.calls import renamed

FILE = "saved_model.pb"
DEFAULT_SIGNATURE = "serving_default"
"""The signature that serving calls where none is named."""

_INITIALIZES = "__saved_model_init_op"


class Saved(NamedTuple):
    """One signature of a SavedModel: the graph, the ``roots`` that the signature returns, and its name."""

    graph: RawGraph
    roots: tuple[str, ...]
    signature: str


def read_saved_model(folder: Path, signature: str = "") -> Saved:
    """Read a signature of the SavedModel in ``folder`` (``serving_default``, or the only one, where none is named).

    Raises MetaGraphError for a damaged file, WorkloadError for a signature that it does not have.
    """
    file = folder / FILE if folder.is_dir() else folder
    try:
        model = SCHEMA.read("SavedModel", content(file, str(file)))
    except WireError as error:
        raise MetaGraphError(f"{file}: no SavedModel, or a damaged one ({error})") from None
    if not model.meta_graphs:
        raise MetaGraphError(f"{file}: no SavedModel, or a damaged one (it has no graph)")
    meta = next((meta for meta in model.meta_graphs if "serve" in meta.meta_info_def.tags), model.meta_graphs[0])
    graph = raw_graph(str(file), meta)
    name, chosen = _chosen(file, {entry.key: entry.value for entry in meta.signature_def}, signature)
    _name_variables(graph, meta.object_graph_def)
    roots = tuple(dict.fromkeys(node_name(entry.value.name) for entry in chosen.outputs if entry.value.name))
    if not roots:
        raise MetaGraphError(f"{file}: the signature {name!r} returns nothing")
    renamed(graph, {node_name(entry.value.name): entry.key for entry in chosen.inputs})
    return Saved(graph, roots, name)


def _chosen(file: Path, signatures: dict[str, Any], wanted: str) -> tuple[str, Any]:
    known = [name for name in signatures if name != _INITIALIZES]
    listed = ", ".join(known) or "none"
    if not wanted and DEFAULT_SIGNATURE in known:
        wanted = DEFAULT_SIGNATURE
    if not wanted and len(known) == 1:
        wanted = known[0]
    if not known:
        raise MetaGraphError(f"{file}: it has no signature, so nothing says what of it runs")
    if not wanted:
        raise WorkloadError(f"{file} has several signatures: name one with --signature: {listed}")
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise WorkloadError(f"{file} has no signature {wanted!r}{hint}\nIts signatures are: {listed}.")
    return wanted, signatures[wanted]


def _name_variables(graph: RawGraph, objects: Any) -> None:
    """Note which variables are trained, under names of their own where the file has names of theirs.

    The arguments of a signature's function that come last are what the object graph says is bound to it. A variable
    that no function binds is known by its name.
    """
    bound = {entry.key: entry.value.bound_inputs for entry in objects.concrete_functions}
    trained = {node.variable.name: node.variable.trainable for node in objects.nodes if "variable" in node}
    found: dict[str, bool] = {}
    for node in graph.nodes.values():
        captured = bound.get(str(node.attributes.get("f", ""))) if node.type in CALLS else None
        if captured:
            inputs = [name for name, _ in node.inputs[-len(captured) :]]
            found.update(_bound(graph, objects, inputs, captured))
    for node in graph.nodes.values():
        if node.type == "VarHandleOp":
            name = str(node.attributes.get("shared_name") or node.name)
            graph.variables[node.name] = found.get(node.name, trained.get(name, not trained))


def _bound(graph: RawGraph, objects: Any, inputs: list[str], captured: Any) -> Iterator[tuple[str, bool]]:
    """Pair the handles given to a function with the saved variables that they are of."""
    for name, number in zip(inputs, captured, strict=False):
        node = graph.nodes.get(name)
        stored = objects.nodes[number] if 0 <= number < len(objects.nodes) else None
        if node is not None and node.type == "VarHandleOp" and stored is not None and "variable" in stored:
            yield name, stored.variable.trainable
