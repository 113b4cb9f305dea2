"""Parameters, buffers, inputs and outputs of a step: each tensor counted once, however many names it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec

from tensortide.cost.access import size
from tensortide.cost.evaluate import rule_for
from tensortide.cost.experts import idle_shares
from tensortide.cost.opcall import qualified
from tensortide.cost.registry import Rule
from tensortide.graph.calls import LAYER
from tensortide.graph.model import Graph, Role, Tensor
from tensortide.shown import Show


class ModelSizes(msgspec.Struct, frozen=True):
    """Elements and bytes of parameters, buffers and optimizer state; bytes of the step's inputs and outputs.

    Tied weights count once. ``trainable`` parameters are those that take gradients. The cache is what an inference
    step leaves to the next: keys, values, states. With ``unknown_layers``, whose weights nobody tells, numbers of
    parameters and buffers are lower bounds. A token does not use ``idle_parameters``, those of experts that its router
    does not choose.
    """

    parameters: Annotated[int, Show("Parameters", "amount")] = 0
    trainable: int = 0
    parameter_bytes: int = 0
    trainable_bytes: int = 0
    buffers: int = 0
    buffer_bytes: int = 0
    optimizer_state_bytes: int = 0
    gradient_bytes: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    cache_bytes: Annotated[int, Show("Cache")] = 0
    unknown_layers: int = 0
    idle_parameters: int = 0

    @property
    def active_parameters(self) -> int:
        """Parameters that a token uses."""
        return self.parameters - self.idle_parameters

    @property
    def sign(self) -> str:
        """The mark before numbers of parameters: ``>= `` where layers are unknown."""
        return ">= " if self.unknown_layers else ""

    @property
    def io_bytes(self) -> int:
        """Inputs and outputs together."""
        return self.input_bytes + self.output_bytes


def model_sizes(graph: Graph) -> ModelSizes:
    """Sum up the named tensors of ``graph``."""
    named: dict[Role, dict[int, Tensor]] = {role: {} for role in Role}
    for entry in graph.named:
        named[entry.role][entry.tensor] = graph.tensors[entry.tensor]
    parameters = named[Role.PARAMETER]
    bits = _packed(graph)
    trained = {entry.tensor for entry in graph.named if entry.role is Role.PARAMETER and entry.trainable}
    trainable = [tensor for index, tensor in parameters.items() if index in trained]
    buffers = [tensor for index, tensor in named[Role.BUFFER].items() if index not in parameters]
    fed = {storage for storages in graph.index.reads for storage in storages}
    fed = {storage for storage in fed if graph.storages[storage].role is Role.INPUT}
    inputs = [tensor for tensor in named[Role.INPUT].values() if tensor.storage in fed]
    unnamed = fed - {tensor.storage for tensor in inputs}
    return ModelSizes(
        _elements(parameters.values(), bits),
        _elements(trainable, bits),
        _bytes(parameters.values()),
        _bytes(trainable),
        _elements(buffers),
        _bytes(buffers),
        _bytes(named[Role.OPTIMIZER_STATE].values()),
        _bytes(named[Role.GRADIENT].values()),
        size(inputs) + sum(graph.storages[storage].nbytes for storage in sorted(unnamed)),
        size(named[Role.OUTPUT].values()),
        _bytes({entry.name: graph.tensors[entry.tensor] for entry in graph.named if entry.role is Role.CACHE}.values()),
        sum(LAYER in graph.calls[op.call].tags for op in graph.ops),
        sum(_elements([graph.tensors[one]], bits) * idle // of for one, (idle, of) in idle_shares(graph).items()),
    )


def _packed(graph: Graph) -> dict[int, int]:
    """The bits of an element in storages that an op reads as packed weights, by its rule."""
    found: dict[int, int] = {}
    packing = {i: rule.packs.split() for i, call in enumerate(graph.calls) if (rule := _rule(call.op)) and rule.packs}
    for view in (op for op in graph if op.op.call in packing):
        name, bits = packing[view.op.call]
        given = view.arguments
        weight, size = given.get(name), given.get(bits, bits)
        if isinstance(weight, Tensor) and isinstance(size, int | str):
            found[weight.storage] = int(size)
    return found


def _rule(op: str) -> Rule | None:
    return rule_for(qualified(op))


def _elements(tensors: Iterable[Tensor], bits: Mapping[int, int] = MappingProxyType({})) -> int:
    """Sum up elements, of a storage with ``bits`` for each those that are packed in its bytes."""
    return sum(
        8 * tensor.nbytes // bits[tensor.storage] if tensor.storage in bits else tensor.numel for tensor in tensors
    )


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
