"""A graph whose sizes are numbers alone, without the expressions that they may carry."""

from __future__ import annotations

import msgspec

from tensortide.graph.model import Graph, Loop, Storage, Tensor


def plain(graph: Graph) -> Graph:
    """Return ``graph`` with numbers for sizes: what plays, plans or prints a step has no use for expressions, and with
    them its arithmetic takes many times longer."""
    return msgspec.structs.replace(
        graph,
        tensors=tuple(map(_tensor, graph.tensors)),
        storages=tuple(map(_storage, graph.storages)),
        loops=tuple(map(_loop, graph.loops)),
    )


def _tensor(tensor: Tensor) -> Tensor:
    shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.strides))
    return Tensor(tensor.storage, tensor.dtype, shape, strides, int(tensor.offset))


def _storage(storage: Storage) -> Storage:
    return msgspec.structs.replace(storage, nbytes=int(storage.nbytes))


def _loop(loop: Loop) -> Loop:
    return msgspec.structs.replace(loop, trips=int(loop.trips))
