"""Exchanges of rows with experts that are modules: stand-ins in the step of all ranks, and the local forms of these.

Every rank sends to each other the rows for all experts of it, in one all-to-all of flat memory with a split for each;
the owner joins the rows of all ranks for each expert. Numbers of rows are those of the captured step, on every rank.
A tensor that several experts of a rank read (all tokens, where gates are applied afterwards) is sent to it once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Op, Phase, Tensor
from tensortide.parallelism.draft import Draft, Hole, contiguous, replace
from tensortide.parallelism.exchange import Exchange, form, read_moved, stand_in
from tensortide.parallelism.experts.module_experts import PASSES, ExpertModules, Pass
from tensortide.parallelism.experts.owners import owner_of
from tensortide.parallelism.rules.exchanged import row_dimension
from tensortide.parallelism.sites import located


@dataclass(slots=True)
class Moves:
    """The whole step with stand-ins where rows travel. ``region``: the owner of every op of an expert; ``places``: its
    index in the Graph with stand-ins; ``arrived``: tensors with the rows of all ranks; ``rows``: of every expert in its
    layer, the most that it reads."""

    whole: Graph
    layers: Sequence[ExpertModules]
    ranks: int
    region: dict[int, int] = field(default_factory=dict)
    arrived: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    rows: dict[tuple[str, int], int] = field(default_factory=dict)
    _draft: Draft = field(init=False)
    _moved: dict[int, dict[int, int]] = field(default_factory=dict)
    _back: dict[int, int] = field(default_factory=dict)

    def graph(self) -> Graph:
        """The step with stand-ins."""
        self._draft = Draft(self.whole)
        for layer in self.layers:
            for each in PASSES:
                for index, expert in layer.regions[each].items():
                    self.region[index] = owner_of(expert, len(layer.weights), self.ranks)
        turns = {
            min(layer.regions[each]): (layer, each) for layer in self.layers for each in PASSES if layer.regions[each]
        }
        ends = {max(layer.regions[each]): (layer, each) for layer, each in turns.values()}
        for index, op in enumerate(self.whole.ops):
            if index in turns:
                self._dispatch(*turns[index])
            moved = self._moved.setdefault(self.region[index], {}) if index in self.region else self._back
            if index not in self.region:
                self._check_views(index, op)
            read_moved(self._draft, index, op, moved)
            if index in ends:
                self._combine(*ends[index])
        made = self._draft.finished()
        at = 0
        for index in range(len(self.whole.ops)):
            at += len(self._draft.before.get(index, ()))
            self.places.append(at)
            at += 1
        return made

    def _dispatch(self, layer: ExpertModules, each: Pass) -> None:
        """Send what experts read that others make, before the first of their ops in a pass."""
        ops = sorted(layer.regions[each])
        items: dict[tuple[int, int], None] = {}
        for index in ops:
            op, expert = self.whole.ops[index], layer.regions[each][index]
            written = {op.inputs[slot] for slot in self.whole.calls[op.call].mutated}
            for tensor in op.inputs:
                if tensor in layer.inside:
                    continue
                self._check_rows(index, tensor, f"{layer.name}.{expert}", writes=tensor in written)
                shape = self.whole.tensors[tensor].shape
                key = layer.name, expert
                self.rows[key] = max(self.rows.get(key, 0), shape[row_dimension(shape)])
                if tensor not in self._moved.setdefault(self.region[index], {}):
                    items[self._back.get(tensor, tensor), self.region[index]] = None
                    self._moved[self.region[index]][tensor] = -1
        experts = set(layer.regions[each].values())
        if each == PASSES[0] and len(experts) < len(layer.weights):
            missing = min(set(range(len(layer.weights))) - experts)
            raise DegreesError(f"expert={self.ranks}: {layer.name}.{missing} computes nothing in this step")
        back = {new: old for old, new in self._back.items()}
        for (tensor, owner), new in self._sent("dispatch_experts", list(items), ops[0]).items():
            self._moved[owner][back.get(tensor, tensor)] = new
            self.arrived.append(new)

    def _combine(self, layer: ExpertModules, each: Pass) -> None:
        """Bring back what others read of what experts make, after the last of their ops in a pass."""
        ops = layer.regions[each]
        made = {t: self.region[i] for i in ops for t in self.whole.ops[i].outputs if layer.inside.get(t) == ops[i]}
        read: dict[int, None] = {}
        for index, op in enumerate(self.whole.ops):
            if op.phase is not Phase.OPTIMIZER and index not in layer.regions.get(Pass.of(op), {}):
                for tensor in op.inputs:
                    if tensor in made and tensor not in self._back and not self._named(tensor):
                        read[tensor] = None
                        self._check_rows(index, tensor, layer.name)
        items = sorted(((t, made[t]) for t in read), key=lambda item: (item[1], item[0]))
        for (tensor, _), new in self._sent("combine_experts", items, max(ops) + 1).items():
            self._back[tensor] = new

    def _check_views(self, index: int, op: Op) -> None:
        """Raise DegreesError where an op changes one of several views that came back, each as a copy."""
        owner = self.whole.index.owner
        for tensor in (op.inputs[slot] for slot in self.whole.calls[op.call].mutated):
            if tensor in self._back and any(owner[t] == owner[tensor] for t in self._back if t != tensor):
                raise DegreesError(
                    f"expert={self.ranks}: {located(self.whole, index)} changes what an expert has made, which others "
                    "read in another shape"
                )

    def _named(self, tensor: int) -> bool:
        """Return whether a tensor is a gradient or another that has a name and outlives the step."""
        return bool(self.whole.storages[self.whole.index.owner[tensor]].name)

    def _sent(self, kind: str, items: list[tuple[int, int]], index: int) -> dict[tuple[int, int], int]:
        """Insert stand-ins before the op at ``index``, one for each dtype; the new tensor of every item."""
        like = self.whole.ops[min(index, len(self.whole.ops) - 1)]
        found: dict[tuple[int, int], int] = {}
        for dtype in dict.fromkeys(self._draft.tensors[t].dtype for t, _ in items):
            these = [item for item in items if self._draft.tensors[item[0]].dtype == dtype]
            made = [self._draft.fresh(t, self._draft.tensors[t].shape) for t, _ in these]
            owners = tuple(owner for _, owner in these)
            op = stand_in(self._draft, kind, [t for t, _ in these], made, 0, like, owners=owners)
            op = replace(op, phase=self.whole.ops[index - 1].phase if kind.startswith("combine") else like.phase)
            self._draft.insert(index, op)
            found |= dict(zip(these, made, strict=True))
        return found

    def _check_rows(self, index: int, tensor: int, expert: str, *, writes: bool = False) -> None:
        """Raise DegreesError unless a tensor has rows of tokens, more than one."""
        shape = self.whole.tensors[tensor].shape
        where = f"{located(self.whole, index)}, of {expert}" if index in self.region else located(self.whole, index)
        text = f"({', '.join(map(str, shape))})"
        if writes:
            raise DegreesError(f"expert={self.ranks}: {where}, changes {text} in place, which others read")
        if len(shape) < 2:
            raise DegreesError(f"expert={self.ranks}: {where}, reads {text}, which is no rows of tokens")
        if max(shape[:-1]) < 2:
            raise DegreesError(
                f"expert={self.ranks}: {where}, reads {text}, fewer than two rows. Capture a step with more of them "
                "for every expert (--assume gives numbers)"
            )


@form("dispatch_experts")
def dispatched(exchange: Exchange) -> list[Op]:
    """Rows of this rank to all owners, and rows of all ranks for the experts of this one."""
    ranks = exchange.ranks
    draft, like, owners = exchange.draft, exchange.like, exchange.given("owners")
    numels = [draft.tensors[t].numel for t in like.inputs]
    ops, flat = list[Op](), list[int]()
    for k in _in_order(owners):
        copied, dense = exchange.dense(like.inputs[k])
        seen, view = exchange.reshaped(dense, (numels[k],))
        ops += [*copied, *seen]
        flat.append(view)
    joined, sent = _joined(exchange, flat, 0)
    own = [k for k in _in_order(owners) if owners[k] == exchange.rank]
    share = sum(numels[k] for k in own)
    moved, received = exchange.all_to_all(sent, (ranks * share,), _shares(owners, numels, ranks), (share,) * ranks)
    seen, table = exchange.reshaped(received, (ranks, share))
    ops += [*joined, *moved, *seen]
    starts = itertools.accumulate((numels[k] for k in own), initial=0)
    for k, start in zip(own, starts, strict=False):
        shape = draft.tensors[like.inputs[k]].shape
        dim = row_dimension(shape)
        viewed, piece = _piece(exchange, table, 1, start, (ranks, *shape))
        order = [*range(1, dim + 1), 0, *range(dim + 1, len(shape) + 1)]
        ops += [*viewed, *exchange.reordered(piece, order, like.outputs[k])[0]]
    return ops


@form("combine_experts")
def combined(exchange: Exchange) -> list[Op]:
    """Results of the experts of this rank to all ranks, and those of all owners for the rows of this one."""
    ranks = exchange.ranks
    draft, like, owners = exchange.draft, exchange.like, exchange.given("owners")
    numels = [draft.tensors[t].numel for t in like.outputs]
    ops, parts = list[Op](), list[int]()
    for k in _in_order(owners):
        if owners[k] == exchange.rank:
            shape = draft.tensors[like.outputs[k]].shape
            dim = row_dimension(shape)
            copied, dense = exchange.dense(like.inputs[k])
            split, view = exchange.split(dense, dim, ranks)
            turned, made = exchange.reordered(view, [dim, *range(dim), *range(dim + 1, len(shape) + 1)])
            seen, part = exchange.reshaped(made, (ranks, numels[k]))
            ops += [*copied, split, *turned, *seen]
            parts.append(part)
    joined, table = _joined(exchange, parts, 1)
    share = sum(draft.tensors[part].shape[1] for part in parts)
    flat, sent = exchange.reshaped(table, (ranks * share,))
    moved, received = exchange.all_to_all(sent, (sum(numels),), (share,) * ranks, _shares(owners, numels, ranks))
    ops += [*joined, *flat, *moved]
    start = 0
    for k in _in_order(owners):
        viewed, piece = _piece(exchange, received, 0, start, draft.tensors[like.outputs[k]].shape)
        ops += [*viewed, *exchange.dense(piece, like.outputs[k])[0]]
        start += numels[k]
    return ops


def _in_order(owners: Sequence[int]) -> list[int]:
    """The tensors by owner."""
    return sorted(range(len(owners)), key=owners.__getitem__)


def _shares(owners: Sequence[int], numels: Sequence[int], ranks: int) -> tuple[int, ...]:
    """The elements of each owner."""
    pairs = list(zip(owners, numels, strict=True))
    return tuple(sum(n for owner, n in pairs if owner == rank) for rank in range(ranks))


def _joined(exchange: Exchange, tensors: list[int], dim: int) -> tuple[list[Op], int]:
    if len(tensors) == 1:
        return [], tensors[0]
    draft = exchange.draft
    shape = list(draft.tensors[tensors[0]].shape)
    shape[dim] = sum(draft.tensors[t].shape[dim] for t in tensors)
    made = draft.fresh(tensors[0], shape)
    return [exchange.make("cat.default", {"tensors": tuple(map(Hole, tensors)), "dim": dim}, made)], made


def _piece(exchange: Exchange, tensor: int, dim: int, start: int, shape: tuple[int, ...]) -> tuple[list[Op], int]:
    """A view of elements from ``start`` on along the last dimension ``dim`` of ``tensor``, in ``shape``."""
    base, number = exchange.draft.tensors[tensor], math.prod(shape[dim:])
    op, cut = exchange.part(tensor, dim, range(start, start + number))
    strides = (*base.strides[:dim], *contiguous(shape[dim:]))
    view = exchange.draft.tensor(Tensor(base.storage, base.dtype, shape, strides, base.offset + start))
    if view == cut:
        return [op], view
    return [op, exchange.make("view.default", {"self": Hole(cut), "size": shape}, view, tags=["view"])], view
