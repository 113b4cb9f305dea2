"""Ops that pick and place: slices, gathers, scatters, segments, masks, top k; samplers, random numbers, losses."""

from __future__ import annotations

from tensortide.expr import Expr, ceil_ratio, constant
from tensortide.importers.tf1.shapes.arrays import REST
from tensortide.importers.tf1.shapes.table import ONE, Function, Op, Result, Tensor, Unknown, product, shape_of
from tensortide.importers.tf1.sizes.unify import Contradiction, Origin

__all__: list[str] = []


@shape_of("Slice")
def slice_(op: Op) -> Result:
    shape = op.shape(0)
    begin, size = op.inputs[1].values, op.inputs[2].values
    if size is None:
        stored = op.stored(0)
        return [Tensor(stored if stored is not None else tuple(op.unknown(0, i) for i in range(len(shape))))]
    dims = tuple(
        _sliced(op, dim, None if begin is None else op.sizes.now(begin[i]), op.sizes.now(size[i]), i)
        for i, dim in enumerate(shape)
    )
    values = op.inputs[0].values
    if values is not None and begin is not None and len(shape) == 1:
        first = op.int_of(op.sizes.now(begin[0]))
        values = values[first : first + op.int_of(dims[0])]
    return [Tensor(dims, values)]


def _sliced(op: Op, dim: Expr, begin: Expr | None, size: Expr, axis: int) -> Expr:
    if size == REST:
        return op.unknown(0, axis) if begin is None else dim - begin
    number = op.sizes.number
    if begin == 0 and size != dim and number(size) == number(dim) and _is_constant(op, size):
        return op.equal(dim, size)  # all of it, said with a number
    if number(size) != number(dim):
        op.state.cut.append(dim)
    return size


def _is_constant(op: Op, size: Expr) -> bool:
    return all(op.sizes.origins[name] <= Origin.CONSTANT for name in size.symbols) and size.value is None


@shape_of("StridedSlice")
def strided_slice(op: Op) -> Result:
    shape = op.shape(0)
    plan = _plan(op, len(shape))
    dims: list[Expr] = []
    for axis, bounds in plan:
        if axis is None:
            dims.append(ONE)
        elif bounds is None:
            dims.append(shape[axis])
        elif bounds != "one":
            dims.append(_strided(op, shape[axis], int(bounds), len(dims)))
    values = op.inputs[0].values
    picked = _picked(op, values, plan[0][1]) if values is not None and len(shape) == len(plan) == 1 else None
    return [Tensor(tuple(dims), picked)]


def _plan(op: Op, rank: int) -> list[tuple[int | None, str | None]]:
    """Say what each item of the slice does: (axis, "one") drops an axis, (axis, item) cuts it, (axis, None) keeps it,
    (None, None) is a new axis."""
    items = _items(op)
    new, shrink, ellipsis = (op.integer(f"{name}_mask") for name in ("new_axis", "shrink_axis", "ellipsis"))
    used = sum(1 for i in range(items) if not (new | ellipsis) >> i & 1)
    plan: list[tuple[int | None, str | None]] = []
    axis = 0
    for i in range(items):
        if ellipsis >> i & 1:
            plan += [(axis + k, None) for k in range(rank - used)]
            axis += rank - used
        elif new >> i & 1:
            plan.append((None, None))
        else:
            plan.append((axis, "one" if shrink >> i & 1 else str(i)))
            axis += 1
    if axis > rank:
        raise Contradiction(f"a slice of {axis} and a tensor of {rank} dimensions")
    return plan + [(k, None) for k in range(axis, rank)]


def _items(op: Op) -> int:
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


def _strided(op: Op, dim: Expr, item: int, position: int) -> Expr:
    """Count the elements that ``begin:end:stride`` takes of ``dim``."""
    step = _bound(op, 3, item)
    stride = 1 if step is None else op.int_of(step)
    open_begin, open_end = op.integer("begin_mask") >> item & 1, op.integer("end_mask") >> item & 1
    begin, end = _bound(op, 1, item), _bound(op, 2, item)
    if (begin is None and not open_begin) or (end is None and not open_end):
        return op.unknown(0, position)
    if open_begin and open_end:
        return dim if abs(stride) == 1 else ceil_ratio(dim, abs(stride))
    first = _place(op, begin, dim, 0 if stride > 0 else None, bool(open_begin))
    last = _place(op, end, dim, None if stride > 0 else -1, bool(open_end))
    if stride < 0:
        first, last = last + 1, first + 1 if first != dim else dim
    length = last - first
    return length if abs(stride) == 1 else ceil_ratio(length, abs(stride))


def _place(op: Op, bound: Expr | None, dim: Expr, default: int | None, is_open: bool) -> Expr:
    """Return a bound counted from the front and no further than the end."""
    if is_open or bound is None:
        return dim if default is None else constant(default)
    value = op.sizes.number(bound)
    if value < 0:
        return dim + bound
    return dim if value >= op.sizes.number(dim) and op.sizes.stored(bound) and op.sizes.stored(dim) else bound


