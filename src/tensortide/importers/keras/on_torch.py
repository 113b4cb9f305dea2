"""Keras models on PyTorch: captured as any step, modules and parameters under the names of Keras."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tensortide.graph.model import Graph, Module, Named, Op, Phase, Role
from tensortide.importers.imported import Imported
from tensortide.importers.keras.live import leaves, mapped, trained_with
from tensortide.importers.keras.modules import by_layer, path_of

_PART = re.compile(r"\[(?P<index>[^\]]*)\]|\.?(?P<name>[^.\[]+)")


def import_model(model: Any, inputs: Any, targets: Any, sizes: dict[str, int]) -> Imported:
    """Capture the inference of ``model``, or with ``targets`` its training step, on fake tensors."""
    import torch

    x = mapped(inputs, lambda spec: _zeros(spec.sized(sizes), spec.dtype))
    if targets is None:

        def step() -> Any:
            with torch.no_grad():
                return model(x, training=False)

        return captured(model, step, _sizes(inputs, sizes))
    y = mapped(targets, lambda spec: _zeros(spec.sized(sizes), spec.dtype))
    own, model.optimizer = model.optimizer, trained_with(model)
    try:
        return captured(model, lambda: model.train_step((x, y)), _sizes(inputs, sizes))
    finally:
        model.optimizer = own


def gradients(model: Any, inputs: Any, sizes: dict[str, int]) -> Imported:
    """Capture a forward pass in training mode and the backward of the sum of its outputs."""
    x = mapped(inputs, lambda spec: _zeros(spec.sized(sizes), spec.dtype))

    def step() -> Any:
        import torch

        out = model(x, training=True)
        tensors = [out] if isinstance(out, torch.Tensor) else [*(out.values() if isinstance(out, dict) else out)]
        total = sum(tensor.sum() for tensor in tensors if tensor.is_floating_point())
        total.backward()  # type: ignore[union-attr]
        model.zero_grad()
        return total

    return captured(model, step, _sizes(inputs, sizes))


def captured(model: Any, step: Callable[[], Any], sizes: dict[str, int]) -> Imported:
    """Capture a step; modules are the layers that they are, parameters have their paths in Keras."""
    from tensortide.recorder import capture

    graph = capture(step, name=model.name)
    return Imported(_named(graph, model), symbols=sizes)


def _zeros(shape: tuple[int, ...], dtype: str) -> Any:
    import torch

    from tensortide.recorder.torch_dtypes import torch_dtype

    return torch.zeros(shape, dtype=torch_dtype(dtype))


def _sizes(inputs: Any, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the values of what is open in the inputs; sizes of a captured step are numbers."""
    names = {0: "batch", 1: "length"}
    found = {}
    for spec in leaves(inputs):
        for axis, (n, size) in enumerate(zip(spec.shape, spec.sized(sizes), strict=True)):
            if n is None:
                found[names.get(axis, f"dim_{axis}")] = size
    return found


def _named(graph: Graph, model: Any) -> Graph:
    """Return the graph with Keras's names, and its phases: what follows the backward pass is the optimizer's step."""
    paths = {variable.path: variable for variable in model.variables}
    prefix = f"{model.name}/"
    named: dict[int, Named] = {}
    for entry in graph.named:
        path = entry.name.rpartition("_torch_params.")[2]
        if path not in paths:
            named.setdefault(entry.tensor, entry)
            continue
        trained = bool(paths[path].trainable)
        role = Role.PARAMETER if trained or "kernel" in path else Role.BUFFER
        label = path.removeprefix(prefix).replace("/", ".")
        named[entry.tensor] = Named(label, role, entry.tensor, trained)
    roles = {graph.tensors[entry.tensor].storage: entry.role for entry in named.values()}
    storages = tuple(
        msgspec.structs.replace(storage, role=roles[i]) if roles.get(i) is Role.BUFFER else storage
        for i, storage in enumerate(graph.storages)
    )
    meta = msgspec.structs.replace(graph.meta, framework=f"Keras on {graph.meta.framework}")
    found = msgspec.structs.replace(
        graph, named=tuple(named.values()), storages=storages, ops=_phased(graph), meta=meta
    )
    return by_layer(found, lambda module: _module(module, model))


def _phased(graph: Graph) -> tuple[Op, ...]:
    last = max((i for i, op in enumerate(graph.ops) if op.phase is Phase.BACKWARD), default=len(graph.ops))
    return tuple(
        msgspec.structs.replace(op, phase=Phase.OPTIMIZER) if i > last and op.phase is not Phase.OPTIMIZER else op
        for i, op in enumerate(graph.ops)
    )


def _inside(value: Any, key: str) -> Any:
    """Return what a part of a path leads to: an attribute, or an entry of a container; None if nothing."""
    if isinstance(value, Mapping):
        return value.get(key.strip("'\""))
    if isinstance(value, list | tuple):
        return value[int(key)] if key.isdigit() and int(key) < len(value) else None
    return getattr(value, key, None)


def _module(module: Module, model: Any) -> Module | None:
    """Return a module under the name of the layer that it is; the recorder names it by where it found the object."""
    found: Any = model
    layer: Any = model
    for part in list(_PART.finditer(module.path))[1:]:
        found = _inside(found, part["name"] or part["index"])
        if found is None:
            break
        if hasattr(found, "path") and hasattr(found, "compute_output_spec"):
            layer = found
    return None if layer is model else Module(path_of(layer, model), type(layer).__name__)
