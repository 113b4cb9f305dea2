"""Families of ops: those that share the constants of a time model. From a recorded op to its Work."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from tensortide.cost import Cost, OpCost, Resolver, count
from tensortide.cost.count import KnownCosts
from tensortide.cost.evaluate import rule_for
from tensortide.cost.opcall import qualified
from tensortide.dtypes import Kind, kind_of
from tensortide.graph.model import Graph, OpView, Tensor
from tensortide.timing.attention import kernel_of
from tensortide.timing.work import Dimensions, Work

REDUCED = 4
"""An op whose largest operand has so many times the elements of its results reduces it."""

SMALL = 64
"""Products whose smallest dimension is below it are a family of their own: they leave most of a tile empty."""

Dims: TypeAlias = Callable[[OpView], Dimensions]


def _sizes(tensor: Tensor) -> tuple[int, ...]:
    return tuple(map(int, tensor.shape))


def _product(op: OpView) -> Dimensions:
    """The last two operands, (m,k) and (k,n), or batches of them."""
    left, right = map(_sizes, op.inputs[-2:])
    return math.prod(left[:-2]), left[-2], right[-1], left[-1]


def _linear(op: OpView) -> Dimensions:
    rows, weight = (_sizes(tensor) for tensor in op.inputs[:2])
    return 1, math.prod(rows[:-1]), weight[0], weight[-1]


def _convolution(op: OpView) -> Dimensions:
    """As a product of patches and weights: output sites, channels of a group, taps; the groups are the batch."""
    weight, result = _weight(op), _sizes(op.inputs[0] if "backward" in op.name else op.outputs[0])
    groups: Any = op.arguments.get("groups", 1)
    return groups, math.prod(result) // result[1], result[1] // groups, math.prod(weight[1:])


def _weight(op: OpView) -> tuple[int, ...]:
    """Shape of a convolution's weight: channels out, channels in of a group, kernel."""
    return _sizes(op.inputs[2 if "backward" in op.name else 1])


def _contraction(op: OpView) -> Dimensions:
    """Dimensions of ``jax.dot_general`` as a batch of products. Raises ValueError where nothing is contracted."""
    numbers: Any = op.arguments["dimension_numbers"]
    (summed, summed_right), (batch, batch_right) = numbers
    left, right = (_sizes(tensor) for tensor in op.inputs)
    if not summed:
        raise ValueError("no contraction: a product of elements")
    m = math.prod(n for i, n in enumerate(left) if i not in (*summed, *batch))
    n = math.prod(n for i, n in enumerate(right) if i not in (*summed_right, *batch_right))
    return math.prod(left[i] for i in batch), m, n, math.prod(left[i] for i in summed)


def _general_convolution(op: OpView) -> Dimensions:
    """Dimensions of ``jax.conv_general_dilated``, whose layout stands in its arguments."""
    layout: Any = op.arguments["dimension_numbers"]
    groups: Any = op.arguments.get("feature_group_count", 1)
    weight, result = _sizes(op.inputs[1]), _sizes(op.outputs[0])
    channels = result[layout[2][1]]
    return groups, math.prod(result) // channels, channels // groups, math.prod(weight) // weight[layout[1][0]]


def _recurrent(op: OpView) -> Dimensions:
    """Time steps, sequences, and the product of each: gates of all units, from inputs and units."""
    steps, batch, width = _sizes(op.inputs[0])
    gates, units = _sizes(op.inputs[2])
    return steps, batch, gates, width + units


def _attention(op: OpView) -> Dimensions:
    """Heads of all sequences, queries, keys, size of a head. Ops beneath ``scaled_dot_product`` have heads last."""
    query, key = (_sizes(tensor) for tensor in op.inputs[1 if "backward" in op.name else 0 :][:2])
    if any(mark in op.name for mark in ("_flash_attention_", "_efficient_attention_")) and "dot_product" not in op.name:
        return math.prod(query[:-3]) * query[-2], query[-3], key[-3], query[-1]
    return math.prod(query[:-2]), query[-2], key[-2], query[-1]


_first = operator.itemgetter(0)


