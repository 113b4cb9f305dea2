"""Functions of a running TensorFlow: the graph that they were traced into, their variables among its inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensortide.errors import WorkloadError, headline
from tensortide.importers.imported import Imported
from tensortide.importers.tensorflow.program import Constant
from tensortide.importers.tensorflow.reading.raw import SCHEMA, RawGraph, raw_graph, wrapped
from tensortide.importers.tf2.calls import plain, renamed
from tensortide.importers.tf2.load import import_raw


def import_function(
    function: Any,
    inputs: Sequence[Any] = (),
    *,
    settings: Mapping[str, int] | None = None,
    unused: bool = False,
    name: str = "",
    label: Callable[[Any], str] = lambda variable: variable.name.rpartition(":")[0] or variable.name,
    shorten: Callable[[str], str] = plain,
    notes: Sequence[str] = (),
) -> Imported:
    """Convert a concrete function, or a ``tf.function`` traced with ``inputs``: tensors, arrays or TensorSpecs.

    ``label`` names its variables, by default as TensorFlow does; ``shorten`` gives nodes other names. Raises
    WorkloadError for a function that cannot be traced.
    """
    concrete = function if hasattr(function, "captured_inputs") else _traced(function, inputs)
    found = name or getattr(concrete, "name", "") or "function"
    title = found.decode() if isinstance(found, bytes) else found
    data = concrete.graph.as_graph_def().SerializeToString()
    graph = raw_graph(title, SCHEMA.read("MetaGraphDef", wrapped(data)))
    graph.version = sys.modules["tensorflow"].__version__
    _name_captures(graph, concrete, label)
    tensors = [tensor.op.name for tensor in concrete.graph.outputs]
    roots = tuple(dict.fromkeys([*tensors, *(op.name for op in concrete.graph.control_outputs)]))
    if not roots:
        raise WorkloadError(f"{title} returns nothing and changes nothing: there is nothing to count")
    return import_raw(graph, roots, name=title, settings=settings, unused=unused, shorten=shorten, notes=notes)


def _traced(function: Any, inputs: Sequence[Any]) -> Any:
    try:
        return function.get_concrete_function(*inputs)
    except Exception as error:
        text = headline(error) or type(error).__name__
        if not inputs:
            raise WorkloadError(
                "a tf.function is traced with inputs: return (function, (tf.TensorSpec(...), ...)) from a function of "
                f"yours, or in Python give inputs=(tf.TensorSpec(...), ...): {text}"
            ) from error
        raise WorkloadError(
            f"the function cannot be traced with {len(inputs)} inputs (inputs=(tf.TensorSpec(...), ...)): {text}"
        ) from error


def _name_captures(graph: RawGraph, concrete: Any, label: Callable[[Any], str]) -> None:
    """Turn what a function captures into what it is: a variable of its shape, or a constant."""
    variables = {id(variable.handle): variable for variable in concrete.graph.variables}
    names: dict[str, str] = {}
    for outside, inside in concrete.graph.captures:
        node = graph.nodes.get(inside.op.name)
        variable = variables.get(id(outside))
        if node is None:
            continue
        if variable is not None:
            shape = tuple(-1 if n is None else n for n in variable.shape.as_list())
            node.type, node.attributes = "VarHandleOp", {"dtype": variable.dtype.name, "shape": shape}
            names[node.name] = label(variable)
            graph.variables[node.name] = bool(variable.trainable)
        elif outside.dtype.name not in ("resource", "variant"):
            stored = Constant(outside.dtype.name, tuple(outside.shape.as_list()))
            node.type, node.attributes = "Const", {"dtype": outside.dtype.name, "value": stored}
    renamed(graph, names)
