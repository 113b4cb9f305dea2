"""A training step of an inference Graph: forward, backward and the optimizer's step."""

from __future__ import annotations

import math

import msgspec

from tensortide.errors import WorkloadError
from tensortide.graph.builder import GraphBuilder
from tensortide.graph.handles import Handle, Out
from tensortide.graph.model import Graph, Named, Phase, Role
from tensortide.importers.onnx.rules.derived import OPTIMIZERS
from tensortide.importers.onnx.training.replay import FLOATS, Replay, needing
from tensortide.importers.onnx.training.reverse import Reverse


def trained(graph: Graph, optimizer: str) -> Graph:
    """Return the training step derived from an inference graph.

    The loss is its scalar output if it has one, else the sum of its outputs. Raises WorkloadError for an unknown
    optimizer, or a graph without parameters that its outputs depend on.
    """
    if optimizer not in OPTIMIZERS:
        raise WorkloadError(f"no optimizer {optimizer!r}; derived training steps know {', '.join(OPTIMIZERS)}")
    needs = needing(graph)
    losses, said = _losses(graph, needs)
    if not losses:
        raise WorkloadError(f"{graph.meta.workload} has no parameters that its outputs depend on: nothing to train")
    engine = _backward(Replay(graph, needs), losses)
    if engine.read:  # in loops: again, and every iteration's is kept
        engine = _backward(Replay(graph, needs, engine.read), losses)
    replay = engine.replay
    gradients = {name: engine.gradients[i] for i, name in _trainable(graph).items() if i in engine.gradients}
    handles = {name: replay.handles[i] for i, name in _trainable(graph).items()}
    with replay.builder.phase(Phase.OPTIMIZER):
        for name, gradient in gradients.items():
            _step(replay.builder, optimizer, name, handles[name], gradient)
    replay.builder.output(*(replay.handles[i] for i in losses))
    notes = [f"the training step is derived from an inference model: {said}, {optimizer}, no gradients of inputs"]
    notes += [f"no rule knows the gradient of {name}" for name in engine.unknown]
    if any(call.op == "onnx.BatchNormalization" for call in graph.calls):
        notes.append("batch normalization takes the statistics of the batch")
    return _marked(replay, gradients, notes)


def _backward(replay: Replay, losses: list[int]) -> Reverse:
    """Return the walk back from the ``losses``, after the forward pass."""
    replay.run()
    engine = Reverse(replay)
    with replay.builder.phase(Phase.BACKWARD):
        for tensor in losses:
            handle = replay.handles[tensor]
            (engine.gradients[tensor],) = engine.emit("OnesGradient", (), (Out(handle.shape, handle.dtype),), (), {})
        engine.run()
    return engine


def _trainable(graph: Graph) -> dict[int, str]:
    """Return the names of trainable parameters by tensor; a tied weight has its first."""
    found: dict[int, str] = {}
    for entry in graph.named:
        if entry.role is Role.PARAMETER and entry.trainable:
            found.setdefault(entry.tensor, entry.name)
    return found


def _losses(graph: Graph, needs: frozenset[int]) -> tuple[list[int], str]:
    """Return the outputs that gradients begin at, and what that assumes."""
    last: dict[int, int] = {}
    for op in graph.ops:
        for i in op.outputs:
            if graph.storages[graph.tensors[i].storage].role is Role.OUTPUT:
                last[graph.tensors[i].storage] = i
    outputs = [i for i in last.values() if i in needs and graph.tensors[i].dtype in FLOATS]
    scalars = [i for i in outputs if math.prod(graph.tensors[i].shape) == 1]
    if scalars:
        return scalars[:1], "its loss is the scalar output"
    return outputs, "its loss is the sum of the outputs"


def _step(builder: GraphBuilder, optimizer: str, name: str, parameter: Handle, gradient: Handle) -> None:
    """Append the step of one parameter; its state exists before."""
    step = OPTIMIZERS[optimizer]
    state = []
    for part in step.state:
        shape = parameter.shape
        if step.factored and len(shape) > 1:
            shape = shape[:-1] if part == "row" else (*shape[:-2], shape[-1])
        elif step.factored and part == "column":
            continue
        state.append(builder.value(f"{name}.{part}", shape, parameter.dtype, role=Role.OPTIMIZER_STATE))
    builder.ops(
        f"derived.{optimizer}_step", parameter, gradient, *state, mutates=(parameter, *state),
        names=("parameter", "gradient", *(f"state{i}" for i in range(len(state)))), label=f"{name}/step",
    )  # fmt: skip


def _marked(replay: Replay, gradients: dict[str, Handle], notes: list[str]) -> Graph:
    """Return the step with inputs, outputs and gradients named, and what was assumed."""
    made, source = replay.builder.build(), replay.graph
    storages, named = list(made.storages), list(made.named)
    named += [
        msgspec.structs.replace(entry, tensor=replay.handles[entry.tensor].index)
        for entry in source.named
        if entry.role in (Role.INPUT, Role.OUTPUT)
    ]
    for name, handle in gradients.items():
        index = made.tensors[handle.index].storage
        if storages[index].role in (Role.TEMPORARY, Role.ACTIVATION):
            storages[index] = msgspec.structs.replace(storages[index], role=Role.GRADIENT, name=f"{name}.grad")
            named.append(Named(f"{name}.grad", Role.GRADIENT, handle.index))
    meta = msgspec.structs.replace(source.meta, assumptions=(*source.meta.assumptions, *notes))
    return msgspec.structs.replace(made, storages=tuple(storages), named=tuple(named), meta=meta)
