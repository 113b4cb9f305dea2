"""Control flow and what carries tensors past it: loops, conditionals, stacks, tensor arrays, tensor lists, queues."""

from __future__ import annotations

from tensortide.expr import Expr, constant
from tensortide.importers.tf1.program import Shape
from tensortide.importers.tf1.shapes.table import Function, Op, Result, Tensor, Unknown, shape_of

__all__: list[str] = []


@shape_of("Merge RefMerge")
def merge(op: Op) -> Result:
    """Branches meet. What comes in through a back edge is not among the inputs: it is unified later."""
    known = [i for i in range(len(op.inputs)) if op.known(i)]
    if not known:
        return [Tensor(), Tensor(())]
    first = op.inputs[known[0]]
    if op.loops:
        return [Tensor(_carried(op, op.shape(known[0])), handle=first.handle), Tensor(())]
    shape: Shape | None = op.shape(known[0])
    for i in known[1:]:
        shape = _met(op, shape, op.shape(i))
    values = first.values if all(op.inputs[i].values == first.values for i in known) else None
    return [Tensor(shape, values, first.handle), Tensor(())]


def _carried(op: Op, shape: Shape) -> Shape:
    """Return the shape of a loop variable: as it enters, but for dims that change from trip to trip."""
    return tuple(op.unknown(0, i) if (op.number, i) in op.state.varying else dim for i, dim in enumerate(shape))


def _met(op: Op, a: Shape | None, b: Shape) -> Shape | None:
    """Return the shape of either of two branches; dims in which they differ are unknown."""
    if a is None or len(a) != len(b):
        return None
    return tuple(_either(op, x, y, i) for i, (x, y) in enumerate(zip(a, b, strict=True)))


def _either(op: Op, a: Expr, b: Expr, dim: int) -> Expr:
    known = op.sizes.stored(a) and op.sizes.stored(b)
    if a == b or not known or op.sizes.number(a) != op.sizes.number(b):
        return a if a == b else op.unknown(0, dim)
    return op.equal(a, b)


@shape_of("StackV2 Stack FIFOQueueV2 RandomShuffleQueueV2 PaddingFIFOQueueV2 IteratorV2 Iterator OneShotIterator")
def handle(op: Op) -> Result:
    own = (constant(2),) if op.type.startswith("Stack") else ()  # a stack is a container's name and its own
    return [Tensor(op.stored(0) or own, handle=op.number)]


@shape_of("StackPushV2 StackPush")
def push(op: Op) -> Result:
    op.state.pushed[op.handle] = op.inputs[1]
    return [op.inputs[1]]


@shape_of("TensorArrayV3 TensorArrayV2")
def array(op: Op) -> Result:
    op.learn_length(0)
    return [Tensor((constant(2),), handle=op.number), Tensor((), handle=op.number)]


@shape_of("TensorArrayGradV3 TensorArrayGradV2")
def array_gradient(op: Op) -> Result:
    """Another array of the same length and elements."""
    return [Tensor((constant(2),), handle=op.handle), Tensor((), handle=op.handle)]


@shape_of("TensorListReserve EmptyTensorList")
def new_list(op: Op) -> Result:
    if op.type == "TensorListReserve":
        op.learn_length(1)
    return [Tensor((), handle=op.number)]


@shape_of("TensorListFromTensor")
def list_from_tensor(op: Op) -> Result:
    length, *element = op.shape(0)
    op.state.lengths[op.number] = length
    op.state.elements[op.number] = tuple(element)
    return [Tensor((), handle=op.number)]


@shape_of("TensorArrayWriteV3 TensorListSetItem TensorListPushBack")
def put(op: Op) -> Result:
    item = 1 if op.type == "TensorListPushBack" else 2
    if op.known(item):
        op.learn_element(op.shape(item))
        op.state.pushed[op.handle] = op.inputs[item]
    return [Tensor((), handle=op.handle)]


@shape_of("TensorArrayScatterV3 TensorArrayUnpack")
def array_scatter(op: Op) -> Result:
    if op.known(2):
        length, *element = op.shape(2)
        op.learn_element(tuple(element))
        if op.known(1):
            op.equal(op.shape(1)[0], length)
    return [Tensor((), handle=op.handle)]


@shape_of("TensorListPopBack")
def pop_back(op: Op) -> Result:
    pushed = op.state.pushed.get(op.handle, Tensor())
    shape = op.stored(1) if op.state.elements.get(op.handle) is None else op.element()
    return [Tensor((), handle=op.handle), Tensor(shape, pushed.values, pushed.handle)]


@shape_of("TensorArrayConcatV3")
def array_concat(op: Op) -> Result:
    element, length = op.element(), op.length()
    rows = op.unknown(0, 0) if length is None else length * element[0]
    return [Tensor((rows, *element[1:])), Tensor((length or op.unknown(1, 0),))]


@shape_of("TensorArraySizeV3 TensorListLength")
def array_size(op: Op) -> Result:
    length = op.length()
    return [Tensor((), None if length is None else (length,))]


@shape_of("OptionalFromValue")
def wrap(op: Op) -> Result:
    op.state.pushed[op.number] = op.inputs[0]
    return [Tensor((), handle=op.number)]


@shape_of("OptionalGetValue")
def unwrap(op: Op) -> Result:
    if op.handle not in op.state.pushed:
        raise Unknown
    return [op.state.pushed[op.handle]]


@shape_of("QueueEnqueueV2 QueueEnqueueManyV2")
def enqueue(op: Op) -> Result:
    many = op.type == "QueueEnqueueManyV2"
    op.state.queued[op.handle] = tuple(t.shape[1:] if many and t.shape is not None else t.shape for t in op.inputs[1:])
    return []


@shape_of("QueueDequeueV2 QueueDequeueManyV2 QueueDequeueUpToV2")
def dequeue(op: Op) -> Result:
    known = op.state.queued.get(op.handle)
    if known is not None:
        batch: Shape = () if op.type == "QueueDequeueV2" else (op.values(1)[0],)
        return [Tensor(None if shape is None else (*batch, *shape)) for shape in known]
    return op.fed("_output_shapes")


_PLAIN: dict[str, Function] = {
    "Enter RefEnter Exit RefExit NextIteration RefNextIteration RefIdentity": lambda op: [op.inputs[0]],
    "Switch RefSwitch": lambda op: [op.inputs[0]] * 2,
    "SwitchN _SwitchN": lambda op: [op.inputs[0]] * op.outputs,
    "StackPopV2 StackPop": lambda op: [op.state.pushed.get(op.handle, Tensor(op.stored(0)))],
    "TensorArraySplitV3": lambda op: [Tensor((), handle=op.handle)],
    "TensorArrayReadV3 TensorListGetItem ReadVariableOp": lambda op: [Tensor(op.element())],
    "TensorArrayGatherV3": lambda op: [Tensor((*op.shape(1), *op.element()))],
    "TensorListStack": lambda op: [Tensor((op.length() or op.unknown(0, 0), *op.element()))],
    "TensorListElementShape": lambda op: [Tensor((constant(len(op.element())),), op.element())],
}
"""Ops whose outputs are one expression."""

for _types, _function in _PLAIN.items():
    shape_of(_types)(_function)
