"""Bodies by which ONNX itself defines ops by others: they stand for ops whose gradient no rule of ours knows."""

from __future__ import annotations

from typing import Any

from tensortide.expr import Size
from tensortide.importers.onnx.names import op_name
from tensortide.importers.onnx.read import DTYPES, Body, function_of
from tensortide.importers.onnx.shapes.base import Call
from tensortide.importers.onnx.value import Value

_KINDS = {name: number for number, name in DTYPES.items()}


def body_of(call: Call) -> Body | None:
    """Return the body that defines the op of a node on its inputs, None where there is none, or the node has attributes
    that are tensors or graphs."""
    from onnx import FunctionProto, defs, helper

    node, inputs = call.node, call.inputs
    values = node.attributes.values()
    parts = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    if any(value is not None and value.items is not None for value in inputs) or not all(
        isinstance(part, int | float | str) for part in parts
    ):
        return None
    try:
        schema: Any = defs.get_schema(node.type, call.version, node.domain)
    except defs.SchemaError:
        return None
    if len(inputs) < schema.min_input:
        return None
    fixed = [version for version in schema.function_opset_versions if version <= call.version]
    open_ = [version for version in schema.context_dependent_function_opset_versions if version <= call.version]
    if fixed:
        found = schema.get_function_with_opset_version(fixed[-1])
    elif open_:
        made = helper.make_node(node.type, node.inputs, node.outputs, domain=node.domain, **node.attributes)
        found = schema.get_context_dependent_function_with_opset_version(
            open_[-1], made.SerializeToString(), [_type(value) for value in inputs]
        )
    else:
        return None
    if not found:
        return None
    defaults = [one.default_value for one in schema.attributes.values() if one.default_value.type]
    return function_of(FunctionProto.FromString(found), call.file, defaults)


def _type(value: Value | None) -> bytes:
    """Encode the type of an input; a size with an expression is left open."""
    from onnx import TypeProto, helper

    if value is None or value.dtype not in _KINDS:
        return TypeProto().SerializeToString()
    shape = [None if isinstance(n, Size) else int(n) for n in value.shape]
    return helper.make_tensor_type_proto(_KINDS[value.dtype], shape).SerializeToString()


def needs_body(call: Call) -> bool:
    """Tell whether a derived training step needs the body of an op: no rule knows its gradient."""
    from tensortide.importers.onnx.training.replay import STOPS
    from tensortide.importers.onnx.training.rules import BACKWARD

    return op_name(call.node) not in {**BACKWARD, **dict.fromkeys(STOPS)}
