"""Partial results: where the ranks' parts must be combined before an op that needs the whole reads them.

A partial result stays partial through views, copies, sums with other partial results and products with a number; the
first other op to read it makes it whole by an all-reduce in place. So the three partial gradients of a fan-out are
summed on each rank and reduced once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tensortide.graph.model import Op, Tensor
from tensortide.parallelism.draft import Draft, Hole
from tensortide.parallelism.sites import base_name

_LINEAR = {"clone", "_to_copy", "copy", "neg", "mul", "div", "detach", "alias"}
_NORMS = {"stack", "cat", "linalg_vector_norm", "norm", "clone", "_to_copy"}


def passed_on(name: str, inputs: Sequence[int], waiting: Collection[int], hows: Collection[str], view: bool) -> bool:
    """Tell whether the outputs of an op are partial as its inputs are, so that it may read them as they are.

    Args:
        name: the op, without namespace and overload.
        inputs: the storages that it reads, one for each of its tensors; those of them ``waiting`` are partial.
        hows: how their parts are combined.
        view: it makes views of them.
    """
    if len(set(hows)) > 1:
        return False
    if view:
        return True
    everything = all(storage in waiting for storage in inputs)
    if "norm" in hows:
        return name in _NORMS or (name == "_foreach_mul" and everything)  # a number times each
    if not {"sum", "avg"}.issuperset(hows):
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
        tensors, call = self.draft.tensors, self.draft.calls[op.call]
        name, inputs = base_name(call.op), [tensors[t].storage for t in op.inputs]
        waiting = set(inputs) & self.pending.keys()
        hows = {self.pending[storage][0] for storage in waiting}
        view = not call.mutated and bool(op.outputs) and all(tensors[t].storage in inputs for t in op.outputs)
        if waiting and passed_on(name, inputs, waiting, hows, view):
            if "norm" in hows and len(waiting) < len(set(inputs)):
                self._share_norms(index, op, waiting)
            for tensor in op.outputs or [op.inputs[slot] for slot in call.mutated]:
                self.pending.setdefault(tensors[tensor].storage, (min(hows), tensor))
        elif waiting:
            self.complete(index, waiting, op)
        for tensor, how in made.items():
            self.pending.setdefault(tensors[tensor].storage, (how, tensor))

    def complete(self, index: int, storages: set[int], like: Op) -> None:
        """Insert an all-reduce of each of ``storages`` before the op at ``index``."""
        for storage in sorted(storages):
            how, tensor = self.pending.pop(storage)
            self.draft.insert(index, *all_reduce(self.draft, tensor, how, self.group, like))

    def _share_norms(self, index: int, op: Op, waiting: set[int]) -> None:
        """Divide norms that every rank has by the root of the number of ranks, so that all ranks' squares add up to
        that of each."""
        tensors = self.draft.tensors
        equal = [tensor for tensor in op.inputs if tensors[tensor].storage not in waiting]
        arguments: dict[str, object] = {"self": tuple(map(Hole, equal)), "scalar": self.ranks**-0.5}
        self.draft.insert(index, self.draft.op("aten._foreach_mul_.Scalar", arguments, like=op, mutated=["self"]))
        self.pending.update({tensors[tensor].storage: ("norm", tensor) for tensor in equal})


def all_reduce(draft: Draft, tensor: int, how: str, group: str, like: Op) -> list[Op]:
    """The ops that combine ``tensor`` over the ranks of ``group``, in place."""
    whole = covering(draft, tensor)
    reduction, others = "sum" if how == "norm" else how, {"sparse_indices": None, "async_op": False}
    reduced = draft.collective("allreduce_", {"tensors": (Hole(whole),)}, group, reduction, like=like, **others)
    if how != "norm":
        return [reduced]
    square = draft.op("aten.pow_.Scalar", {"self": Hole(whole), "exponent": 2}, [whole], like=like, mutated=["self"])
    root = draft.op("aten.sqrt_.default", {"self": Hole(whole)}, [whole], like=like, mutated=["self"])
    return [square, reduced, root]


def covering(draft: Draft, tensor: int) -> int:
    """A dense tensor of all that ``tensor`` reads: itself, or without the dimensions that repeat memory."""
    view = draft.tensors[tensor]
    if all(stride or size == 1 for size, stride in zip(view.shape, view.strides, strict=True)):
        return tensor
    kept = [(size, stride) for size, stride in zip(view.shape, view.strides, strict=True) if stride]
    shape, strides = tuple(size for size, _ in kept), tuple(stride for _, stride in kept)
    return draft.tensor(Tensor(view.storage, view.dtype, shape, strides, view.offset))