def _rows(op: OpView) -> Dimensions:
    """Rows and columns of the largest tensor, and how many operands have as many elements as the result."""
    inputs = [(int(tensor.numel), tensor.shape) for tensor in op.inputs]
    outputs = [(int(tensor.numel), tensor.shape) for tensor in op.outputs]
    count, shape = max((*outputs, *inputs), key=_first, default=(0, ()))
    if not count:
        return 1, 1, 1, 1
    columns = int(shape[-1]) if shape else 1
    return 1, count // columns, columns, max(1, sum(numel >= count for numel, _ in inputs))


class Family(NamedTuple):
    """A family, the ``marks`` in the names of its ops (``=``: the whole name), and how it reads its dimensions."""

    name: str
    marks: str
    dims: Dims = _rows


FAMILIES = (
    Family("mm", "=mm =_scaled_mm =_int_mm", _product),
    Family("addmm", "=addmm =_addmm_activation", _product),
    Family("bmm", "=bmm =baddbmm", _product),
    Family("bmm", "=dot_general", _contraction),
    Family("linear", "=linear =mkldnn_linear", _linear),
    Family("recurrent", "=mkldnn_rnn_layer =mkldnn_rnn_layer_backward", _recurrent),
    Family("optimizer", "_foreach_ _fused_adam _fused_sgd _fused_adagrad"),
    Family("attention", "attention", _attention),
    Family("convolution", "convolution conv_depthwise slow_conv", _convolution),
    Family("convolution", "=conv_general_dilated", _general_convolution),
    Family("embedding", "embedding"),
    Family("indexing", "masked_fill masked_scatter masked_select"),
    Family("sort", "=median unique"),
    Family("pooling", "upsample"),
    Family("copy", "=copy =_to_copy =clone =cat =stack =fill =zero =arange _like =full =zeros =ones"),
)
"""Families by the names of their ops; the first that matches. Ops of no name here have that of their cost's family, or
go by what they do: see ``_kind``."""
OF_COST = {
    **{name: name for name in ("softmax", "normalization", "loss", "random", "sort", "optimizer")},
    "gather": "indexing",
    "scatter": "indexing",
    "scan": "sort",
    "window": "pooling",
}
"""Families by those of ``cost/families/``, in which ops of every vocabulary are; of ops whose dimensions are rows."""
_BACKWARD = ("backward", "Grad", "_bwd")

OTHER_COMPUTE, OTHER_MEMORY, VIEW = "other_compute", "other_memory", "view"
_SHAPE_FAILURES = (IndexError, ValueError, TypeError, ZeroDivisionError)


@dataclass(slots=True)
class KnownWorks:
    """Works of ops of earlier Graphs, by their costs."""

    costs: KnownCosts = field(default_factory=KnownCosts)
    works: dict[int, Work] = field(default_factory=dict)  # by the identity of a cost, which ``costs`` keeps


def works(
    graph: Graph, resolver: Resolver | None = None, known: KnownWorks | None = None
) -> tuple[list[Work], list[int]]:
    """The distinct Works of ``graph``, and the place among them of each op's. ``known``: those of earlier Graphs, by
    the same resolver; those of this one are added."""
    known = known or KnownWorks()
    costs = count(graph, resolver=resolver, known=known.costs).costs
    places: dict[Work, int] = {}
    met: dict[int, int] = {}  # ops of one call and the same shapes share their cost
    index: list[int] = []
    for number, cost in enumerate(costs):
        place = met.get(id(cost))
        if place is None:
            work = known.works.get(id(cost))
            if work is None:
                work = known.works[id(cost)] = work_of(graph[number], cost)
            place = met[id(cost)] = places.setdefault(work, len(places))
        index.append(place)
    return list(places), index


