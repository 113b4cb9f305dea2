"""Exchanges of tokens with stacked experts: stand-ins in the step of all ranks, and the local forms of these.

An all-to-all brings the tokens that each rank has routed to the ranks of their experts, a second one their results
back, and the backward pass has two more. Routing is of values, which a Graph does not know: slots of a fixed capacity
travel as they are, full or not; rows that are sorted by expert are taken to be balanced, as many for each expert.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.dtypes import Kind, kind_of
from tensortide.graph.model import Const, Graph, Op
from tensortide.parallelism.draft import Draft, Hole
from tensortide.parallelism.exchange import Exchange, form, read_moved, stand_in
from tensortide.parallelism.experts.stacked import StackedExperts


def with_stand_ins(experts: StackedExperts) -> tuple[Graph, list[int]]:
    """The whole step with a stand-in wherever tokens travel, and the tensors whose slots grow by what arrives."""
    graph = experts.analysis.graph
    draft = Draft(graph)
    inside: dict[int, int] = {}
    outside: dict[int, int] = {}
    grown: list[int] = []
    made = {t for op in experts.region for t in graph.ops[op].outputs if experts.of_tokens(t)}
    written: set[int] = set()
    number = max(experts.analysis.axes.size[axis] for axis in experts.axes.values())
    for index, op in enumerate(graph.ops):
        moved = inside if index in experts.region else outside
        for tensor in dict.fromkeys(op.inputs):
            kind = _kind(experts, tensor, index, tensor in made)
            if kind and tensor not in moved and (tensor in written or tensor not in made):
                arriving = kind.startswith("combine")
                new = draft.twin(tensor) if arriving else draft.fresh(tensor, graph.tensors[tensor].shape)
                moved[tensor] = new
                draft.insert(index, stand_in(draft, kind, [tensor], [new], experts.rows(index), op, experts=number))
                if kind == "dispatch_slots":
                    grown.append(new)
                _end_with_last_use(draft, tensor)
        written.update(op.outputs)
        read_moved(draft, index, op, moved)
    return draft.finished(), grown


def _kind(experts: StackedExperts, tensor: int, index: int, made: bool) -> str:
    """The exchange that ``tensor`` needs where the op at ``index`` reads it; empty if none."""
    graph = experts.analysis.graph
    within = index in experts.region
    view = graph.tensors[tensor]
    if within and index in experts.products and kind_of(view.dtype) is Kind.INTEGER:
        return "offsets"
    if not experts.of_tokens(tensor) or within == made:
        return ""
    return ("dispatch" if within else "combine") + ("_slots" if experts.in_slots(tensor) else "_rows")


def _end_with_last_use(draft: Draft, tensor: int) -> None:
    """Let the storage of a tensor go when nothing reads it any more: it is the copy that is saved."""
    number = draft.tensors[tensor].storage
    storage = draft.storages[number]
    if storage.birth is not None and storage.death is not None:
        draft.derived.add(number)


def _moved(exchange: Exchange, tensor: int) -> tuple[list[Op], int]:
    """Send the parts of a dense tensor, along its first dimension, and receive those of all ranks in a new one."""
    return exchange.all_to_all(tensor, exchange.draft.tensors[tensor].shape)


def _arrived(exchange: Exchange, shape: Sequence[int]) -> list[Op]:
    """Send a tensor, and put what arrives, seen as ``shape`` of which the ranks come first, in order by expert."""
    (tensor,), (out,) = exchange.like.inputs, exchange.like.outputs
    copied, dense = exchange.dense(tensor)
    sent, received = _moved(exchange, dense)
    seen, view = exchange.reshaped(received, shape)
    order = (1, 0, *range(2, len(shape)))
    return [*copied, *sent, *seen, *exchange.reordered(view, order, out)[0]]


def _groups(exchange: Exchange, outer: int, inner: int) -> tuple[int, ...]:
    """The shape of rows by two factors of the number of experts."""
    rows, *rest = exchange.draft.tensors[exchange.like.inputs[0]].shape
    return (outer, inner, rows // exchange.given("experts"), *rest)


@form("dispatch_slots")
def to_slots(exchange: Exchange) -> list[Op]:
    """(experts, slots, ...) to (experts of this rank, slots of all ranks, ...)."""
    experts, *rest = exchange.draft.tensors[exchange.like.inputs[0]].shape
    return _arrived(exchange, (exchange.ranks, experts // exchange.ranks, *rest))


@form("combine_slots")
def from_slots(exchange: Exchange) -> list[Op]:
    """(experts of this rank, slots of all ranks, ...) to (experts, slots, ...)."""
    (tensor,), (out,) = exchange.like.inputs, exchange.like.outputs
    split, view = exchange.split(tensor, 1, exchange.ranks)
    rank = len(exchange.draft.tensors[view].shape)
    copied, dense = exchange.reordered(view, (1, 0, *range(2, rank)))
    sent, received = _moved(exchange, dense)
    seen, whole = exchange.reshaped(received, exchange.draft.tensors[out].shape)
    return [split, *copied, *sent, *seen, *exchange.laid_out(whole, out)]


@form("dispatch_rows")
def to_rows(exchange: Exchange) -> list[Op]:
    """Rows sorted by expert to the rows of this rank's experts, sorted by expert again."""
    return _arrived(exchange, _groups(exchange, exchange.ranks, exchange.given("experts") // exchange.ranks))


@form("combine_rows")
def from_rows(exchange: Exchange) -> list[Op]:
    """Rows of this rank's experts, of all ranks, to the rows that each rank has sent, sorted by expert."""
    (tensor,), (out,) = exchange.like.inputs, exchange.like.outputs
    copied, dense = exchange.dense(tensor)
    shape = _groups(exchange, exchange.given("experts") // exchange.ranks, exchange.ranks)
    seen, view = exchange.reshaped(dense, shape)
    turned, ready = exchange.reordered(view, (1, 0, *range(2, len(shape))))
    flat, rows = exchange.reshaped(ready, exchange.draft.tensors[dense].shape)
    sent, received = _moved(exchange, rows)
    return [*copied, *seen, *turned, *flat, *sent, *exchange.laid_out(received, out)]


@form("offsets")
def offsets(exchange: Exchange) -> list[Op]:
    """The ends of the experts' rows: those that each rank has sent, added up, less those of ranks before."""
    (tensor,), (out,), ranks = exchange.like.inputs, exchange.like.outputs, exchange.ranks
    own = exchange.given("experts") // ranks
    copied, dense = exchange.dense(tensor)
    sent, received = _moved(exchange, dense)
    seen, table = exchange.reshaped(received, (ranks, own))
    total = exchange.draft.fresh(tensor, (own,))
    dtype = Const("dtype", exchange.draft.tensors[tensor].dtype)
    summed = {"self": Hole(table), "dim": (0,), "keepdim": False, "dtype": dtype}
    ends = exchange.make("sum.dim_IntList", summed, total, positional=3)
    others = {"self": Hole(total), "other": exchange.rank * exchange.given("number")}
    return [*copied, *sent, *seen, ends, exchange.make("sub.Tensor", others, out)]
