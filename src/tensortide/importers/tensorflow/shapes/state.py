"""Sources of tensors and sizes, and what carries tensors on: constants, feeds, variables and their updates; loops,
conditionals, stacks, tensor arrays, tensor lists, queues."""

from __future__ import annotations

import math

from tensortide.expr import Expr, constant
from tensortide.importers.tensorflow.program import Constant, Shape, stated_shapes
from tensortide.importers.tensorflow.shapes.op import (
    FEW_POSITIONS,
    MOST_VALUES,
    Op,
    Result,
    Tensor,
    Unknown,
    shape_of,
    vector,
)
from tensortide.importers.tensorflow.sizes.unify import Origin

__all__: list[str] = []

WHOLE = frozenset({"int32", "int64", "uint8", "int16", "bool"})


@shape_of("Const")
def const(op: Op) -> Result:
    """A stored tensor. Its dims and elements may be sizes of the model said with numbers, so each above 1 is a symbol:
    what it equals is found where it is used."""
    value = op.attributes.get("value")
    if not isinstance(value, Constant):
        raise Unknown
    positions = value.dtype in WHOLE and value.values is not None and len(value.values) <= FEW_POSITIONS
    named = not positions and 0 not in value.shape
    shape = tuple(_size(op, f":0::dim_{i}", n) if named else constant(n) for i, n in enumerate(value.shape))
    if value.dtype not in WHOLE or value.values is None or len(value.values) > MOST_VALUES:
        return shape
    return Tensor(shape, tuple(_size(op, f"[{i}]", v) for i, v in enumerate(value.values) if isinstance(v, int)))


def _size(op: Op, place: str, value: int) -> Expr:
    return constant(int(value)) if value <= 1 else op.sizes.new(f"{op.name}{place}", value, Origin.CONSTANT)


@shape_of("Placeholder PlaceholderV2")
def placeholder(op: Op) -> Result:
    """A fed tensor. Old files say ``shape { }`` where the shape is unknown; what is stored of the output decides."""
    said = op.attributes.get("shape") or next(iter(stated_shapes(op.attributes)), op.attributes.get("shape"))
    shape = op.stated(said, 0, Origin.STORED_FEED, Origin.FEED)
    whole = shape == () and op.attribute("dtype", "") in ("int32", "int64")
    return Tensor(shape, (op.sizes.new(f"value({op.name})", None, Origin.FEED),) if whole else None)


@shape_of("Variable VariableV2 VarHandleOp TemporaryVariable")
def variable(op: Op) -> Result:
    shape = op.stated(op.attributes.get("shape"), 0, Origin.VARIABLE)
    if op.type == "VarHandleOp":
        op.state.elements[op.number] = shape
        shape = ()
    return Tensor(shape, handle=op.number)


@shape_of("ReadVariableOp")
def read(op: Op) -> Result:
    """The variable. Where its handle does not say the shape, what is stored of its value does."""
    if op.state.elements.get(op.handle) is None:
        op.state.elements[op.handle] = op.stored(0)
    return op.element()


@shape_of("Shape ShapeN VariableShape")
def shape_values(op: Op) -> Result:
    results = []
    for i, tensor in enumerate(op.inputs):
        shape = op.state.elements.get(tensor.handle) if op.type == "VariableShape" else tensor.shape
        if shape is None and not i:
            raise Unknown
        results.append(Tensor() if shape is None else vector(shape))
    return results


@shape_of("Assign AssignAdd AssignSub")
def assign(op: Op) -> Result:
    if op.known(0) and op.known(1) and op.attribute("validate_shape", True):
        op.same(op.shape(0), op.shape(1))
    return op.inputs[0]


