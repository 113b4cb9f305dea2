"""Tokens that travel to experts which are modules of their own, and back, and the local forms of both exchanges.

Every rank sends to each other the rows for all experts of it, in one all-to-all of flat memory with a split for each;
the owner joins the rows of all ranks for each expert. Numbers of rows are those of the captured step, on every rank.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from tensortide.graph.collectives import PROCESS_GROUP
from tensortide.graph.model import Const, Op, Tensor
from tensortide.parallelism.draft import Draft, Hole, contiguous
from tensortide.parallelism.exchange import Exchange
from tensortide.parallelism.rules.exchanged import row_dimension


class Rows(NamedTuple):
    """Local forms of a stand-in for tensors of which each belongs to an expert of the rank ``owners`` says, for
    ``rank``."""

    exchange: Exchange
    owners: tuple[int, ...]
    rank: int

    def dispatched(self) -> list[Op]:
        """Rows of this rank to all owners, and rows of all ranks for the experts of this one."""
        exchange, ranks = self.exchange, self.exchange.ranks
        draft, like = exchange.draft, exchange.like
        numels = [draft.tensors[t].numel for t in like.inputs]
        ops, flat = list[Op](), list[int]()
        for k in self._in_order():
            copied, dense = exchange.dense(like.inputs[k])
            seen, view = exchange.reshaped(dense, (numels[k],))
            ops += [*copied, *seen]
            flat.append(view)
        joined, sent = self._joined(flat, 0)
        own = [k for k in self._in_order() if self.owners[k] == self.rank]
        share = sum(numels[k] for k in own)
        made, received = exchange.empty(sent, (ranks * share,))
        moved = self._all_to_all(sent, received, self._shares(numels), (share,) * ranks)
        seen, table = exchange.reshaped(received, (ranks, share))
        ops += [*joined, made, moved, *seen]
        starts = itertools.accumulate((numels[k] for k in own), initial=0)
        for k, start in zip(own, starts, strict=False):
            shape = draft.tensors[like.inputs[k]].shape
            dim = row_dimension(shape)
            viewed, piece = self._piece(table, 1, start, (ranks, *shape))
            order = [*range(1, dim + 1), 0, *range(dim + 1, len(shape) + 1)]
            ops += [*viewed, *exchange.reordered(piece, order, like.outputs[k])[0]]
        return ops

    def combined(self) -> list[Op]:
        """Results of the experts of this rank to all ranks, and those of all owners for the rows of this one."""
        exchange, ranks = self.exchange, self.exchange.ranks
        draft, like = exchange.draft, exchange.like
        numels = [draft.tensors[t].numel for t in like.outputs]
        ops, parts = list[Op](), list[int]()
        for k in self._in_order():
            if self.owners[k] == self.rank:
                shape = draft.tensors[like.outputs[k]].shape
                dim = row_dimension(shape)
                copied, dense = exchange.dense(like.inputs[k])
                split, view = exchange.split(dense, dim, ranks)
                turned, made = exchange.reordered(view, [dim, *range(dim), *range(dim + 1, len(shape) + 1)])
                seen, part = exchange.reshaped(made, (ranks, numels[k]))
                ops += [*copied, split, *turned, *seen]
                parts.append(part)
        joined, table = self._joined(parts, 1)
        share = sum(draft.tensors[part].shape[1] for part in parts)
        flat, sent = exchange.reshaped(table, (ranks * share,))
        empty, received = exchange.empty(sent, (sum(numels),))
        moved = self._all_to_all(sent, received, (share,) * ranks, self._shares(numels))
        ops += [*joined, *flat, empty, moved]
        start = 0
        for k in self._in_order():
            viewed, piece = self._piece(received, 0, start, draft.tensors[like.outputs[k]].shape)
            ops += [*viewed, *exchange.dense(piece, like.outputs[k])[0]]
            start += numels[k]
        return ops

    def _in_order(self) -> list[int]:
        """The tensors by owner."""
        return sorted(range(len(self.owners)), key=lambda k: self.owners[k])

    def _shares(self, numels: Sequence[int]) -> tuple[int, ...]:
        """The elements of each owner."""
        pairs = list(zip(self.owners, numels, strict=True))
        return tuple(sum(n for owner, n in pairs if owner == rank) for rank in range(self.exchange.ranks))

    def _joined(self, tensors: list[int], dim: int) -> tuple[list[Op], int]:
        if len(tensors) == 1:
            return [], tensors[0]
        draft = self.exchange.draft
        shape = list(draft.tensors[tensors[0]].shape)
        shape[dim] = sum(draft.tensors[t].shape[dim] for t in tensors)
        made = draft.fresh(tensors[0], shape)
        return [self.exchange.make("cat.default", {"tensors": tuple(map(Hole, tensors)), "dim": dim}, made)], made

    def _piece(self, tensor: int, dim: int, start: int, shape: tuple[int, ...]) -> tuple[list[Op], int]:
        """A view of elements from ``start`` on along the last dimension ``dim`` of ``tensor``, in ``shape``."""
        draft = self.exchange.draft
        base = draft.tensors[tensor]
        number = math.prod(shape[dim:])
        cut = draft.tensor(
            Tensor(base.storage, base.dtype, (*base.shape[:dim], number), base.strides, base.offset + start)
        )
        inner = contiguous(shape[dim:])
        view = draft.tensor(Tensor(base.storage, base.dtype, shape, (*base.strides[:dim], *inner), base.offset + start))
        given = {"self": Hole(tensor), "dim": dim, "start": start, "end": start + number}
        ops = [self.exchange.make("slice.Tensor", given, cut, tags=["view"])]
        if view != cut:
            ops.append(self.exchange.make("view.default", {"self": Hole(cut), "size": shape}, view, tags=["view"]))
        return ops, view

    def _all_to_all(self, sent: int, received: int, given: Sequence[int], taken: Sequence[int]) -> Op:
        """The all-to-all of ``given`` elements to each rank and ``taken`` from each."""
        exchange = self.exchange
        arguments: dict[str, object] = {
            "output": Hole(received),
            "input": Hole(sent),
            "process_group": Const("opaque", f"{PROCESS_GROUP}{exchange.group}"),
            "output_split_sizes": tuple(taken),
            "input_split_sizes": tuple(given),
            "async_op": False,
        }
        return exchange.draft.op("c10d.alltoall_base_.default", arguments, like=exchange.like, mutated=["output"])


def local_form(
    draft: Draft, group: str, ranks: int, rank: int, owners: Sequence[tuple[int, ...]], kind: str, number: int, op: Op
) -> list[Op]:
    """The ops in the place of stand-in ``op``, the one of this ``number`` among those with ``owners``."""
    rows = Rows(Exchange(draft, op, group, ranks), owners[number], rank)
    return rows.dispatched() if kind == "dispatch_experts" else rows.combined()
