"""Ops that stand, in the Graph of the whole step, where ranks will exchange parts of a tensor, and what they become.

A stand-in ties all axes of its operands but the exchanged ones (``rules/exchanged.py``), so that both sides of it are
divided each in its own way. It stays while further axes of the mesh divide the step. At last each gives way to what the
rank executes in its place, a row of ``FORMS``: copies into and out of the order in memory that a collective needs, and
the collective. So does a kernel of attention over keys of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tensortide.errors import TensortideError
from tensortide.graph.model import Const, Graph, Op, Tensor, Value
from tensortide.parallelism.draft import Builder, Draft, Hole, allocation, compacted, contiguous, replace
from tensortide.parallelism.sites import base_name

PREFIX = "exchange."
AMONG = "among"
"""Last argument of an op that gives way to a form: its kind, its group, how many ranks it has, and which this is."""


def stand_in(
    draft: Draft, kind: str, inputs: Sequence[int], outputs: Sequence[int], number: int, like: Op, **others: Value
) -> Op:
    """The op ``exchange.KIND`` from ``inputs`` to ``outputs`` along dimension ``number``, or of so many rows; its form
    takes ``others`` as well."""
    arguments = {"inputs": tuple(map(Hole, inputs)), "number": number, **others}
    return draft.op(f"{PREFIX}{kind}.default", arguments, outputs, like=like)


@dataclass(slots=True)
class Exchange(Builder):
    """Builds the ops in the place of ``like`` for ``rank`` among ``ranks`` of ``group``. ``common`` are numbers that
    all exchanges of a step share."""

    group: str
    ranks: int
    rank: int
    common: dict[Hashable, int]

    def given(self, name: str) -> Any:
        """An argument of the stand-in."""
        return dict(self.draft.calls[self.like.call].arguments)[name]

    def collective(self, name: str, outputs: Sequence[int], inputs: Sequence[int], how: str = "") -> Op:
        """A collective over lists, one item for each tensor."""
        given = {"outputs": tuple(map(Hole, outputs)), "inputs": tuple(map(Hole, inputs))}
        return self.draft.collective(name, given, self.group, how, like=self.like, async_op=False)

    def view(self, tensor: int, shape: Sequence[int]) -> int:
        """``tensor``, dense in memory, in another shape."""
        base = self.draft.tensors[tensor]
        return self.draft.tensor(Tensor(base.storage, base.dtype, tuple(shape), contiguous(shape), base.offset))

    def reshaped(self, tensor: int, shape: Sequence[int]) -> tuple[list[Op], int]:
        """The op that views a dense ``tensor`` in another shape."""
        if self.draft.tensors[tensor].shape == tuple(shape):
            return [], tensor
        made = self.view(tensor, shape)
        return [self.make("view.default", {"self": Hole(tensor), "size": tuple(shape)}, made, tags=["view"])], made

    def dense(self, tensor: int, out: int | None = None) -> tuple[list[Op], int]:
        """A copy of ``tensor`` that is filled row by row, in ``out`` if given; itself if it is that already."""
        view = self.draft.tensors[tensor]
        if out is None and self._is_dense(tensor):
            return [], tensor
        made = self.draft.fresh(tensor, view.shape) if out is None else out
        arguments = {"self": Hole(tensor), "memory_format": Const("memory_format", "contiguous_format")}
        return [self.make("clone.default", arguments, made, positional=1)], made

    def permuted(self, tensor: int, order: Sequence[int]) -> tuple[Op, int]:
        """The op that views ``tensor`` with its dimensions in another order."""
        base = self.draft.tensors[tensor]
        shape, strides = ([sizes[dim] for dim in order] for sizes in (base.shape, base.strides))
        made = self.draft.tensor(Tensor(base.storage, base.dtype, tuple(shape), tuple(strides), base.offset))
        return self.make("permute.default", {"self": Hole(tensor), "dims": tuple(order)}, made, tags=["view"]), made

    def split(self, tensor: int, dim: int, outer: int) -> tuple[Op, int]:
        """The op that views dimension ``dim`` of ``tensor`` as two, the first of ``outer`` elements."""
        base = self.draft.tensors[tensor]
        inner, stride = base.shape[dim] // outer, base.strides[dim]
        shape = (*base.shape[:dim], outer, inner, *base.shape[dim + 1 :])
        strides = (*base.strides[:dim], inner * stride, stride, *base.strides[dim + 1 :])
        made = self.draft.tensor(Tensor(base.storage, base.dtype, shape, strides, base.offset))
        return self.make("view.default", {"self": Hole(tensor), "size": shape}, made, tags=["view"]), made

    def reordered(self, tensor: int, order: Sequence[int], out: int | None = None) -> tuple[list[Op], int]:
        """A dense copy of ``tensor`` with its dimensions in another ``order``, in the memory of ``out`` (dense, of any
        shape) if given."""
        turned, view = self.permuted(tensor, order)
        shape = self._shape(view)
        copied, made = self.dense(view, self.draft.fresh(tensor, shape) if out is None else self.view(out, shape))
        after = [] if out is None else self.reshaped(made, self._shape(out))[0]
        return [turned, *copied, *after], made

    def _shape(self, tensor: int) -> tuple[int, ...]:
        return self.draft.tensors[tensor].shape

    def empty(self, like: int, shape: Sequence[int]) -> tuple[Op, int]:
        """The op that allocates a tensor of the dtype of ``like``."""
        made = self.draft.fresh(like, shape)
        return allocation(self.draft, made, self.like), made

    def all_to_all(
        self, sent: int, shape: Sequence[int], given: Sequence[int] = (), taken: Sequence[int] = ()
    ) -> tuple[list[Op], int]:
        """Exchange the parts of a dense tensor into a new one of ``shape``: ``given`` elements to each rank and
        ``taken`` from each, equal parts unless given."""
        made, received = self.empty(sent, shape)
        tensors = {"output": Hole(received), "input": Hole(sent)}
        sizes: dict[str, Any] = {"output_split_sizes": tuple(taken), "input_split_sizes": tuple(given)}
        op = self.draft.collective("alltoall_base_", tensors, self.group, like=self.like, **sizes, async_op=False)
        return [made, op], received

    def gathered(self) -> list[Op]:
        """All-gather every input along a dimension into its output, in one collective."""
        dim = self.given("number")
        ready, after, buffers, parts = list[Op](), list[Op](), list[int](), list[int]()
        for tensor, out in zip(self.like.inputs, self.like.outputs, strict=True):
            ops, part = self.dense(tensor)
            shape = self._shape(part)
            made, buffer = self.empty(tensor, (self.ranks, *shape))
            ready += [*ops, made]
            buffers.append(buffer)
            parts.append(part)
            order = [*range(1, dim + 1), 0, *range(dim + 1, len(shape) + 1)]
            after += self.reordered(buffer, order, out)[0] if self._is_dense(out) else self._joined(buffer, order, out)
        return [*ready, self.collective("allgather_into_tensor_coalesced_", buffers, parts), *after]

    def _is_dense(self, tensor: int) -> bool:
        view = self.draft.tensors[tensor]
        return view.strides == contiguous(view.shape) and not view.offset

    def _joined(self, buffer: int, order: Sequence[int], out: int) -> list[Op]:
        """Copy the parts of all ranks, the first dimension of ``buffer``, into ``out``, of any strides, where ``order``
        puts them."""
        turned, parts = self.permuted(buffer, order)
        split, places = self.split(out, order.index(0), self.ranks)
        return [turned, self._allocated(out), split, self._copied(parts, places)]

    def scattered(self) -> list[Op]:
        """Sum every input over the ranks and keep this rank's part along a dimension, in one collective."""
        dim = self.given("number")
        ready, after, parts, outputs = list[Op](), list[Op](), list[int](), list[int]()
        for tensor, out in zip(self.like.inputs, self.like.outputs, strict=True):
            split, view = self.split(tensor, dim, self.ranks)
            copied, part = self.reordered(view, [dim, *range(dim), *range(dim + 1, len(self._shape(view)))])
            made, buffer = self.empty(out, self._shape(out))
            ready += [split, *copied, made]
            parts.append(part)
            outputs.append(buffer)
            after += self.laid_out(buffer, out)
        return [*ready, self.collective("reduce_scatter_tensor_coalesced_", outputs, parts, "sum"), *after]

    def laid_out(self, tensor: int, out: int) -> list[Op]:
        """Copy ``tensor`` into ``out``, of any strides."""
        return [self._allocated(out), self._copied(tensor, out)]

    def _allocated(self, out: int) -> Op:
        view = self.draft.tensors[out]
        given = {"size": view.shape, "stride": view.strides}
        return self.draft.factory("empty_strided.default", out, given, like=self.like)

    def _copied(self, tensor: int, out: int) -> Op:
        return self.make("copy_.default", {"self": Hole(out), "src": Hole(tensor)}, out)

    def part(self, tensor: int, dim: int, places: range) -> tuple[Op, int]:
        """The op that views the ``places`` of a dimension."""
        base = self.draft.tensors[tensor]
        shape = (*base.shape[:dim], len(places), *base.shape[dim + 1 :])
        offset = base.offset + places.start * base.strides[dim]
        made = self.draft.tensor(Tensor(base.storage, base.dtype, shape, base.strides, offset))
        given = {"self": Hole(tensor), "dim": dim, "start": places.start, "end": places.stop}
        return self.make("slice.Tensor", given, made, tags=["view"]), made

    def sliced(self) -> list[Op]:
        """Copy this rank's part of what every rank has."""
        (tensor,), (out,), dim, rank = self.like.inputs, self.like.outputs, self.given("number"), self.rank
        size = self._shape(out)[dim]
        if self._is_dense(out):
            given = {"self": Hole(tensor), "dim": dim, "start": rank * size, "end": (rank + 1) * size}
            return [self.make("slice_copy.Tensor", given, out)]
        op, part = self.part(tensor, dim, range(rank * size, (rank + 1) * size))
        return [op, *self.laid_out(part, out)]

    def mirrored(self) -> list[Op]:
        """Copy this rank's two parts of what every rank has, which mirror each other."""
        (tensor,), (out,), dim, rank = self.like.inputs, self.like.outputs, self.given("number"), self.rank
        half = self._shape(out)[dim] // 2
        views = [self.part(tensor, dim, range(n * half, (n + 1) * half)) for n in (rank, 2 * self.ranks - 1 - rank)]
        made = out if self._is_dense(out) else self.draft.fresh(out, self._shape(out))
        given = {"tensors": tuple(Hole(view) for _, view in views), "dim": dim}
        return [*(op for op, _ in views), self.make("cat.default", given, made), *self._again(made, out)]

    def _again(self, tensor: int, out: int) -> list[Op]:
        return [] if tensor == out else self.laid_out(tensor, out)


