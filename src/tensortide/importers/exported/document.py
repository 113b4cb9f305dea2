"""The JSON of an exported program as typed records (schema versions 5 to 8, PyTorch 2.4 and later).

Unions of the format are records with one field set. Fields that say nothing about sizes or calls are left out.
"""

from __future__ import annotations

import json
from typing import TypeAlias, TypeVar

import msgspec

from tensortide.errors import TraceError

_MOST_PARTS = 5_000_000
"""Objects and lists in a document, which take more memory than their text; a model of 100 layers has a million."""
SCHEMAS = (5, 6, 7, 8)
"""Major versions that are read; minor ones add to them."""

T = TypeVar("T")
Float: TypeAlias = float | str
"""A float, or the word for one that JSON does not have: ``Infinity``."""


class Hint(msgspec.Struct):
    """The value that an expression has in the example."""

    as_int: int | None = None
    as_bool: bool | None = None
    as_float: float | None = None


class Expression(msgspec.Struct):
    """An expression, and its value in the example that the program was exported with."""

    expr_str: str
    hint: Hint | int | None = None

    @property
    def value(self) -> int | None:
        """The value of the hint; None if it is not known."""
        return self.hint if isinstance(self.hint, int) or self.hint is None else self.hint.as_int


class Int(msgspec.Struct):
    """A number: an integer, or an expression."""

    as_int: int | None = None
    as_expr: Expression | None = None


class NamedNumber(msgspec.Struct):
    """An integer, a float or a truth value, or the name of one."""

    as_int: int | None = None
    as_float: Float | None = None
    as_bool: bool | None = None
    as_name: str | None = None


class Name(msgspec.Struct):
    """A tensor by its name."""

    name: str


class OptionalName(msgspec.Struct):
    """A tensor by its name, or none."""

    as_tensor: Name | None = None


class Device(msgspec.Struct):
    """A device, with its number."""

    type: str
    index: int | None = None


class Complex(msgspec.Struct):
    """A complex number."""

    real: float
    imag: float


class GraphArgument(msgspec.Struct):
    """A graph that a higher-order op runs."""

    name: str
    graph: Graph


class CustomObject(msgspec.Struct):
    """An object of a class that the program does not describe."""

    name: str
    class_fqn: str = ""


class Argument(msgspec.Struct):
    """An argument: one field is set, or none is for None."""

    as_tensor: Name | None = None
    as_tensors: list[Name] | None = None
    as_int: int | None = None
    as_ints: list[int] | None = None
    as_float: Float | None = None
    as_floats: list[Float] | None = None
    as_string: str | None = None
    as_strings: list[str] | None = None
    as_sym_int: NamedNumber | None = None
    as_sym_ints: list[NamedNumber] | None = None
    as_scalar_type: int | None = None
    as_memory_format: int | None = None
    as_layout: int | None = None
    as_device: Device | None = None
    as_bool: bool | None = None
    as_bools: list[bool] | None = None
    as_sym_bool: NamedNumber | None = None
    as_sym_bools: list[NamedNumber] | None = None
    as_graph: GraphArgument | None = None
    as_optional_tensors: list[OptionalName] | None = None
    as_custom_obj: CustomObject | None = None
    as_operator: str | None = None
    as_sym_float: NamedNumber | None = None
    as_sym_floats: list[NamedNumber] | None = None
    as_optional_tensor: OptionalName | None = None
    as_complex: Complex | None = None
    as_nested_tensors: list[list[Name]] | None = None
    as_int_lists: list[list[int]] | None = None
    as_float_lists: list[list[Float]] | None = None
    as_string_to_argument: dict[str, Argument] | None = None


class NamedArgument(msgspec.Struct):
    """An argument of a call; ``kind`` is 2 for one that is given by keyword."""

    name: str
    arg: Argument
    kind: int | None = None


class Node(msgspec.Struct):
    """A call of an op."""

    target: str
    inputs: list[NamedArgument]
    outputs: list[Argument]
    metadata: dict[str, str] = {}
    name: str | None = None


