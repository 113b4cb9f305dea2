"""Calls as GraphBuilder is given them: values and handles of tensors, and the call with holes that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tensortide.errors import GraphError
from tensortide.graph.handles import Given, Handle
from tensortide.graph.model import TENSOR, Const, Value
from tensortide.graph.signatures import Kind, Signature, signatures_of

STORED = ".stored"
"""End of the name of an argument that the op does not take: the elements and bytes that the sparse argument of the name
before it stores; of the sparse results where there is none."""

NESTED = ".nested"
"""Name of an argument that the op does not take: for each tensor of a call, inputs before outputs, the shapes of the
tensors nested in it; none for one of strides."""
LAYER = "layer"
"""Tag of a call of a layer whose weights are not known."""
RECORDED = (STORED, NESTED)


class Bound(NamedTuple):
    """A call: the op's full name, its arguments with holes, the tensors in the holes, and which holes it writes."""

    op: str
    arguments: tuple[tuple[str, Value], ...]
    positional: int
    handles: tuple[Handle, ...]
    mutated: tuple[int, ...]


def bound(
    op: str, given: Sequence[Given], named: Mapping[str, Given], names: Sequence[str], mutates: Sequence[Handle] | None
) -> Bound:
    """Name the arguments of a call: by ``names``, else by the op's signature, else ``x0, x1, ...``.

    ``mutates`` None: what the signature says. Raises GraphError for arguments that do not fit the signature, for
    ``names`` of another number, and for a mutated tensor that is none of the call's.
    """
    signature = None if names else _signature(op, given, named)
    if names and len(names) != len(given):
        raise GraphError(f"{op}: {len(given)} inputs and {len(names)} names for them")
    if names:
        called = list(names)
    elif signature is None:
        called = [f"x{i}" for i in range(len(given))]
    else:
        called = [argument.name for argument in signature.arguments[: len(given)]]
    values = [*zip(called, given, strict=True), *named.items()]
    return of_named(op, values, len(given), mutates, signature)


def of_named(
    op: str,
    values: Sequence[tuple[str, Given]],
    positional: int,
    mutates: Sequence[Handle] | None,
    signature: Signature | None = None,
) -> Bound:
    """Make a call of arguments that have their names, the first ``positional`` by position.

    Raises GraphError for a name that is given twice, and for a mutated tensor that is none of the call's.
    """
    handles: list[Handle] = []
    starts: dict[str, tuple[int, int]] = {}
    arguments = []
    for name, value in values:
        begin = len(handles)
        arguments.append((name, _with_holes(op, name, value, handles)))
        starts[name] = begin, len(handles)
    if len(starts) < len(values):
        raise GraphError(f"{op}: an argument is given twice: {', '.join(name for name, _ in values)}")
    if mutates is not None:
        mutated = _positions(op, handles, mutates)
    else:
        written = () if signature is None else (a.name for a in signature.arguments if a.written and a.name in starts)
        mutated = tuple(hole for name in written for hole in range(*starts[name]))
    return Bound(signature.op if signature else op, tuple(arguments), positional, tuple(handles), mutated)


def _signature(op: str, given: Sequence[Given], named: Mapping[str, Given]) -> Signature | None:
    """Find the overload that takes these arguments; None for an op without a signature."""
    known = signatures_of(op)
    if not known:
        return None
    kinds = [kind_of(value) for value in given]
    fitting = [s for s in known if s.fits(kinds) and named.keys() <= {argument.name for argument in s.arguments}]
    if not fitting:
        shown = ", ".join([*kinds, *named])
        raise GraphError(f"{op}({shown}) fits no overload of the op: {'; '.join(map(str, known))}")
    return min(fitting, key=lambda s: _absent(s, kinds, named))


def _absent(signature: Signature, kinds: Sequence[Kind], named: Mapping[str, Given]) -> int:
    """Count the arguments by position that a call does not give: the overload with the fewest is meant."""
    return sum(not a.keyword and a.name not in named for a in signature.arguments[len(kinds) :])


def kind_of(value: Given) -> Kind:
    """Tell what an argument is given as."""
    if isinstance(value, Handle):
        return "tensor"
    if isinstance(value, tuple | list) and any(isinstance(item, Handle) for item in value):
        return "tensors"
    return "none" if value is None else "value"


def _with_holes(op: str, name: str, value: Given, handles: list[Handle]) -> Value:
    """Put a hole in the place of every tensor, which is appended to ``handles``."""
    if isinstance(value, Handle):
        handles.append(value)
        return TENSOR
    if isinstance(value, tuple | list):
        return tuple([_with_holes(op, name, item, handles) for item in value])
    if value is None or isinstance(value, bool | int | float | complex | str | Const):
        return value
    raise GraphError(
        f"{op}: its argument {name} is a {type(value).__name__}; a tensor of the graph, a number, a text, or a list of "
        "these is needed"
    )


def _positions(op: str, handles: Sequence[Handle], mutates: Sequence[Handle]) -> tuple[int, ...]:
    """Find the holes of the tensors that are mutated."""
    wanted = {handle.index for handle in mutates}
    places = tuple(i for i, handle in enumerate(handles) if handle.index in wanted)
    if len({handles[i].index for i in places}) != len(wanted):
        raise GraphError(f"{op}: it mutates a tensor that is not among its inputs")
    return places