Form: TypeAlias = Callable[[Exchange], list[Op]]
FORMS: dict[str, Form] = {
    "part_along": Exchange.sliced,
    "mirrored_along": Exchange.mirrored,
    "gather_along": Exchange.gathered,
    "scatter_along": Exchange.scattered,
}
"""The local form of each kind of exchange. ``form`` adds a row."""


def form(kind: str) -> Callable[[Form], Form]:
    """Make the decorated function the local form of the exchanges ``kind``. Raises TensortideError for a second one."""

    def register(function: Form) -> Form:
        if FORMS.setdefault(kind, function) is not function:
            raise TensortideError(f"the exchange {kind} has two local forms")
        return function

    return register


def noted(draft: Draft, op: Op, kind: str, group: str, ranks: int, rank: int) -> Op:
    """``op`` with a note that its form is ``kind``, for ``rank`` among ``ranks`` of ``group``."""
    call = draft.calls[op.call]
    arguments = (*call.arguments, (AMONG, (kind, group, ranks, rank)))
    return replace(op, call=draft.call(replace(call, arguments=arguments)))


def note_ranks(draft: Draft, group: str, ranks: int, rank: int) -> None:
    """Note in every stand-in of a draft that has none that it is for ``rank`` among ``ranks`` of ``group``."""
    for index, op in enumerate(draft.graph.ops):
        call = draft.calls[op.call]
        if call.op.startswith(PREFIX) and AMONG not in dict(call.arguments):
            draft.replaced[index] = [noted(draft, op, base_name(call.op), group, ranks, rank)]