def work_of(op: OpView, cost: OpCost) -> Work:
    """The Work of a recorded op of known or unknown cost."""
    dtype = compute_dtype(op.inputs or op.outputs)
    if cost.how == "view" or _is_empty(op, cost):
        return Work(VIEW, dtype)
    if cost.cost is None:
        return Work(OTHER_MEMORY, dtype, 0, 0, int(cost.nbytes), 0, known=False)
    work = cost.cost
    active, again = int(work.macs if work.active_macs is None else work.active_macs), int(work.kernel_recompute_macs)
    macs = active + (again * active // int(work.macs) if again else 0)  # scores that are masked are not computed again
    vector = int(work.elementwise_flops) + int(work.int_ops)
    family, dims = _placed(op, work)
    kernel = kernel_of(op.name) if family.startswith("attention") else ""
    return Work(family, dtype, 2 * macs, vector, int(work.read_bytes), int(work.written_bytes), dims, kernel=kernel)


def _is_empty(op: OpView, cost: OpCost) -> bool:
    """Tell whether an op launches nothing, since its results have no elements."""
    return cost.cost is not None and bool(op.outputs) and not any(tensor.numel for tensor in op.outputs)


def _placed(op: OpView, cost: Cost) -> tuple[str, Dimensions]:
    """Family and dimensions of an op; of the fallback family if its shapes are none that its family has."""
    name, dims = _family(op, cost)
    try:
        found = dims(op)
    except _SHAPE_FAILURES:
        return (OTHER_COMPUTE if cost.macs else OTHER_MEMORY), _rows(op)
    if dims in (_product, _linear) and cost.macs < math.prod(found):
        return OTHER_COMPUTE, _rows(op)  # an operand is sparse
    if min(found) < 1:
        return name, (1, 1, 1, 1)
    return name + _sub_family(op, found, dims), found


def _family(op: OpView, cost: Cost) -> tuple[str, Dims]:
    return of_name(op.name) or (_kind(op, cost), _rows)


@functools.cache
def of_name(op: str) -> tuple[str, Dims] | None:
    """Family and dimensions of ``op``, as recorded (``aten.mm.default``), by its name or by the family of its cost.

    None for an op that goes by what it does."""
    base = qualified(op).partition("::")[2].partition(".")[0]
    name = base if base.endswith("__") else base.removesuffix("_")
    found, rule = _named(name), rule_for(qualified(op))
    of_cost = OF_COST.get(rule.family) if rule is not None else None
    if found is None and of_cost is not None:
        found = Family(of_cost, "")
    if found is None:
        return None
    backward = found.name != "optimizer" and any(mark in name for mark in _BACKWARD)  # a step is named after a descent
    return found.name + "_backward" * backward, found.dims


def _named(name: str) -> Family | None:
    """The family of an op called ``name``, without its namespace and overload; None for an op that goes by its cost."""
    for family in FAMILIES:
        if any(name == mark[1:] if mark[0] == "=" else mark in name for mark in family.marks.split()):
            return family
    return None


def _kind(op: OpView, cost: Cost) -> str:
    """The family of an op by what it does: whether it multiplies matrices, reduces, or visits each element."""
    if cost.macs:
        return OTHER_COMPUTE
    largest = max((int(tensor.numel) for tensor in op.inputs), default=0)
    results = [int(tensor.numel) for tensor in op.outputs]
    if "pointwise" in op.call.tags or (cost.flops and results and min(results) >= largest):
        return "transcendental" if cost.transcendentals else "pointwise"
    if not cost.flops:
        return "copy"
    return "reduction" if REDUCED * sum(results) <= largest else OTHER_MEMORY


def _sub_family(op: OpView, dims: Dimensions, read: Dims) -> str:
    """Suffix of small products and of the kinds of convolution."""
    if read in (_product, _linear):
        return "_small" if min(dims[1:]) < SMALL else ""
    if read is _convolution:
        return "_depthwise" if dims[0] > 1 else "_1x1" if math.prod(_weight(op)[2:]) == 1 else "_kxk"
    return ""


def compute_dtype(tensors: tuple[Tensor, ...]) -> str:
    """The dtype an op computes in: that of its largest float operand (scales and biases are small).

    If it has none, of its largest operand.
    """
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) < 2:
        return min(dtypes, default="float32")
    floats = [t for t in tensors if kind_of(t.dtype) in (Kind.FLOAT, Kind.COMPLEX)]
    return max(floats or tensors, key=lambda tensor: tensor.numel).dtype
