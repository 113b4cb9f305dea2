"""Expert parallelism: the experts of every mixture are spread over ranks, to which tokens travel and back.

An all-to-all brings the tokens that each rank has routed to the ranks of their experts, a second one their results
back, and the backward pass has two more. Routing is of values, which a Graph does not know: slots of a fixed capacity
travel as they are, full or not; rows that are sorted by expert are taken to be balanced, as many for each expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from tensortide.errors import DegreesError
from tensortide.graph.collectives import PROCESS_GROUP
from tensortide.graph.model import Const, Graph, Op
from tensortide.parallelism.analysis import Analysis, analyzed
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.divided_step import Division, ExpertParallel
from tensortide.parallelism.draft import Draft, Hole, compacted
from tensortide.parallelism.exchange import Exchange, moved_views, replaced, stand_in
from tensortide.parallelism.expert_modules import expert_modules
from tensortide.parallelism.experts import Experts, names_of
from tensortide.parallelism.local import LocalSizes
from tensortide.parallelism.module_experts import module_parallel
from tensortide.parallelism.partials import Partials
from tensortide.parallelism.sites import located

GROUP = "expert"
"""Name of the process group of expert parallelism."""
DATA = "expert_data"
"""Name of the group of ranks that have the same experts."""

replace = msgspec.structs.replace


def expert_parallel(graph: Graph, ranks: int, rank: int) -> ExpertParallel:
    """The step of one of ``ranks`` over which experts are spread.

    Raises DegreesError if the step has no experts in one parameter, or they are not divided evenly.
    """
    experts = Experts(analyzed(graph))
    if not experts.products:
        layers = expert_modules(graph)
        if layers:
            return module_parallel(graph, layers, ranks, rank, GROUP)
    _check(experts, ranks)
    whole, grown = _with_stand_ins(experts)
    analysis = analyzed(whole)
    chosen = _axes(analysis, experts, ranks)
    longer = frozenset(axis for t in grown for axis in analysis.axes.leaves([analysis.dims[t][1]])[:1])
    draft = Draft(LocalSizes(analysis, chosen, ranks, longer).graph())
    number = analysis.axes.size[min(chosen)]
    replaced(draft, partial(_local_form, draft, number, ranks, rank))
    partials = Partials(draft, GROUP, ranks)
    for index, op in enumerate(draft.graph.ops):
        found = analysis.partials.get(index, ())
        norms = {p.output: p.how for p in found if p.how == "norm" and chosen & set(analysis.axes.leaves(p.axes))}
        partials.read(index, op, norms)
    division = Division(analysis, chosen, ranks, GROUP, longer)
    remarks = _remarks(experts, ranks)
    return ExpertParallel(compacted(draft.finished()), division, names_of(graph, experts.axes), remarks)


def _check(experts: Experts, ranks: int) -> None:
    graph, axes = experts.analysis.graph, experts.analysis.axes
    if not experts.products:
        raise DegreesError(
            f"expert={ranks}: the step has no experts to divide: no parameter (experts, rows, columns) in a batched or "
            "grouped product, and no modules NAME.0, NAME.1, ... alike that do not read each other's results"
        )
    for name, axis in experts.axes.items():
        if axes.size[axis] % ranks:
            raise DegreesError(
                f"experts of a rank: experts / expert = {axes.size[axis]}/{ranks} is no whole number (in {name})"
            )
    numbers = {axes.size[axis] for axis in experts.axes.values()}
    for op in sorted(experts.products):
        rows = _rows(experts, op)
        if rows and len(numbers) > 1:
            raise DegreesError(f"expert={ranks}: layers with different numbers of experts {sorted(numbers)}")
        if rows % max(numbers):
            raise DegreesError(
                f"expert={ranks}: rows / experts = {rows}/{max(numbers)} is no whole number in {located(graph, op)}: "
                "no routing is balanced"
            )


def _rows(experts: Experts, op: int) -> int:
    """Rows of tokens in a grouped product, 0 in one of slots."""
    graph = experts.analysis.graph
    inputs = graph.ops[op].inputs
    offsets = [t for t in inputs if graph.tensors[t].dtype.startswith("int")]
    if not offsets:
        return 0
    left = graph.tensors[inputs[0]].shape
    return left[1] if all(len(graph.tensors[t].shape) == 2 for t in inputs[:2]) else left[0]


def _with_stand_ins(experts: Experts) -> tuple[Graph, list[int]]:
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
                draft.insert(index, stand_in(draft, kind, [tensor], [new], _rows(experts, index), op))
                if kind == "dispatch_slots":
                    grown.append(new)
                _end_with_last_use(draft, tensor)
        changed = tuple(moved.get(t, t) for t in op.inputs)
        written.update(op.outputs)
        if changed != op.inputs:
            moved_views(draft, op, moved)
            results = tuple(moved.get(t, t) for t in op.outputs)
            draft.replaced[index] = [replace(op, inputs=changed, outputs=results)]
    return draft.finished(), grown


def _kind(experts: Experts, tensor: int, index: int, made: bool) -> str:
    """The exchange that ``tensor`` needs where the op at ``index`` reads it; empty if none."""
    graph = experts.analysis.graph
    within = index in experts.region
    view = graph.tensors[tensor]
    if within and index in experts.products and view.dtype.startswith("int"):
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


def _axes(analysis: Analysis, experts: Experts, ranks: int) -> frozenset[Axis]:
    """The axes of experts to divide, once all ops but their own have been seen not to need them whole."""
    whole = analysis.graph
    chosen: set[Axis] = set()
    products = {i for i, op in enumerate(whole.ops) if whole.calls[op.call].op.startswith("aten._grouped_mm")}
    for entry in whole.named:
        if entry.name not in experts.axes:
            continue
        (axis, *_) = analysis.axes.leaves(analysis.dims[entry.tensor][:1])
        for index, why in analysis.axes.needs(axis).items():
            if index not in products:
                where = "" if index < 0 or located(whole, index) in why else f"{located(whole, index)}: "
                raise DegreesError(f"expert={ranks} does not divide {entry.name}: {where}{why}")
        chosen.add(axis)
    return frozenset(chosen)


def _remarks(experts: Experts, ranks: int) -> tuple[str, ...]:
    graph = experts.analysis.graph
    names = {graph.calls[graph.ops[op].call].op for op in experts.products}
    if any("grouped" in name for name in names):
        return (f"Routing is taken to be balanced: 1/{ranks} of the rows for the experts of each rank.",)
    return ("Every expert computes all slots of its capacity, full or not.",)


def _local_form(draft: Draft, number: int, ranks: int, rank: int, kind: str, rows: int, op: Op) -> list[Op]:
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

    def all_to_all(self, tensor: int, out: int) -> list[Op]:
        """Send the parts of a dense tensor, along its first dimension, and receive those of all ranks."""
        arguments: dict[str, object] = {
            "output": Hole(out),
            "input": Hole(tensor),
            "process_group": Const("opaque", f"{PROCESS_GROUP}{GROUP}"),
            "output_split_sizes": (),
            "input_split_sizes": (),
            "async_op": False,
        }
        draft, like = self.exchange.draft, self.exchange.like
        return [draft.op("c10d.alltoall_base_.default", arguments, like=like, mutated=["output"])]

    def _moved(self, tensor: int) -> tuple[list[Op], int]:
        """Send a dense tensor into a new one."""
        shape = self.exchange.draft.tensors[tensor].shape
        made, received = self.exchange.empty(tensor, shape)
        return [made, *self.all_to_all(tensor, received)], received

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