class TensorMeta(msgspec.Struct):
    """Dtype and layout of a tensor."""

    dtype: int
    sizes: list[Int]
    strides: list[Int]
    storage_offset: Int
    device: Device
    requires_grad: bool = False
    layout: int = 7


class Graph(msgspec.Struct):
    """Calls in order, and the types of all values."""

    inputs: list[Argument]
    outputs: list[Argument]
    nodes: list[Node]
    tensor_values: dict[str, TensorMeta]
    sym_int_values: dict[str, Int] = {}


class ValueSpec(msgspec.Struct):
    """An entry of the signature that is a value of any kind."""

    arg: Argument


class TensorSpec(msgspec.Struct):
    """An entry of the signature: a tensor, and the name of what it is in the model or among the inputs."""

    arg: Name
    parameter_name: str = ""
    buffer_name: str = ""
    tensor_constant_name: str = ""
    user_input_name: str = ""


class InputSpec(msgspec.Struct):
    """The kind of one input: one field is set."""

    user_input: ValueSpec | None = None
    parameter: TensorSpec | None = None
    buffer: TensorSpec | None = None
    tensor_constant: TensorSpec | None = None


class OutputSpec(msgspec.Struct):
    """The kind of one result: one field is set."""

    user_output: ValueSpec | None = None
    loss_output: TensorSpec | None = None
    buffer_mutation: TensorSpec | None = None
    parameter_mutation: TensorSpec | None = None
    user_input_mutation: TensorSpec | None = None
    gradient_to_parameter: TensorSpec | None = None
    gradient_to_user_input: TensorSpec | None = None


class Signature(msgspec.Struct):
    """The kinds of inputs and results, in order."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]


class GraphModule(msgspec.Struct):
    """A graph and its signature."""

    graph: Graph
    signature: Signature


class Range(msgspec.Struct):
    """The least and the largest value of a symbol."""

    min_val: int | float | None = None
    max_val: int | float | None = None


class SchemaVersion(msgspec.Struct):
    """Version of the schema."""

    major: int
    minor: int = 0


class Document(msgspec.Struct):
    """A whole program."""

    graph_module: GraphModule
    schema_version: SchemaVersion
    range_constraints: dict[str, Range] = {}
    torch_version: str = "<=2.4"


class _Version(msgspec.Struct):
    schema_version: SchemaVersion | None = None


class Payload(msgspec.Struct):
    """The place of the values of one tensor."""

    path_name: str


class Payloads(msgspec.Struct):
    """The places of the values of parameters and buffers, by their names: tied ones share a path."""

    config: dict[str, Payload] = {}


def read_document(data: bytes, origin: str) -> Document:
    """The program that ``data`` says. Raises TraceError with the place that is wrong, or for another schema."""
    version = decode(data, _Version, origin).schema_version
    if version is None:
        raise TraceError(f"{origin}: a program without a schema_version")
    if version.major not in SCHEMAS:
        known = f"{SCHEMAS[0]} to {SCHEMAS[-1]}"
        raise TraceError(
            f"{origin}: a program of schema version {version.major}.{version.minor}; those of {known} are read"
        )
    return decode(data, Document, origin)


def decode(data: bytes, kind: type[T], origin: str) -> T:
    """``data`` as a record. JSON as Python writes it may have infinities, which others do not read.

    Raises TraceError with the place that is wrong.
    """
    parts = data.count(b"{") + data.count(b"[")
    if parts > _MOST_PARTS:
        raise TraceError(f"{origin}: {parts:,} objects and lists, more than the {_MOST_PARTS:,} that are read")
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise TraceError(f"{origin}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        first = error
    try:
        return msgspec.convert(json.loads(data), type=kind)
    except msgspec.ValidationError as error:
        raise TraceError(f"{origin}: {error}") from None
    except (ValueError, RecursionError):
        raise TraceError(f"{origin}: {first}") from None
