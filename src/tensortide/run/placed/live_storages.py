"""Memory of the storages of a graph in one process: those of the user's tensors, those that ops make, and copies."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from tensortide.errors import RunError
from tensortide.graph.model import Graph, OpView, Role, Tensor
from tensortide.parallelism.shards import Piece
from tensortide.recorder.build_graph import State
from tensortide.recorder.execute import arguments
from tensortide.recorder.isolate import Isolation
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.torch_dtypes import torch_dtype


class LiveStorages:
    """The memory of each storage of ``graph`` that this process has. Tensors are views of it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._memory: dict[int, torch.UntypedStorage] = {}

    def __contains__(self, storage: int) -> bool:
        return storage in self._memory

    def put(self, storage: int, memory: torch.UntypedStorage) -> None:
        """Take ``memory`` as that of ``storage``."""
        self._memory[storage] = memory

    def drop(self, storage: int) -> None:
        """Forget the memory of ``storage``, if there is any."""
        self._memory.pop(storage, None)

    def view(self, number: int) -> torch.Tensor:
        """The tensor of that number, as the graph has it."""
        tensor: Tensor = self.graph.tensors[number]
        sizes = tuple(map(int, tensor.shape)), tuple(map(int, tensor.strides))
        empty = torch.empty(0, dtype=torch_dtype(tensor.dtype))
        return empty.set_(self._memory[tensor.storage], int(tensor.offset), *sizes)

    def bytes_of(self, storage: int, low: int, nbytes: int) -> torch.Tensor:
        """The bytes of ``storage`` from ``low`` on, as a tensor that shares them."""
        return torch.empty(0, dtype=torch.uint8).set_(self._memory[storage], low, (nbytes,), (1,))

    def make(self, storage: int, nbytes: int) -> None:
        """Have new memory of ``nbytes`` for ``storage``."""
        self._memory[storage] = torch.empty(nbytes, dtype=torch.uint8).untyped_storage()

    def run(self, view: OpView, function: Callable[..., Any]) -> None:
        """Execute an op by ``function``, and take the memory of what it makes."""
        numbers = iter(view.op.inputs)
        args, kwargs = arguments(view, lambda _: self.view(next(numbers)))
        result = function(*args, **kwargs)
        if not view.op.outputs:  # a constant that the host reads
            return
        made = [result] if isinstance(result, torch.Tensor) else [t for t in result or () if t is not None]
        for number, tensor in zip(view.op.outputs, made, strict=False):
            storage = self.graph.tensors[number].storage
            if storage not in self._memory:
                self.put(storage, tensor.untyped_storage())


def _known(step: Callable[[], Any]) -> defaultdict[tuple[str, Role], deque[torch.Tensor]]:
    """The tensors that ``step`` reaches, by name and role."""
    reached = Isolation(lambda tensor: tensor)
    reached.visit(step)
    known: defaultdict[tuple[str, Role], deque[torch.Tensor]] = defaultdict(deque)
    for name, tensor, role in State(Recorder(), reached).walk():
        known[name, role].append(tensor)
    return known


def given_pieces(
    graph: Graph, step: Callable[[], Any], pieces: Mapping[tuple[str, Role], Piece]
) -> dict[int, torch.Tensor]:
    """The ``pieces`` of tensors of ``step`` that are storages of ``graph``: views of the tensors' memory."""
    known, found = _known(step), dict[int, torch.Tensor]()
    for number, storage in enumerate(graph.storages):
        piece = pieces.get((storage.name, storage.role))
        there = known[piece.name, storage.role] if piece is not None and storage.birth is None else ()
        if piece is not None and there:
            shape, strides = (piece.outer, piece.size, piece.inner), (piece.size * piece.inner, piece.inner, 1)
            whole = torch.empty(0, dtype=torch_dtype(piece.dtype)).set_(there[0].untyped_storage(), 0, shape, strides)
            found[number] = whole[:, piece.start : piece.end]
    return found


def part_of(graph: Graph, storage: int, tensor: torch.Tensor, index: int) -> torch.Tensor:
    """Part number ``index`` of ``tensor``, an input, along the dimension in which ``storage`` of ``graph`` is smaller,
    in the layout of the graph; ``tensor`` itself if it is whole there."""
    views = (view for view in graph.tensors if view.storage == storage)
    view = max(views, key=lambda each: (each.numel, len(each.shape) == tensor.dim()))
    shape = tuple(map(int, view.shape))
    if shape == tuple(tensor.shape):
        return tensor
    along = next(d for d, (own, whole) in enumerate(zip(shape, tensor.shape, strict=True)) if own != whole)
    made = torch.empty_strided(shape, tuple(map(int, view.strides)), dtype=tensor.dtype)
    made.copy_(tensor.narrow(along, index * shape[along], shape[along]))
    return made


def given_tensors(graph: Graph, step: Callable[[], Any], but: Collection[int] = frozenset()) -> dict[int, torch.Tensor]:
    """The tensors of ``step`` that are the storages of ``graph`` which exist before it and which it uses, ``but`` some.

    They have the same name and role. All micro-batches have the inputs of that name, in turn if there are several.
    Raises RunError for a storage without a tensor.
    """
    known = _known(step)
    found: dict[int, torch.Tensor] = {}
    for number, (storage, users) in enumerate(zip(graph.storages, graph.index.users, strict=True)):
        if storage.birth is not None or not users or number in but:
            continue
        there = known[storage.name, storage.role]
        if not there:
            raise RunError(
                f"the step uses {storage.name or 'a tensor'} ({storage.nbytes:,} bytes, {storage.role.value}), "
                "which is not there outside of it as the capture has it: run one step before, and make data beforehand"
            )
        found[number] = there[0]
        there.rotate(-1)
    return found
