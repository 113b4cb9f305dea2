"""Partial results: where the ranks' parts must be combined before an op that needs the whole reads them.

A partial result stays partial through views, copies, sums with other partial results and products with a number; the
first other op to read it makes it whole by an all-reduce in place. So the three partial gradients of a fan-out are
summed on each rank and reduced once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tensortide.graph.model import Call, Op, Role, Tensor
from tensortide.parallelism.draft import Draft, Hole
from tensortide.parallelism.sites import base_name

_LINEAR = {"clone", "_to_copy", "copy", "neg", "mul", "div", "detach", "alias"}
_NORMS = {"stack", "cat", "linalg_vector_norm", "norm", "clone", "_to_copy"}


def is_view(call: Call, op: Op, owner: Callable[[int], int]) -> bool:
    """Tell whether all that an op returns are views of what it reads. ``owner`` gives the storage of a tensor."""
    return not call.mutated and bool(op.outputs) and {*map(owner, op.outputs)} <= {*map(owner, op.inputs)}


def carried(
    call: Call,
    op: Op,
    owner: Callable[[int], int],
    pending: Collection[int],
    how: Callable[[int], str] = lambda storage: "sum",
) -> tuple[set[int], list[int]]:
    """The ``pending`` storages that an op reads, which are partial (``how``, by storage), and the tensors that stay
    partial through it: none if it needs the whole. ``owner`` gives the storage of a tensor."""
    inputs = [owner(tensor) for tensor in op.inputs]
    waiting = {storage for storage in inputs if storage in pending}
    if not waiting:
        return waiting, []
    hows = {how(storage) for storage in waiting}
    if len(hows) > 1 or not (is_view(call, op, owner) or _passes(base_name(call.op), inputs, waiting, min(hows))):
        return waiting, []
    return waiting, list(op.outputs) or [op.inputs[slot] for slot in call.mutated]


def _passes(name: str, inputs: Sequence[int], waiting: Collection[int], how: str) -> bool:
    """Return whether the results of an op that makes no views are partial as the inputs ``waiting`` are."""
    everything = all(storage in waiting for storage in inputs)
    if how == "norm":
        return name in _NORMS or (name == "_foreach_mul" and everything)  # a number times each
    if how not in ("sum", "avg"):
        return False
    if name == "add":
        return everything and len(inputs) == 2
    return name in _LINEAR and ((everything and len(inputs) == 1) or (name == "copy" and inputs[-1] in waiting))


@dataclass(slots=True)
class Partials:
    """Walks a draft: ``pending`` are storages whose contents are partial, each with how its parts are combined and a
    tensor that covers it."""

    draft: Draft
    group: str
    ranks: int
    pending: dict[int, tuple[str, int]] = field(default_factory=dict)

    def read(self, index: int, op: Op, made: Mapping[int, str]) -> None:
        """Meet the op at ``index``, which makes partial outputs ``made`` (how, by tensor) itself.

        Inserts all-reduces before it where it cannot read partial results.
        """
        call = self.draft.calls[op.call]
        waiting, passed = carried(call, op, self._owner, self.pending, self._how)
        if passed:
            shared = self._how(min(waiting))
            if shared == "norm" and len(waiting) < len(set(map(self._owner, op.inputs))):
                self._share_norms(index, op, waiting)
            for tensor in passed:
                self.pending.setdefault(self._owner(tensor), (shared, tensor))
        elif waiting:
            self.complete(index, waiting, op)
        for tensor, how in made.items():
            self.pending.setdefault(self._owner(tensor), (how, tensor))

    def _owner(self, tensor: int) -> int:
        return self.draft.tensors[tensor].storage

    def _how(self, storage: int) -> str:
        return self.pending[storage][0]

    def complete(self, index: int, storages: set[int], like: Op) -> None:
        """Insert an all-reduce of each of ``storages`` before the op at ``index``."""
        for storage in sorted(storages):
            how, tensor = self.pending.pop(storage)
            self.draft.insert(index, *all_reduce(self.draft, tensor, how, self.group, like))

    def end(self) -> None:
        """Complete what outlives the step."""
        storages, ops = self.draft.storages, self.draft.graph.ops
        named = [storage for storage in self.pending if storages[storage].role is not Role.TEMPORARY]
        if ops:
            self.complete(len(ops), {storage for storage in named if storages[storage].death is None}, ops[-1])

    def _share_norms(self, index: int, op: Op, waiting: set[int]) -> None:
        """Divide norms that every rank has by the root of the number of ranks, so that all ranks' squares add up to
        that of each."""
        tensors = self.draft.tensors
        equal = [tensor for tensor in op.inputs if tensors[tensor].storage not in waiting]
        arguments: dict[str, object] = {"self": tuple(map(Hole, equal)), "scalar": self.ranks**-0.5}
        self.draft.insert(index, self.draft.op("aten._foreach_mul_.Scalar", arguments, like=op))
        self.pending.update({tensors[tensor].storage: ("norm", tensor) for tensor in equal})


def all_reduce(draft: Draft, tensor: int, how: str, group: str, like: Op) -> list[Op]:
    """The ops that combine ``tensor`` over the ranks of ``group``, in place."""
    whole = covering(draft, tensor)
    reduction, others = "sum" if how == "norm" else how, {"sparse_indices": None, "async_op": False}
    reduced = draft.collective("allreduce_", {"tensors": (Hole(whole),)}, group, reduction, like=like, **others)
    if how != "norm":
        return [reduced]
    square = draft.op("aten.pow_.Scalar", {"self": Hole(whole), "exponent": 2}, [whole], like=like)
    root = draft.op("aten.sqrt_.default", {"self": Hole(whole)}, [whole], like=like)
    return [square, reduced, root]


def covering(draft: Draft, tensor: int) -> int:
    """A dense tensor of all that ``tensor`` reads: itself, or without the dimensions that repeat memory."""
    view = draft.tensors[tensor]
    if all(stride or size == 1 for size, stride in zip(view.shape, view.strides, strict=True)):
        return tensor
    kept = [(size, stride) for size, stride in zip(view.shape, view.strides, strict=True) if stride]
    shape, strides = tuple(size for size, _ in kept), tuple(stride for _, stride in kept)
    return draft.tensor(Tensor(view.storage, view.dtype, shape, strides, view.offset))
