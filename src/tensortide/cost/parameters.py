"""Parameters, buffers, inputs and outputs of a step: each tensor counted once, however many names it has."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tensortide.cost.access import size
from tensortide.graph.model import Graph, Role, Tensor

__all__ = ["ModelSizes", "model_sizes"]


class ModelSizes(msgspec.Struct, frozen=True):
    """Elements and bytes of parameters, buffers and optimizer state; bytes of the step's inputs and outputs.

    Tied weights count once. ``trainable`` parameters are those that take gradients.
    """

    parameters: int = 0
    trainable: int = 0
    parameter_bytes: int = 0
    trainable_bytes: int = 0
    buffers: int = 0
    buffer_bytes: int = 0
    optimizer_state_bytes: int = 0
    gradient_bytes: int = 0
    input_bytes: int = 0
    output_bytes: int = 0

    @property
    def io_bytes(self) -> int:
        """Inputs and outputs together."""
        return self.input_bytes + self.output_bytes


def model_sizes(graph: Graph) -> ModelSizes:
    """Sum up the named tensors of ``graph``."""
    parameters = _named(graph, Role.PARAMETER)
    trained = {n.tensor for n in graph.named if n.role is Role.PARAMETER and n.trainable}
    trainable = [tensor for index, tensor in parameters.items() if index in trained]
    buffers = {i: t for i, t in _named(graph, Role.BUFFER).items() if i not in parameters}
    read = {storage for storages in graph.index.reads for storage in storages}
    inputs = [tensor for tensor in _named(graph, Role.INPUT).values() if tensor.storage in read]
    inputs = [tensor for tensor in inputs if graph.storages[tensor.storage].role is Role.INPUT]
    covered = {tensor.storage for tensor in inputs}
    unnamed = (
        storage.nbytes
        for i, storage in enumerate(graph.storages)
        if storage.role is Role.INPUT and i in read and i not in covered
    )
    return ModelSizes(
        _elements(parameters.values()),
        _elements(trainable),
        _bytes(parameters.values()),
        _bytes(trainable),
        _elements(buffers.values()),
        _bytes(buffers.values()),
        _bytes(_named(graph, Role.OPTIMIZER_STATE).values()),
        _bytes(_named(graph, Role.GRADIENT).values()),
        size(inputs) + sum(unnamed),
        size(_named(graph, Role.OUTPUT).values()),
    )


def _named(graph: Graph, role: Role) -> dict[int, Tensor]:
    """The distinct tensors that have a name in ``role``."""
    return {entry.tensor: graph.tensors[entry.tensor] for entry in graph.named if entry.role is role}


def _elements(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel for tensor in tensors)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel * tensor.itemsize for tensor in tensors)