@shape_of(
    "ApplyGradientDescent ApplyMomentum ApplyAdagrad ApplyAdam ApplyRMSProp ApplyCenteredRMSProp ApplyAdadelta "
    "ApplyFtrl ApplyFtrlV2 ApplyAdaMax ApplyAddSign ApplyPowerSign ApplyProximalAdagrad ApplyProximalGradientDescent "
    "ApplyAdagradDA ApplyAdagradV2 ResourceApplyGradientDescent ResourceApplyMomentum ResourceApplyKerasMomentum "
    "ResourceApplyAdagrad ResourceApplyAdagradV2 ResourceApplyAdam ResourceApplyAdamWithAmsgrad ResourceApplyAdaMax "
    "ResourceApplyRMSProp ResourceApplyCenteredRMSProp ResourceApplyAdadelta ResourceApplyFtrl ResourceApplyFtrlV2 "
    "AssignVariableOp AssignAddVariableOp AssignSubVariableOp "
    "ScatterSub ScatterAdd ScatterUpdate ScatterMul ScatterDiv ScatterMin ScatterMax ResourceScatterSub "
    "ResourceScatterAdd ResourceScatterUpdate"
)
def update(op: Op) -> Result:
    """The variable; one behind a handle is not handed on.

    What has its rank (slots, gradient) has its shape; updates of rows have it with the indices for its first axis.
    """
    held = op.type.startswith("Resource") or op.type.endswith("VariableOp")
    shape = op.state.elements.get(op.handle) if held else op.shape(0)
    if "Scatter" in op.type:
        if shape is not None and op.known(1) and op.known(2) and op.shape(2):
            op.same((*op.shape(1), *shape[1:]), op.shape(2))
    else:
        for i in range(1, len(op.inputs)):
            if shape and op.known(i) and len(op.shape(i)) == len(shape):
                op.same(shape, op.shape(i))
    return [] if held else Tensor(op.shape(0), handle=op.handle)


@shape_of("Merge RefMerge")
def merge(op: Op) -> Result:
    """Branches meet. What comes in through a back edge is not among the inputs: it is unified later."""
    known = [i for i in range(len(op.inputs)) if op.known(i)]
    if not known:
        return [Tensor(), Tensor(())]
    first = op.inputs[known[0]]
    shape: Shape | None = op.shape(known[0])
    if op.loops and shape is not None:  # dims that change from trip to trip have sizes of their own
        varying = op.state.varying
        shape = tuple(op.unknown(0, i) if (op.number, i) in varying else dim for i, dim in enumerate(shape))
        return [Tensor(shape, handle=first.handle), Tensor(())]
    for i in known[1:]:
        shape = _met(op, shape, op.shape(i))
    values = first.values if all(op.inputs[i].values == first.values for i in known) else None
    return [Tensor(shape, values, first.handle), Tensor(())]


def _met(op: Op, a: Shape | None, b: Shape) -> Shape | None:
    """Return the shape of either of two branches; dims in which they differ are unknown."""
    if a is None or len(a) != len(b):
        return None
    stored, number = op.sizes.stored, op.sizes.number
    alike = [x == y or (stored(x) and stored(y) and number(x) == number(y)) for x, y in zip(a, b, strict=True)]
    return tuple(op.equal(a[i], b[i]) if same else op.unknown(0, i) for i, same in enumerate(alike))


@shape_of("StackPushV2 StackPush")
def push(op: Op) -> Result:
    op.state.pushed[op.handle] = op.inputs[1]
    return op.inputs[1]


@shape_of("TensorArrayV3 TensorArrayV2")
def array(op: Op) -> Result:
    op.learn_length(0)
    return [Tensor((constant(2),), handle=op.number), Tensor((), handle=op.number)]


@shape_of("TensorListReserve")
def new_list(op: Op) -> Result:
    op.learn_length(1)
    return Tensor((), handle=op.number)


@shape_of("TensorListFromTensor")
def list_from_tensor(op: Op) -> Result:
    op.state.lengths[op.number], *element = op.shape(0)
    op.state.elements[op.number] = tuple(element)
    return Tensor((), handle=op.number)


@shape_of("TensorArrayWriteV3 TensorListSetItem TensorListPushBack")
def put(op: Op) -> Result:
    item = 1 if op.type == "TensorListPushBack" else 2
    if op.known(item):
        op.learn_element(op.shape(item))
        op.state.pushed[op.handle] = op.inputs[item]
    return Tensor((), handle=op.handle)


@shape_of("TensorArrayScatterV3 TensorArrayUnpack")
def array_scatter(op: Op) -> Result:
    if op.known(2):
        length, *element = op.shape(2)
        op.learn_element(tuple(element))
        if op.known(1):
            length = op.equal(op.shape(1)[0], length)
        op.state.has_length(op.handle, length, op.sizes)
    return Tensor((), handle=op.handle)


