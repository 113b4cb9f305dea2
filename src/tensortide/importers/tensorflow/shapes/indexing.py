"""Ops that pick and place: slices, gathers, scatters, segments, masks, top k; samplers, random numbers, losses."""

from __future__ import annotations

from tensortide.expr import Expr, ceil_ratio, constant
from tensortide.importers.shapes import ShapeError, replaced
from tensortide.importers.tensorflow.shapes.op import (
    ONE,
    REST,
    Op,
    Result,
    Tensor,
    Unknown,
    product,
    shape_of,
)
from tensortide.importers.tensorflow.sizes.unify import Origin

__all__: list[str] = []


@shape_of("Slice")
def slice_(op: Op) -> Result:
    shape = op.shape(0)
    if op.inputs[2].values is None:
        stored = op.stored(0)
        return stored if stored is not None else tuple(op.unknown(0, i) for i in range(len(shape)))
    begin, size = op.values(1) if op.inputs[1].values is not None else None, op.values(2)
    dims = tuple(_sliced(op, dim, None if begin is None else begin[i], size[i], i) for i, dim in enumerate(shape))
    values = op.inputs[0].values
    if values is None or begin is None or len(shape) != 1:
        return dims
    first = op.int_of(begin[0])
    return Tensor(dims, values[first : first + op.int_of(dims[0])])


def _sliced(op: Op, dim: Expr, begin: Expr | None, size: Expr, axis: int) -> Expr:
    if size == REST:
        return op.unknown(0, axis) if begin is None else dim - begin
    number = op.sizes.number
    is_constant = size.value is None and all(op.sizes.origins[name] <= Origin.CONSTANT for name in size.symbols)
    if begin == 0 and size != dim and number(size) == number(dim) and is_constant:
        return op.equal(dim, size)  # all of it, said with a number
    if number(size) != number(dim):
        op.state.cut.append(dim)
    return size


@shape_of("StridedSlice")
def strided_slice(op: Op) -> Result:
    shape = op.shape(0)
    new, shrink, ellipsis = (op.attribute(f"{name}_mask", 0) for name in ("new_axis", "shrink_axis", "ellipsis"))
    items = range(_items(op))
    used = sum(1 for i in items if not (new | ellipsis) >> i & 1)
    if used > len(shape):
        raise ShapeError(f"a slice of {used} and a tensor of {len(shape)} dimensions")
    dims: list[Expr] = []
    axis = 0
    for i in items:
        if ellipsis >> i & 1:
            dims += shape[axis : axis + len(shape) - used]
            axis += len(shape) - used
        elif new >> i & 1:
            dims.append(ONE)
        else:
            if not shrink >> i & 1:
                dims.append(_strided(op, shape[axis], i, len(dims)))
            axis += 1
    values = op.inputs[0].values
    if values is not None and len(items) == len(shape) == used == 1:
        values = _picked(op, values, bool(shrink & 1))
    elif len(shape) != 1 or used or new:
        values = None
    return Tensor((*dims, *shape[axis:]), values)


def _items(op: Op) -> int:
    """Count the items of a slice: axes that it cuts, drops, adds or skips."""
    for i in (1, 2, 3):
        values = op.inputs[i].values
        if values is not None:
            return len(values)
    count = op.shape(1)[0].value
    if not isinstance(count, int):
        raise Unknown
    return count


def _bound(op: Op, which: int, item: int) -> Expr | None:
    """Return an item of begin (1), end (2) or strides (3); None where it is not known."""
    values = op.inputs[which].values
    return None if values is None else op.sizes.now(values[item])


def _open(op: Op, item: int) -> tuple[bool, bool]:
    """Tell whether an item begins at the front, and ends at the end."""
    return bool(op.attribute("begin_mask", 0) >> item & 1), bool(op.attribute("end_mask", 0) >> item & 1)


def _strided(op: Op, dim: Expr, item: int, position: int) -> Expr:
    """Count the elements that ``begin:end:stride`` takes of ``dim``."""
    begin, end, step = (_bound(op, which, item) for which in (1, 2, 3))
    stride = 1 if step is None else op.int_of(step)
    open_begin, open_end = _open(op, item)
    if (begin is None and not open_begin) or (end is None and not open_end):
        return op.unknown(0, position)
    if open_begin and open_end:
        return dim if abs(stride) == 1 else ceil_ratio(dim, abs(stride))
    first = _place(op, None if open_begin else begin, dim, 0 if stride > 0 else None)
    last = _place(op, None if open_end else end, dim, None if stride > 0 else -1)
    if stride < 0:
        first, last = last + 1, first + 1 if first != dim else dim
    length = last - first
    return length if abs(stride) == 1 else ceil_ratio(length, abs(stride))


