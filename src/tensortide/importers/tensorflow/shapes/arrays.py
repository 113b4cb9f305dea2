"""Ops that rearrange: reshape, transpose, join, split, cut, pad, repeat; and what they do to vectors of sizes."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.expr import Expr, ceil_ratio, constant, total
from tensortide.importers.shapes import ShapeError, concatenated, inserted, padded, permuted, reduced, replaced
from tensortide.importers.tensorflow.program import Shape, stated_shapes
from tensortide.importers.tensorflow.shapes.op import (
    FEW_POSITIONS,
    MOST_VALUES,
    ONE,
    REST,
    Op,
    Result,
    Tensor,
    Unknown,
    product,
    shape_of,
    vector,
)
from tensortide.importers.tensorflow.sizes.unify import Origin

__all__: list[str] = []


@shape_of("Reshape")
def reshape(op: Op) -> Result:
    if op.inputs[1].values is None:
        return _reshaped_as_stored(op)
    target = op.values(1)
    if op.known(0):
        return Tensor(_reshaped(op, op.shape(0), target), op.inputs[0].values)
    return Tensor(tuple(op.unknown(0, i) if dim == REST else dim for i, dim in enumerate(target)), op.inputs[0].values)


def _reshaped_as_stored(op: Op) -> Shape:
    """Return the stored shape, for a target that is not known; its only -1 is what is left."""
    shape = next(iter(stated_shapes(op.attributes)), None)
    dims = op.stored(0)
    if dims is None or not isinstance(shape, tuple):
        raise Unknown
    if shape.count(-1) == 1 and op.known(0):
        return _reshaped(op, op.shape(0), replaced(dims, shape.index(-1), REST))
    return dims


def _reshaped(op: Op, source: Shape, target: Shape) -> Shape:
    """Fill the -1 of the target in. Dims that meet at either end, and groups of equal size between, are unified."""
    if any(dim == 0 for dim in (*source, *target)):
        return tuple(constant(0) if dim == REST else dim for dim in target)
    front, back = _ends(op, source, target)
    inner, outer = source[front : len(source) - back], target[front : len(target) - back]
    if REST in outer:
        place = outer.index(REST)
        _match_end(op, inner[::-1], outer[:place:-1])
        _match_end(op, inner, outer[:place])
        others = product(dim for dim in outer if dim != REST)
        whole = op.sizes.now(product(inner))
        rest = whole.divided(op.sizes.now(others))
        if rest is None:
            rest = op.unknown(0, front + place)
            op.equal(rest * others, whole)
        target = tuple(rest if dim == REST else dim for dim in target)
    else:
        _match_groups(op, list(inner), list(outer))
    return tuple(map(op.sizes.now, target))


def _ends(op: Op, source: Shape, target: Shape) -> tuple[int, int]:
    """Count the dims that agree at the front and at the back, and unify them."""
    surely = not any(_named_one(op, dim) for dim in (*source, *target))
    agree: list[int] = []
    most = min(len(source), len(target))
    for step in (1, -1):
        count = 0
        pairs = zip(source[::step], target[::step], strict=False)
        while count + sum(agree) < most and _agree(op, *next(pairs), surely):
            count += 1
        agree.append(count)
    return agree[0], agree[1]


def _named_one(op: Op, dim: Expr) -> bool:
    """Tell a size that is a symbol and happens to be 1 in the file: a batch of 1."""
    return dim.value is None and op.sizes.number(dim) == 1


def _agree(op: Op, a: Expr, b: Expr, surely: bool) -> bool:
    if a == b:
        return True
    if b == REST or not surely or op.sizes.number(a) != op.sizes.number(b) or ONE in (a, b):
        return False
    op.equal(a, b)
    return True


def _match_end(op: Op, source: Sequence[Expr], target: Sequence[Expr]) -> None:
    """Unify the target dims on one side of -1 with as many source dims as have the same product: ``(b, h, w, c)``
    made ``(-1, n)`` has ``n = h*w*c``."""
    for count in range(1, len(source) + 1):
        part = product(source[:count])
        if target and op.sizes.stored(part) and op.sizes.number(part) == op.sizes.number(product(target)):
            op.equal(part, product(target))
            return


def _match_groups(op: Op, a: list[Expr], b: list[Expr]) -> None:
    """Unify the smallest groups of neighbours that have as many elements: ``(a*b, c)`` with ``(a, b, c)``."""
    number = op.sizes.number
    while a or b:
        left, right = [a.pop(0)] if a else [], [b.pop(0)] if b else []
        while number(product(left)) != number(product(right)):
            smaller = number(product(left)) < number(product(right))
            if smaller and a:
                left.append(a.pop(0))
            elif not smaller and b:
                right.append(b.pop(0))
            else:
                left, right, a, b = [*left, *a], [*right, *b], [], []
                break
        for side, rest, other in ((left, a, b), (right, b, a)):
            while rest and _named_one(op, rest[0]) and not (other and number(other[0]) == 1):
                side.append(rest.pop(0))
        op.equal(product(left), product(right))


@shape_of("InvertPermutation")
def invert_permutation(op: Op) -> Result:
    values = op.inputs[0].values
    if values is None:
        return op.shape(0)
    order = op.numbers(0)
    numbers = tuple(map(constant, range(len(order))))
    permuted(numbers, order)
    return Tensor(op.shape(0), tuple(numbers[order.index(i)] for i in range(len(order))))


@shape_of("Squeeze")
def squeeze(op: Op) -> Result:
    shape = op.shape(0)
    axes = {op.axis(axis, len(shape)) for axis in op.attribute("squeeze_dims", ())}
    gone = axes or {i for i, dim in enumerate(shape) if dim == 1}
    return Tensor(reduced(shape, gone), op.inputs[0].values)


@shape_of("ExpandDims")
def expand_dims(op: Op) -> Result:
    shape = op.shape(0)
    axis = op.axis(op.numbers(1)[0], len(shape) + 1)
    return Tensor(inserted(shape, axis, ONE), op.inputs[0].values)


@shape_of("ConcatV2 Concat")
def concat(op: Op) -> Result:
    last = len(op.inputs) - 1
    first, told = (0, last) if op.type == "ConcatV2" else (1, 0)
    parts = [op.shape(i) for i in range(first, first + last)]
    axis = op.axis(op.numbers(told)[0], len(parts[0]))
    values = [op.inputs[i].values for i in range(first, first + last)]
    return Tensor(concatenated(op.sizes, parts, axis), _joined_values(values, parts, axis))


def _joined_values(
    values: Sequence[tuple[Expr, ...] | None], parts: Sequence[Shape], axis: int
) -> tuple[Expr, ...] | None:
    """Return the elements of joined vectors, or of columns joined into a table of two axes."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or len(parts[0]) > 2:
        return None
    rows = parts[0][0].value if axis == 1 else 1
    if not isinstance(rows, int) or any(len(value) % rows for value in known if rows):
        return None
    widths = [len(value) // rows if rows else 0 for value in known]
    return tuple(
        v for r in range(rows) for value, w in zip(known, widths, strict=True) for v in value[r * w : (r + 1) * w]
    )


@shape_of("Pack")
def pack(op: Op) -> Result:
    shape = op.shape(0)
    for i in range(1, len(op.inputs)):
        shape = op.same(shape, op.shape(i))
    axis = op.axis(op.attribute("axis", 0), len(shape) + 1)
    values = [tensor.values for tensor in op.inputs]
    joined = tuple(v for value in values for v in value or ()) if axis == 0 and None not in values else None
    return Tensor(inserted(shape, axis, constant(len(op.inputs))), joined)


@shape_of("Unpack")
def unpack(op: Op) -> Result:
    shape = op.shape(0)
    axis = op.axis(op.attribute("axis", 0), len(shape))
    count = op.attribute("num", op.outputs)
    op.equal(shape[axis], constant(count))
    values = (op.inputs[0].values or ()) if len(shape) == 1 else ()
    return [Tensor(replaced(shape, axis), values[i : i + 1] or None) for i in range(count)]


@shape_of("Split")
def split(op: Op) -> Result:
    shape = op.shape(1)
    axis = op.axis(op.numbers(0)[0], len(shape))
    count = op.attribute("num_split", op.outputs)
    return [Tensor(replaced(shape, axis, _part(op, shape[axis], count, axis)))] * count


def _part(op: Op, whole: Expr, count: int, axis: int) -> Expr:
    """One of ``count`` equal parts: its size becomes the independent one."""
    part = whole / count
    if all(isinstance(c, int) for c in part.terms.values()):
        return part
    number = int(op.sizes.number(whole)) if op.sizes.stored(whole) else None
    if number is not None and number % count:
        raise ShapeError(f"{count} equal parts of {number}")
    hint = None if number is None else number // count
    part = op.sizes.new(f"{op.name}:0::dim_{axis}", hint, Origin.DERIVED)
    op.equal(whole, part * count)
    return op.sizes.now(part)


@shape_of("SplitV")
def split_by_sizes(op: Op) -> Result:
    shape = op.shape(0)
    axis = op.axis(op.numbers(2)[0], len(shape))
    parts = list(op.values(1))
    if REST in parts:
        parts[parts.index(REST)] = shape[axis] - total(part for part in parts if part != REST)
    else:
        op.equal(shape[axis], total(parts))
    return [Tensor(replaced(shape, axis, op.sizes.now(part))) for part in parts]


@shape_of("Pad PadV2 MirrorPad")
def pad(op: Op) -> Result:
    shape, pads = op.shape(0), op.values(1)
    if len(pads) != 2 * len(shape):
        raise ShapeError(f"{len(pads)} paddings and {len(shape)} dimensions")
    return padded(shape, zip(range(len(shape)), pads[::2], pads[1::2], strict=True))


@shape_of("Tile")
def tile(op: Op) -> Result:
    shape, times, values = op.shape(0), op.values(1), op.inputs[0].values
    if len(shape) != len(times):
        raise ShapeError(f"{len(times)} multiples and {len(shape)} dimensions")
    dims = tuple(dim * n for dim, n in zip(shape, times, strict=True))
    count = times[0].value if len(times) == 1 else None
    if values is None or not isinstance(count, int) or count * len(values) > MOST_VALUES:
        return dims
    return Tensor(dims, values * count)


@shape_of("Fill")
def fill(op: Op) -> Result:
    dims, value = op.values(0), op.inputs[1].values
    if len(dims) == 1 and value is not None:
        dims = (_few_positions(op, dims[0]),)
    count = product(dims).value if len(dims) < 2 else None
    if value is None or not isinstance(count, int) or count > MOST_VALUES:
        return dims
    return Tensor(dims, value * count)


@shape_of("OneHot")
def one_hot(op: Op) -> Result:
    shape, depth = op.shape(0), op.values(1)[0]
    axis = op.axis(op.attribute("axis", -1), len(shape) + 1)
    return inserted(shape, axis, depth)


@shape_of("Range")
def range_(op: Op) -> Result:
    if any(tensor.values is None for tensor in op.inputs[:3]):
        return (op.unknown(0, 0),)
    start, limit, delta = (op.values(i)[0] for i in range(3))
    try:
        length = op.sizes.now(ceil_ratio(limit - start, delta))
    except ArithmeticError:
        raise ShapeError("a range in steps of 0") from None
    length = _few_positions(op, length)
    count = length.value
    if not isinstance(count, int) or count > MOST_VALUES:
        return (length,)
    first, step = (constant(op.int_of(e)) if op.sizes.stored(e) else e for e in (start, delta))
    return vector(first + step * i for i in range(count))


def _few_positions(op: Op, length: Expr) -> Expr:
    """Make a length that is a small stored number no size: it counts positions, such as axes to reduce over."""
    number = op.sizes.number(length)
    few = isinstance(number, int) and number <= FEW_POSITIONS and op.sizes.stored(length)
    if few and all(op.sizes.origins[name] <= Origin.CONSTANT for name in length.symbols):
        return constant(number)
    return length


@shape_of("ListDiff")
def list_difference(op: Op) -> Result:
    left, right, values = op.numbers(0), op.numbers(1), op.values(0)
    kept = [i for i, value in enumerate(left) if value not in right]
    return [vector(values[i] for i in kept), vector(map(constant, kept))]


@shape_of("ConcatOffset")
def concat_offset(op: Op) -> Result:
    shapes = [op.values(i) for i in range(1, len(op.inputs))]
    axis = op.axis(op.numbers(0)[0], len(shapes[0]))
    offset, results = constant(0), []
    for shape in shapes:
        results.append(vector(replaced((constant(0),) * len(shape), axis, offset)))
        offset = offset + shape[axis]
    return results


@shape_of("DynamicStitch ParallelDynamicStitch")
def dynamic_stitch(op: Op) -> Result:
    count = len(op.inputs) // 2
    element = op.shape(count)[len(op.shape(0)) :]
    if any(op.inputs[i].values is None for i in range(count)):
        return (op.unknown(0, 0), *element)
    indices = [op.numbers(i) for i in range(count)]
    length = 1 + max((i for part in indices for i in part), default=-1)
    data = [op.inputs[count + i].values for i in range(count)]
    placed: dict[int, Expr] = {}
    for part, values in zip(indices, data, strict=True):
        placed.update(zip(part, values or (), strict=False))
    known = None not in data and len(placed) == length <= MOST_VALUES
    return Tensor((constant(length), *element), tuple(placed[i] for i in range(length)) if known else None)


@shape_of("Diag MatrixDiag MatrixDiagV2 MatrixDiagV3")
def diagonal(op: Op) -> Result:
    shape = op.shape(0)
    if len(op.inputs) > 1 and (op.numbers(1) != (0,) or op.numbers(2) != (-1,)):
        raise Unknown  # more than the main diagonal
    return (*shape, *(shape if op.type == "Diag" else shape[-1:]))


shape_of("Transpose ConjugateTranspose")(lambda op: permuted(op.shape(0), op.numbers(1)))
shape_of("LinSpace")(lambda op: (op.values(2)[0],))
shape_of("MatrixDiagPart DiagPart")(lambda op: op.shape(0)[:-1])
