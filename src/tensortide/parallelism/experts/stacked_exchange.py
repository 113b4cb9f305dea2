"""Exchanges of tokens with stacked experts: stand-ins in the step of all ranks, and the local forms of these.

An all-to-all brings the tokens that each rank has routed to the ranks of their experts, a second one their results
back, and the backward pass has two more. Routing is of values, which a Graph does not know: slots of a fixed capacity
travel as they are, full or not; rows that are sorted by expert are taken to be balanced, as many for each expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tensortide.dtypes import Kind, kind_of
from tensortide.graph.model import Const, Graph, Op
from tensortide.parallelism.draft import Draft, Hole
from tensortide.parallelism.exchange import Exchange, read_moved, stand_in
from tensortide.parallelism.experts.owners import GROUP
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
    for index, op in enumerate(graph.ops):
        moved = inside if index in experts.region else outside
        for tensor in dict.fromkeys(op.inputs):
            kind = _kind(experts, tensor, index, tensor in made)
            if kind and tensor not in moved and (tensor in written or tensor not in made):
                arriving = kind.startswith("combine")
                new = draft.twin(tensor) if arriving else draft.fresh(tensor, graph.tensors[tensor].shape)
                moved[tensor] = new
                draft.insert(index, stand_in(draft, kind, [tensor], [new], experts.rows(index), op))
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


def local_form(draft: Draft, number: int, ranks: int, rank: int, kind: str, rows: int, op: Op) -> list[Op]:
    """The ops in the place of stand-in ``op``, where ``number`` experts are together and each rank sends ``rows``."""
    tokens = _Tokens(Exchange(draft, op, GROUP, ranks), number, rank * rows)
    forms = {
        "dispatch_slots": tokens.to_slots,
        "combine_slots": tokens.from_slots,
        "dispatch_rows": tokens.to_rows,
        "combine_rows": tokens.from_rows,
        "offsets": tokens.offsets,
    }
    return forms[kind]()


class _Tokens(NamedTuple):
    """The local forms of what travels, among ``exchange.ranks`` ranks with ``number`` experts together; ``before`` are
    the rows of the ranks before this one."""

    exchange: Exchange
    number: int
    before: int

    def _moved(self, tensor: int) -> tuple[list[Op], int]:
        """Send the parts of a dense tensor, along its first dimension, and receive those of all ranks in a new one."""
        return self.exchange.all_to_all(tensor, self.exchange.draft.tensors[tensor].shape)

    def _into(self, tensor: int, shape: Sequence[int], order: Sequence[int], out: int) -> list[Op]:
        """Copy a dense tensor, seen as ``shape``, with its dimensions in another order into ``out``."""
        exchange = self.exchange
        seen, view = exchange.reshaped(tensor, shape)
        return [*seen, *exchange.reordered(view, order, out)[0]]

    def to_slots(self) -> list[Op]:
        """(experts, slots, ...) to (experts of this rank, slots of all ranks, ...)."""
        exchange, ranks = self.exchange, self.exchange.ranks
        (tensor,), (out,) = exchange.like.inputs, exchange.like.outputs
        copied, dense = exchange.dense(tensor)
        experts, slots, *rest = exchange.draft.tensors[dense].shape
        sent, received = self._moved(dense)
        shape = (ranks, experts // ranks, slots, *rest)
        order = (1, 0, *range(2, len(shape)))
        return [*copied, *sent, *self._into(received, shape, order, out)]

    def from_slots(self) -> list[Op]:
        """The way back."""
        exchange, ranks = self.exchange, self.exchange.ranks
        (tensor,), (out,) = exchange.like.inputs, exchange.like.outputs
        split, view = exchange.split(tensor, 1, ranks)
        rank = len(exchange.draft.tensors[view].shape)
        copied, dense = exchange.reordered(view, (1, 0, *range(2, rank)))
        sent, received = self._moved(dense)
        seen, whole = exchange.reshaped(received, exchange.draft.tensors[out].shape)
        return [split, *copied, *sent, *seen, *exchange.laid_out(whole, out)]

    def _groups(self, tensor: int, outer: int, inner: int) -> tuple[int, ...]:
        rows, *rest = self.exchange.draft.tensors[tensor].shape
        return (outer, inner, rows // self.number, *rest)

    def to_rows(self) -> list[Op]:
        """Rows sorted by expert to the rows of this rank's experts, sorted by expert again."""
        exchange, ranks = self.exchange, self.exchange.ranks
        (tensor,), (out,) = exchange.like.inputs, exchange.like.outputs
        copied, dense = exchange.dense(tensor)
        sent, received = self._moved(dense)
        shape = self._groups(dense, ranks, self.number // ranks)
        return [*copied, *sent, *self._into(received, shape, (1, 0, *range(2, len(shape))), out)]

    def from_rows(self) -> list[Op]:
        """The way back."""
        exchange, ranks = self.exchange, self.exchange.ranks
        (tensor,), (out,) = exchange.like.inputs, exchange.like.outputs
        copied, dense = exchange.dense(tensor)
        shape = self._groups(dense, self.number // ranks, ranks)
        seen, view = exchange.reshaped(dense, shape)
        turned, ready = exchange.reordered(view, (1, 0, *range(2, len(shape))))
        flat, rows = exchange.reshaped(ready, exchange.draft.tensors[dense].shape)
        sent, received = self._moved(rows)
        return [*copied, *seen, *turned, *flat, *sent, *exchange.laid_out(received, out)]

    def offsets(self) -> list[Op]:
        """The ends of the experts' rows: those that each rank has sent, added up, less those of ranks before."""
        exchange, ranks = self.exchange, self.exchange.ranks
        (tensor,), (out,) = exchange.like.inputs, exchange.like.outputs
        dtype = exchange.draft.tensors[tensor].dtype
        copied, dense = exchange.dense(tensor)
        sent, received = self._moved(dense)
        seen, table = exchange.reshaped(received, (ranks, self.number // ranks))
        total = exchange.draft.fresh(tensor, (self.number // ranks,))
        summed = {"self": Hole(table), "dim": (0,), "keepdim": False, "dtype": Const("dtype", dtype)}
        ends = exchange.make("sum.dim_IntList", summed, total, positional=3)
        before = exchange.make("sub.Tensor", {"self": Hole(total), "other": self.before}, out)
        return [*copied, *sent, *seen, ends, before]