def _place(op: Op, bound: Expr | None, dim: Expr, default: int | None) -> Expr:
    """Return a bound counted from the front and no further than the end."""
    if bound is None:
        return dim if default is None else constant(default)
    value = op.sizes.number(bound)
    if value < 0:
        return dim + bound
    return dim if value >= op.sizes.number(dim) and op.sizes.stored(bound) and op.sizes.stored(dim) else bound


def _picked(op: Op, values: tuple[Expr, ...], single: bool) -> tuple[Expr, ...] | None:
    """Return the elements that the only item of a slice takes of a vector."""
    begin, end, step = (_bound(op, which, 0) for which in (1, 2, 3))
    open_begin, open_end = _open(op, 0)
    first = 0 if begin is None else op.int_of(begin)
    if single:
        if begin is None:
            return None
        if not -len(values) <= first < len(values):
            raise ShapeError(f"element {first} of {len(values)}")
        return (values[first],)
    if (begin is None and not open_begin) or (end is None and not open_end) or step is None:
        return None
    stop = None if open_end or end is None else op.int_of(end)
    return values[None if open_begin else first : stop : op.int_of(step)]


@shape_of("Gather GatherV2 ResourceGather")
def gather(op: Op) -> Result:
    table, picked = op.variable(), op.shape(1)
    axis = op.axis(op.numbers(2)[0], len(table)) if op.type == "GatherV2" else 0
    if len(table) > 1:
        op.state.rows.append((table[axis], replaced(table, axis)))
    shape = replaced(table, axis, *picked[op.attribute("batch_dims", 0) :])
    values = op.inputs[0].values
    if values is None or op.inputs[1].values is None or len(table) != 1 or len(picked) > 1:
        return shape
    positions = op.numbers(1)
    if any(not 0 <= i < len(values) for i in positions):
        raise ShapeError(f"positions {positions} of {len(values)}")
    return Tensor(shape, tuple(values[i] for i in positions))


@shape_of("UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd")
def unsorted_segments(op: Op) -> Result:
    data, ids = op.shape(0), op.shape(1)
    op.same(data[: len(ids)], ids)
    return (op.values(2)[0], *data[len(ids) :])


@shape_of("Where")
def where(op: Op) -> Result:
    """Positions of true elements: how many is a symbol of its own with the number of elements for a bound; inexact:
    all."""
    shape = op.shape(0)
    full = product(shape)
    count = full if not op.exact else op.sizes.bounded(f"num_true({op.name})", full)
    return (count, constant(len(shape)))


@shape_of("Unique UniqueV2 UniqueWithCounts")
def unique(op: Op) -> Result:
    length = op.shape(0)
    count = op.sizes.bounded(f"num_unique({op.name})", product(length))
    return [Tensor((count,)), Tensor(length), Tensor((count,))][: max(op.outputs, 2)]


@shape_of("SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits")
def cross_entropy(op: Op) -> Result:
    """A loss per row, and the gradient; labels are as many as logits or, sparse, as rows."""
    logits, sparse = op.shape(0), op.type.startswith("Sparse")
    if not sparse:
        logits = op.same(logits, op.shape(1))
    losses = op.same(logits[:-1], op.shape(1)) if sparse and op.known(1) else logits[:-1]
    return [Tensor(losses), Tensor((*losses, logits[-1]))]


@shape_of(
    "LogUniformCandidateSampler UniformCandidateSampler LearnedUnigramCandidateSampler FixedUnigramCandidateSampler"
)
def candidate_sampler(op: Op) -> Result:
    count = op.attribute("num_sampled", 1)
    k = ONE if count == 1 else op.sizes.new(f"{op.name}:0::dim_0", count, Origin.CONSTANT)
    return [Tensor((k,)), Tensor(op.shape(0)), Tensor((k,))]


shape_of("GatherNd ResourceGatherNd")(lambda op: (*op.shape(1)[:-1], *op.variable()[op.int_of(op.shape(1)[-1]) :]))
shape_of("TopK")(lambda op: [Tensor((*op.shape(0)[:-1], constant(op.attribute("k", 0))))] * 2)
shape_of("TopKV2")(lambda op: [Tensor((*op.shape(0)[:-1], op.values(1)[0]))] * 2)
shape_of("SegmentSum SegmentMean SegmentMax SegmentMin SegmentProd")(lambda op: (op.unknown(0, 0), *op.shape(0)[1:]))
shape_of("ScatterNd")(lambda op: op.values(2))
shape_of("SparseToDense")(lambda op: op.values(1))
shape_of("InTopK InTopKV2")(lambda op: (op.equal(op.shape(0)[0], op.shape(1)[0]),))
shape_of("RandomGamma RandomPoissonV2")(lambda op: (*op.values(0), *op.shape(1)))
shape_of("Multinomial StatelessMultinomial")(lambda op: (op.shape(0)[0], op.values(1)[0]))
