"""Sources of tensors and sizes: constants, feeds, variables; and ops that turn shapes into values."""

from __future__ import annotations

from tensortide.expr import Expr, constant
from tensortide.importers.tf1.program import Constant, Shape, stated_shapes
from tensortide.importers.tf1.shapes.arrays import FEW_POSITIONS
from tensortide.importers.tf1.shapes.elementwise import MOST_VALUES
from tensortide.importers.tf1.shapes.table import Function, Op, Result, Tensor, Unknown, product, shape_of
from tensortide.importers.tf1.sizes.unify import Origin

__all__: list[str] = []

WHOLE = frozenset({"int32", "int64", "uint8", "int16", "bool"})


@shape_of("Const")
def const(op: Op) -> Result:
    """A stored tensor. Its dims and elements may be sizes of the model said with numbers, so each above 1 is a symbol:
    what it equals is found where it is used."""
    value = op.constant("value")
    if value is None:
        raise Unknown
    return [Tensor(_const_shape(op, value), _const_values(op, value))]


def _const_shape(op: Op, value: Constant) -> Shape:
    vector = value.dtype in WHOLE and value.values is not None and len(value.values) <= FEW_POSITIONS
    if vector or any(n == 0 for n in value.shape):
        return tuple(map(constant, value.shape))
    return tuple(
        constant(n) if n <= 1 else op.sizes.new(f"{op.name}:0::dim_{i}", n, Origin.CONSTANT)
        for i, n in enumerate(value.shape)
    )


def _const_values(op: Op, value: Constant) -> tuple[Expr, ...] | None:
    if value.dtype not in WHOLE or value.values is None or len(value.values) > MOST_VALUES:
        return None
    return tuple(_size(op, i, v) for i, v in enumerate(value.values) if isinstance(v, int))


def _size(op: Op, i: int, value: int) -> Expr:
    return constant(int(value)) if value <= 1 else op.sizes.new(f"{op.name}[{i}]", value, Origin.CONSTANT)


@shape_of("Placeholder PlaceholderV2")
def placeholder(op: Op) -> Result:
    """A fed tensor. Old files say ``shape { }`` where the shape is unknown; what is stored of the output decides."""
    said = op.attributes.get("shape") or next(iter(stated_shapes(op.attributes)), op.attributes.get("shape"))
    shape = op.stated(said, f"{op.name}:0", Origin.STORED_FEED, Origin.FEED)
    whole = shape == () and op.text("dtype") in ("int32", "int64")
    return [Tensor(shape, (op.sizes.new(f"value({op.name})", None, Origin.FEED),) if whole else None)]


@shape_of("Variable VariableV2 VarHandleOp TemporaryVariable")
def variable(op: Op) -> Result:
    shape = op.stated(op.attributes.get("shape"), f"{op.name}:0", Origin.VARIABLE, Origin.VARIABLE)
    if op.type == "VarHandleOp":
        op.state.elements[op.number] = shape
        return [Tensor((), handle=op.number)]
    return [Tensor(shape, handle=op.number)]


@shape_of("Shape ShapeN VariableShape")
def shape_values(op: Op) -> Result:
    results = []
    for i, tensor in enumerate(op.inputs):
        shape = op.state.elements.get(tensor.handle) if op.type == "VariableShape" else tensor.shape
        if shape is None and i:
            results.append(Tensor())
        elif shape is None:
            raise Unknown
        else:
            results.append(Tensor((constant(len(shape)),), shape))
    return results


@shape_of("Assign AssignAdd AssignSub")
def assign(op: Op) -> Result:
    target = op.inputs[0]
    if op.known(0) and op.known(1) and op.attributes.get("validate_shape", True):
        op.same(op.shape(0), op.shape(1))
    return [Tensor(target.shape, handle=target.handle)]


@shape_of(
    "ApplyGradientDescent ApplyMomentum ApplyAdagrad ApplyAdam ApplyRMSProp ApplyCenteredRMSProp ApplyAdadelta "
    "ApplyFtrl ApplyFtrlV2 ApplyAdaMax ApplyAddSign ApplyPowerSign ApplyProximalAdagrad ApplyProximalGradientDescent "
    "ApplyAdagradDA ApplyAdagradV2 ResourceApplyGradientDescent ResourceApplyMomentum ResourceApplyKerasMomentum "
    "ResourceApplyAdagrad ResourceApplyAdagradV2 ResourceApplyAdam ResourceApplyAdamWithAmsgrad ResourceApplyAdaMax "
    "ResourceApplyRMSProp ResourceApplyCenteredRMSProp ResourceApplyAdadelta ResourceApplyFtrl ResourceApplyFtrlV2 "
    "AssignVariableOp AssignAddVariableOp AssignSubVariableOp"
)
def apply(op: Op) -> Result:
    """The variable; what has its rank (slots, gradient) has its shape. One behind a handle is not handed on."""
    held = op.type.startswith("Resource") or op.type.endswith("VariableOp")
    shape = op.state.elements.get(op.handle) if held else op.shape(0)
    for i in range(1, len(op.inputs)):
        if shape and op.known(i) and op.rank(i) == len(shape):
            op.same(shape, op.shape(i))
    return [] if held else [Tensor(op.shape(0), handle=op.handle)]


@shape_of(
    "ScatterSub ScatterAdd ScatterUpdate ScatterMul ScatterDiv ScatterMin ScatterMax ResourceScatterSub "
    "ResourceScatterAdd ResourceScatterUpdate"
)
def scatter(op: Op) -> Result:
    """The variable. Updates have its shape with the indices for its first axis."""
    held = op.type.startswith("Resource")
    shape = op.state.elements.get(op.handle) if held else op.shape(0)
    if shape is not None and op.known(1) and op.known(2) and op.rank(2):
        op.same((*op.shape(1), *shape[1:]), op.shape(2))
    return [] if held else [Tensor(op.shape(0), handle=op.handle)]


@shape_of(
    "RandomUniform RandomStandardNormal TruncatedNormal RandomUniformInt ParameterizedTruncatedNormal "
    "StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal StatelessRandomUniformV2 "
    "StatelessRandomNormalV2 Empty BroadcastTo StridedSliceGrad AvgPoolGrad AvgPool3DGrad"
)
def as_told(op: Op) -> Result:
    """The shape that is the value of an input."""
    return [Tensor(op.values(1 if op.type == "BroadcastTo" else 0))]


_PLAIN: dict[str, Function] = {
    "IteratorGetNext IteratorGetNextSync DatasetToSingleElement": lambda op: op.fed("output_shapes"),
    "Size": lambda op: [Tensor((), (product(op.shape(0)),))],
    "Rank": lambda op: [Tensor((), (constant(op.rank(0)),))],
    "NoOp ControlTrigger Assert TensorArrayCloseV3 StackCloseV2 QueueCloseV2": lambda op: [],
    "SparseApplyGradientDescent SparseApplyMomentum SparseApplyAdagrad SparseApplyAdam SparseApplyRMSProp "
    "ScatterNdUpdate ScatterNdAdd ScatterNdSub": lambda op: [Tensor(op.shape(0), handle=op.handle)],
    "SequenceMask": lambda op: [Tensor((*op.shape(0), op.values(1)[0]))],
}
"""Ops whose outputs are one expression."""

for _types, _function in _PLAIN.items():
    shape_of(_types)(_function)