@shape_of("TensorArraySplitV3")
def array_split(op: Op) -> Result:
    if op.known(2):
        op.state.has_length(op.handle, op.shape(2)[0], op.sizes)
    return Tensor((), handle=op.handle)


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
    return Tensor((), None if length is None else (length,))


@shape_of("OptionalFromValue")
def wrap(op: Op) -> Result:
    op.state.pushed[op.number] = op.inputs[0]
    return Tensor((), handle=op.number)


@shape_of("OptionalGetValue")
def unwrap(op: Op) -> Result:
    if op.handle not in op.state.pushed:
        raise Unknown
    return op.state.pushed[op.handle]


@shape_of("QueueEnqueueV2 QueueEnqueueManyV2")
def enqueue(op: Op) -> Result:
    many = op.type == "QueueEnqueueManyV2"
    op.state.queued[op.handle] = tuple(t.shape[1:] if many and t.shape is not None else t.shape for t in op.inputs[1:])
    return []


@shape_of("QueueDequeueV2 QueueDequeueManyV2 QueueDequeueUpToV2")
def dequeue(op: Op) -> Result:
    known = op.state.queued.get(op.handle)
    if known is None:
        return op.fed("_output_shapes")
    batch: Shape = () if op.type == "QueueDequeueV2" else (op.values(1)[0],)
    return [Tensor(None if shape is None else (*batch, *shape)) for shape in known]


shape_of("IteratorGetNext IteratorGetNextSync DatasetToSingleElement")(lambda op: op.fed("output_shapes"))
shape_of("Size")(lambda op: Tensor((), (math.prod(op.shape(0), start=constant(1)),)))
shape_of("Rank")(lambda op: Tensor((), (constant(len(op.shape(0))),)))
shape_of("SequenceMask")(lambda op: (*op.shape(0), op.values(1)[0]))
shape_of("NoOp ControlTrigger Assert TensorArrayCloseV3 StackCloseV2 QueueCloseV2")(lambda op: [])
shape_of(
    "SparseApplyGradientDescent SparseApplyMomentum SparseApplyAdagrad SparseApplyAdam SparseApplyRMSProp "
    "ScatterNdUpdate ScatterNdAdd ScatterNdSub"
)(lambda op: Tensor(op.shape(0), handle=op.handle))
# the shape that is the value of an input
shape_of("BroadcastTo")(lambda op: op.values(1))
shape_of(
    "RandomUniform RandomStandardNormal TruncatedNormal RandomUniformInt ParameterizedTruncatedNormal "
    "StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal StatelessRandomUniformV2 "
    "StatelessRandomNormalV2 Empty StridedSliceGrad AvgPoolGrad AvgPool3DGrad"
)(lambda op: op.values(0))
shape_of("Enter RefEnter Exit RefExit NextIteration RefNextIteration RefIdentity")(lambda op: op.inputs[0])
shape_of("Switch RefSwitch")(lambda op: [op.inputs[0]] * 2)
shape_of("SwitchN _SwitchN")(lambda op: [op.inputs[0]] * op.outputs)
shape_of("StackPopV2 StackPop")(lambda op: op.state.pushed.get(op.handle, Tensor(op.stored(0))))
# another array of the same length and elements
shape_of("TensorArrayGradV3 TensorArrayGradV2")(
    lambda op: [Tensor((constant(2),), handle=op.handle), Tensor((), handle=op.handle)]
)
shape_of("EmptyTensorList")(lambda op: Tensor((), handle=op.number))
# a stack is a container's name and its own
shape_of("StackV2 Stack")(lambda op: Tensor(op.stored(0) or (constant(2),), handle=op.number))
shape_of("FIFOQueueV2 RandomShuffleQueueV2 PaddingFIFOQueueV2 IteratorV2 Iterator OneShotIterator")(
    lambda op: Tensor(op.stored(0) or (), handle=op.number)
)
shape_of("TensorListResize")(lambda op: Tensor((), handle=op.handle))
shape_of("TensorArrayReadV3 TensorListGetItem")(lambda op: op.element())
shape_of("TensorArrayGatherV3")(lambda op: (*op.shape(1), *op.element()))
shape_of("TensorListStack")(lambda op: (op.length() or op.unknown(0, 0), *op.element()))
shape_of("TensorListElementShape")(lambda op: vector(op.element()))