def exchanged(graph: Graph) -> Graph:
    """``graph``, of a rank, with its local form in the place of every op that notes one."""
    draft, common = Draft(graph), dict[Hashable, int]()
    places: dict[int, Any] = {
        number: place for number, call in enumerate(graph.calls) for name, place in call.arguments if name == AMONG
    }
    for index, op in enumerate(graph.ops):
        if op.call in places:
            kind, group, ranks, rank = places[op.call]
            call = graph.calls[op.call]
            plain = replace(op, call=draft.call(replace(call, arguments=call.arguments[:-1])))
            draft.replaced[index] = FORMS[kind](Exchange(draft, plain, group, ranks, rank, common))
    return compacted(draft.finished()) if draft.replaced else graph


def read_moved(draft: Draft, index: int, op: Op, moved: dict[int, int]) -> None:
    """Let the op at ``index`` read what has arrived in the place of tensors that have ``moved``, and let its views of
    them be views of that."""
    if moved.keys().isdisjoint(op.inputs):
        return
    for tensor in [t for t in op.inputs if t in moved]:
        base, new = draft.graph.tensors[tensor], draft.tensors[moved[tensor]]
        for out in op.outputs:
            view = draft.graph.tensors[out]
            if view.storage == base.storage and out not in moved:
                strides = dict(zip(zip(base.shape, base.strides, strict=True), new.strides, strict=True))
                own = tuple(strides.get(pair, pair[1]) for pair in zip(view.shape, view.strides, strict=True))
                start = view.offset - base.offset + new.offset
                moved[out] = draft.tensor(Tensor(new.storage, view.dtype, view.shape, own, start))
    inputs, outputs = (tuple(moved.get(t, t) for t in some) for some in (op.inputs, op.outputs))
    draft.replaced[index] = [replace(op, inputs=inputs, outputs=outputs)]
