"""Executes the Graphs of several ranks in one process, op by op, with collectives that really combine their tensors.

An oracle for transforms: what the ranks compute together must be what the whole step computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tensortide.graph import Graph, Role
from tensortide.graph.communication import group_of
from tensortide.graph.model import TENSOR, Const, OpView, Tensor
from tensortide.parallelism.analysis import Analysis
from tensortide.recorder.execute import arguments, function

_COMBINED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda parts: parts.sum(0),
    "avg": lambda parts: parts.mean(0),
    "max": lambda parts: parts.amax(0),
    "min": lambda parts: parts.amin(0),
}


def dtype_of(tensor: Tensor) -> torch.dtype:
    found: torch.dtype = getattr(torch, tensor.dtype)
    return found


def given_storages(graph: Graph) -> list[int]:
    """Storages that exist before the step and are read by it, in order."""
    return [number for number, storage in enumerate(graph.storages) if storage.birth is None]


def covering(graph: Graph, storage: int) -> int | None:
    """The largest tensor of a storage."""
    found = [t for t, tensor in enumerate(graph.tensors) if tensor.storage == storage]
    return max(found, key=lambda t: (graph.tensors[t].numel, -t), default=None)


def drawn(graph: Graph, seed: int = 0) -> dict[int, tuple[int, torch.Tensor]]:
    """The largest tensor of every given storage, with random legal values."""
    generator = torch.Generator().manual_seed(seed)
    found: dict[int, tuple[int, torch.Tensor]] = {}
    for storage in given_storages(graph):
        tensor = covering(graph, storage)
        if tensor is None:
            continue
        view = graph.tensors[tensor]
        kind = dtype_of(view)
        if not kind.is_floating_point:
            values = torch.randint(0, 7, view.shape, generator=generator).to(kind)
        elif graph.storages[storage].role is Role.OPTIMIZER_STATE:
            values = torch.rand(view.shape, generator=generator, dtype=kind) + 0.5  # its root is a divisor
        else:
            values = torch.randn(view.shape, generator=generator, dtype=kind) * 0.5
        found[storage] = (tensor, values)
    return found


def shard(
    full: torch.Tensor, analysis: Analysis, tensor: int, chosen: frozenset[int], rank: int, of: int
) -> torch.Tensor:
    """The part of ``full``, the values of a tensor, that a tensor-parallel rank has."""
    shape, places = list[int](), list[int]()
    for axis in analysis.dims[tensor]:
        for leaf in analysis.axes.leaves([axis]):
            if leaf in chosen:
                places.append(len(shape))
            shape.append(analysis.axes.size[leaf])
    part = full.reshape(shape)
    for place in places:
        size = part.shape[place] // of
        part = part.narrow(place, rank * size, size)
    return part.reshape([_local(analysis, axis, chosen, of) for axis in analysis.dims[tensor]])


def _local(analysis: Analysis, axis: int, chosen: frozenset[int], of: int) -> int:
    size = analysis.axes.size[axis]
    return size // of if any(leaf in chosen for leaf in analysis.axes.leaves([axis])) else size


class Rank:
    """One rank's tensors by number."""

    def __init__(self, graph: Graph, given: dict[int, tuple[int, torch.Tensor]]) -> None:
        """``given``: a tensor of each storage that exists before the step, and its values."""
        self.graph = graph
        self.values: dict[int, torch.Tensor] = {}
        self.bases: dict[int, torch.Tensor] = {}
        for storage, (tensor, values) in given.items():
            view = graph.tensors[tensor]
            base = torch.zeros(graph.storages[storage].nbytes // view.itemsize + view.offset, dtype=values.dtype)
            once = [slice(None) if stride else slice(1) for stride in view.strides]  # of dimensions that repeat memory
            base.as_strided(view.shape, view.strides, view.offset)[tuple(once)].copy_(values[tuple(once)])
            self.bases[storage] = base

    def tensor(self, number: int) -> torch.Tensor:
        """The values of a tensor: as an op made it, or a view of a storage that has been there before."""
        if number not in self.values:
            view = self.graph.tensors[number]
            base = self.bases[view.storage]
            self.values[number] = base.as_strided(view.shape, view.strides, view.offset)
        return self.values[number]

    def run(self, index: int) -> None:
        """Execute one op."""
        op = self.graph[index]
        numbers = iter(op.op.inputs)
        args, kwargs = arguments(op, lambda _: self.tensor(next(numbers)))
        if op.name == "aten.lift_fresh.default":
            args = [args[0].clone()]
        made = function(op.call)(*args, **kwargs)
        for number, value in zip(op.op.outputs, flat(made), strict=False):
            workspace = value.dtype == torch.uint8 and value.ndim == 1  # the kernel pads it to whole tiles
            assert workspace or tuple(value.shape) == self.graph.tensors[number].shape, (op, value.shape)
            self.values[number] = value
            elements = value.untyped_storage().nbytes() // value.element_size()
            self.bases[self.graph.tensors[number].storage] = value.as_strided((elements,), (1,), 0)


def flat(made: Any) -> list[torch.Tensor]:
    """The tensors of a result."""
    if isinstance(made, torch.Tensor):
        return [made]
    return [item for each in made for item in flat(each)] if isinstance(made, list | tuple) else []


Mailbox = dict[tuple[int, int, int], torch.Tensor]


class World:
    """Ranks that execute their Graphs side by side. ``groups`` are lists of ranks by name and rank."""

    def __init__(self, ranks: Sequence[Rank], groups: Mapping[str, Sequence[Sequence[int]]] | None = None) -> None:
        self.ranks = ranks
        everybody = [range(len(ranks))]
        self.groups = groups or {"data": everybody, "tensor": everybody, "pipeline": everybody}
        self.at = [0] * len(ranks)
        self.mail: Mailbox = {}

    def run(self) -> None:
        """Execute until all are done. An AssertionError if they wait for each other for ever."""
        while any(at < len(rank.graph) for at, rank in zip(self.at, self.ranks, strict=True)):
            before = list(self.at)
            for number in range(len(self.ranks)):
                self._advance(number)
            assert before != self.at, [
                (number, rank.graph[at])
                for number, (at, rank) in enumerate(zip(self.at, self.ranks, strict=True))
                if at < len(rank.graph)
            ]

    def _op(self, number: int) -> OpView | None:
        rank = self.ranks[number]
        return rank.graph[self.at[number]] if self.at[number] < len(rank.graph) else None

    def _advance(self, number: int) -> None:
        """Run one rank up to a collective that it has to wait for."""
        while (op := self._op(number)) is not None:
            if not op.name.startswith("c10d."):
                self.ranks[number].run(self.at[number])
            elif op.name in ("c10d.send.default", "c10d.recv_.default"):
                if not self._moved(number, op):
                    return
            elif not self._met(number, op):
                return
            else:
                continue
            self.at[number] += 1

    def _peers(self, number: int, op: OpView) -> Sequence[int]:
        return next(group for group in self.groups[group_of(op)] if number in group)

    def _moved(self, number: int, op: OpView) -> bool:
        arguments = dict(op.call.arguments)
        peers, tag = self._peers(number, op), arguments["tag"]
        assert isinstance(tag, int)
        tensor = self.ranks[number].tensor(op.op.inputs[0])
        if op.name == "c10d.send.default":
            self.mail[number, peers[arguments["dst"]], tag] = tensor.clone()  # type: ignore[index]  # a rank
            return True
        key = (peers[arguments["src"]], number, tag)  # type: ignore[index]  # a rank
        if key in self.mail:
            tensor.copy_(self.mail.pop(key))
            return True
        return False

    def _met(self, number: int, op: OpView) -> bool:
        """Do a collective if all of its group have come to it."""
        peers = self._peers(number, op)
        ops = [self._op(peer) for peer in peers]
        if any(other is None or (other.name, group_of(other)) != (op.name, group_of(op)) for other in ops):
            return False
        found = [other for other in ops if other is not None]
        arguments = [
            {name: self._values(peer, other, name) for name in ("tensors", "outputs", "inputs", "output", "input")}
            for peer, other in zip(peers, found, strict=True)
        ]
        how = dict(op.call.arguments).get("reduce_op")
        given = [dict(other.call.arguments) for other in found]
        splits = [(each.get("input_split_sizes"), each.get("output_split_sizes")) for each in given]
        self._collect(op.name, arguments, how.value if isinstance(how, Const) else "", splits)
        for peer in peers:
            self.at[peer] += 1
        return True

    def _values(self, number: int, op: OpView, name: str) -> list[torch.Tensor]:
        start = 0
        for key, value in op.call.arguments:
            slots = value.count(TENSOR) if isinstance(value, tuple) else int(value is TENSOR)
            if key == name:
                return [self.ranks[number].tensor(t) for t in op.op.inputs[start : start + slots]]
            start += slots
        return []

    @staticmethod
    def _collect(
        name: str, arguments: list[dict[str, list[torch.Tensor]]], how: str, splits: Sequence[tuple[Any, Any]] = ()
    ) -> None:
        if name.startswith("c10d.allreduce"):
            for parts in zip(*[each["tensors"] for each in arguments], strict=True):
                whole = _COMBINED[how](torch.stack(parts))
                for part in parts:
                    part.copy_(whole)
            return
        if name.startswith("c10d.alltoall"):
            sent = [
                each["input"][0].split(list(sizes)) if sizes else each["input"][0].chunk(len(arguments))
                for each, (sizes, _) in zip(arguments, splits, strict=True)
            ]
            for rank, (each, (_, sizes)) in enumerate(zip(arguments, splits, strict=True)):
                received = [parts[rank] for parts in sent]
                assert not sizes or [len(part) for part in received] == list(sizes)
                each["output"][0].copy_(torch.cat(received))
            return
        outputs = list(zip(*[each["outputs"] for each in arguments], strict=True))
        inputs = list(zip(*[each["inputs"] for each in arguments], strict=True))
        for outs, ins in zip(outputs, inputs, strict=True):
            if name.startswith("c10d.reduce_scatter"):
                whole = _COMBINED[how](torch.stack([each.reshape(-1) for each in ins]))
                for rank, out in enumerate(outs):
                    out.copy_(whole[rank * out.numel() : (rank + 1) * out.numel()].reshape(out.shape))
            else:
                gathered = torch.cat([each.clone() for each in ins])
                for out in outs:
                    out.copy_(gathered.reshape(out.shape))
