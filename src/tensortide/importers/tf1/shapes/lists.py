"""Tensor lists, with which loops of functions collect and stash what stacks and tensor arrays do in control flow v1."""

from __future__ import annotations

from tensortide.expr import constant
from tensortide.importers.tf1.program import Shape
from tensortide.importers.tf1.shapes.table import Op, Result, Tensor, Unknown, shape_of

__all__: list[str] = []


@shape_of("TensorListReserve", "EmptyTensorList")
def new_list(op: Op) -> Result:
    length = op.inputs[1].values if op.type == "TensorListReserve" else None
    if length is not None:
        op.state.lengths[op.number] = op.sizes.now(length[0])
    return [Tensor((), handle=op.number)]


@shape_of("TensorListFromTensor")
def list_from_tensor(op: Op) -> Result:
    length, *element = op.shape(0)
    op.state.lengths[op.number] = length
    op.state.elements[op.number] = tuple(element)
    return [Tensor((), handle=op.number)]


@shape_of("TensorListSetItem", "TensorListPushBack")
def put(op: Op) -> Result:
    item = 2 if op.type == "TensorListSetItem" else 1
    source = op.inputs[0].handle
    if op.known(item):
        known = op.state.elements.get(source)
        op.state.elements[source] = op.shape(item) if known is None else op.same(known, op.shape(item))
        op.state.pushed[source] = op.inputs[item]
    return [Tensor((), handle=source)]


def _element(op: Op, output: int) -> Shape | None:
    known = op.state.elements.get(op.inputs[0].handle)
    return op.stored(output) if known is None else tuple(map(op.sizes.now, known))


@shape_of("TensorListGetItem")
def get(op: Op) -> Result:
    return [Tensor(_element(op, 0))]


@shape_of("TensorListPopBack")
def pop_back(op: Op) -> Result:
    pushed = op.state.pushed.get(op.inputs[0].handle)
    popped = Tensor(_element(op, 1)) if pushed is None else Tensor(_element(op, 1), pushed.values, pushed.handle)
    return [Tensor((), handle=op.inputs[0].handle), popped]


@shape_of("TensorListStack")
def stack(op: Op) -> Result:
    element = op.state.elements.get(op.inputs[0].handle)
    length = op.state.lengths.get(op.inputs[0].handle)
    if element is None:
        raise Unknown
    return [Tensor((op.unknown(0, 0) if length is None else op.sizes.now(length), *element))]


@shape_of("TensorListElementShape")
def element_shape(op: Op) -> Result:
    element = op.state.elements.get(op.inputs[0].handle)
    if element is None:
        raise Unknown
    return [Tensor((constant(len(element)),), tuple(map(op.sizes.now, element)))]


@shape_of("OptionalFromValue")
def wrap(op: Op) -> Result:
    op.state.pushed[op.number] = op.inputs[0]
    return [Tensor((), handle=op.number)]


@shape_of("OptionalGetValue")
def unwrap(op: Op) -> Result:
    held = op.state.pushed.get(op.inputs[0].handle)
    if held is None:
        raise Unknown
    return [held]


@shape_of("TensorListLength")
def length(op: Op) -> Result:
    known = op.state.lengths.get(op.inputs[0].handle)
    return [Tensor((), None if known is None else (op.sizes.now(known),))]