def _picked(op: Op, values: tuple[Expr, ...], what: str | None) -> tuple[Expr, ...] | None:
    """Return the elements that the only item of a slice takes of a vector."""
    if what is None:
        return values
    begin, end, step = (_bound(op, which, 0) for which in (1, 2, 3))
    first = 0 if begin is None else op.int_of(begin)
    if what == "one":
        if begin is None:
            return None
        if not -len(values) <= first < len(values):
            raise Contradiction(f"element {first} of {len(values)}")
        return (values[first],)
    if (begin is None and not op.integer("begin_mask")) or (end is None and not op.integer("end_mask")) or step is None:
        return None
    start = None if op.integer("begin_mask") & 1 else first
    stop = None if op.integer("end_mask") & 1 or end is None else op.int_of(end)
    return values[start : stop : op.int_of(step)]


@shape_of("Gather GatherV2 ResourceGather")
def gather(op: Op) -> Result:
    table, picked = op.variable(), op.shape(1)
    axis = op.axis(op.numbers(2)[0], len(table)) if op.type == "GatherV2" else 0
    if len(table) > 1:
        op.state.rows.append((table[axis], (*table[:axis], *table[axis + 1 :])))
    values, indices = op.inputs[0].values, op.inputs[1].values
    found = None
    if values is not None and indices is not None and len(table) == 1 and len(picked) < 2:
        positions = op.numbers(1)
        if any(not 0 <= i < len(values) for i in positions):
            raise Contradiction(f"positions {positions} of {len(values)}")
        found = tuple(values[i] for i in positions)
    batch = op.integer("batch_dims")
    return [Tensor((*table[:axis], *picked[batch:], *table[axis + 1 :]), found)]


@shape_of("GatherNd ResourceGatherNd")
def gather_nd(op: Op) -> Result:
    table, picked = op.variable(), op.shape(1)
    depth = picked[-1].value if picked[-1].value is not None else op.int_of(picked[-1])
    return [Tensor((*picked[:-1], *table[int(depth) :]))]


@shape_of("UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd")
def unsorted_segments(op: Op) -> Result:
    data, ids = op.shape(0), op.shape(1)
    op.same(data[: len(ids)], ids)
    return [Tensor((op.values(2)[0], *data[len(ids) :]))]


@shape_of("Where")
def where(op: Op) -> Result:
    """Positions of true elements: how many is a symbol of its own with the number of elements for a bound; inexact:
    all."""
    shape = op.shape(0)
    full = product(shape)
    count = full if not op.exact else op.sizes.bounded(f"num_true({op.name})", full)
    return [Tensor((count, constant(len(shape))))]


@shape_of("Unique UniqueV2 UniqueWithCounts")
def unique(op: Op) -> Result:
    length = op.shape(0)
    count = op.sizes.bounded(f"num_unique({op.name})", product(length))
    return [Tensor((count,)), Tensor(length), Tensor((count,))][: max(op.outputs, 2)]


@shape_of("TopK TopKV2")
def top_k(op: Op) -> Result:
    k = constant(op.integer("k")) if op.type == "TopK" else op.values(1)[0]
    return [Tensor((*op.shape(0)[:-1], k))] * 2


@shape_of("SparseSoftmaxCrossEntropyWithLogits")
def sparse_cross_entropy(op: Op) -> Result:
    logits = op.shape(0)
    rows = op.same(logits[:-1], op.shape(1)) if op.known(1) else logits[:-1]
    return [Tensor(rows), Tensor((*rows, logits[-1]))]


@shape_of("SoftmaxCrossEntropyWithLogits")
def cross_entropy(op: Op) -> Result:
    logits = op.same(op.shape(0), op.shape(1))
    return [Tensor(logits[:-1]), Tensor(logits)]


@shape_of(
    "LogUniformCandidateSampler UniformCandidateSampler LearnedUnigramCandidateSampler FixedUnigramCandidateSampler"
)
def candidate_sampler(op: Op) -> Result:
    k = op.sizes.new(f"{op.name}:0::dim_0", op.integer("num_sampled", 1), Origin.CONSTANT)
    k = ONE if op.integer("num_sampled") == 1 else k
    return [Tensor((k,)), Tensor(op.shape(0)), Tensor((k,))]


_PLAIN: dict[str, Function] = {
    "SegmentSum SegmentMean SegmentMax SegmentMin SegmentProd": lambda op: [
        Tensor((op.unknown(0, 0), *op.shape(0)[1:]))
    ],
    "ScatterNd SparseToDense": lambda op: [Tensor(op.values(2 if op.type == "ScatterNd" else 1))],
    "InTopK InTopKV2": lambda op: [Tensor((op.equal(op.shape(0)[0], op.shape(1)[0]),))],
    "RandomGamma RandomPoissonV2": lambda op: [Tensor((*op.values(0), *op.shape(1)))],
    "Multinomial StatelessMultinomial": lambda op: [Tensor((op.shape(0)[0], op.values(1)[0]))],
}
"""Ops whose outputs are one expression."""

for _types, _function in _PLAIN.items():
    shape_of(_types)(_function)
