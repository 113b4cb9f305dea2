"""Live Keras models: traced or captured by the framework that they run on."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from tensortide.errors import WorkloadError
from tensortide.importers.imported import Imported
from tensortide.importers.symbols import BATCH, LENGTH

READERS = ("tensorflow", "torch", "jax")
"""Frameworks that Keras runs on, each with a module ``on_NAME``."""


class Spec(NamedTuple):
    """A tensor that a model is called with: its shape, None for open sizes, and its dtype."""

    shape: tuple[int | None, ...]
    dtype: str

    def sized(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape with numbers for what is open."""
        return tuple(n if n is not None else size_of(sizes, axis) for axis, n in enumerate(self.shape))


def size_of(sizes: Mapping[str, int], axis: int) -> int:
    """Return the value of an open size by its axis: ``batch``, ``length``, an example for the others."""
    name = ("batch", "length")[axis] if axis < 2 else f"dim_{axis}"
    return sizes.get(name, BATCH if axis == 0 else LENGTH)


def import_live(
    model: Any,
    *,
    inputs: Any = None,
    targets: Any = None,
    training: bool = False,
    settings: Mapping[str, int] | None = None,
) -> Imported:
    """Convert the inference of a live model, or with ``training`` one step of its ``train_step``.

    ``inputs`` and ``targets`` are arrays, tensors, or shapes of such, nested as the model takes them; by default what
    the model was built for. Raises WorkloadError where they are needed and not given, and for a model that cannot be
    called with them.
    """
    given = specs_of(model, inputs)
    if training and getattr(model, "optimizer", None) is None:
        raise WorkloadError(f"the model {model.name!r} trains with a loss and an optimizer: call its compile() first")
    wanted = _targets(model, given, targets) if training else None
    return _traced(model, given, lambda reader: reader.import_model(model, given, wanted, dict(settings or {})))


def import_gradients(model: Any, *, inputs: Any = None) -> Imported:
    """Convert a forward pass of a live model in training mode, and the gradients of the sum of its outputs."""
    given = specs_of(model, inputs)
    return _traced(model, given, lambda reader: reader.gradients(model, given, {}))


def _traced(model: Any, given: Any, read: Callable[[ModuleType], Imported]) -> Imported:
    """Read a model with the module for the framework that Keras runs on."""
    import keras

    backend = keras.backend.backend()
    if backend not in READERS:
        raise WorkloadError(f"Keras runs on {backend}: models are read on {', '.join(READERS)}")
    try:
        return read(importlib.import_module(f"tensortide.importers.keras.on_{backend}"))
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise WorkloadError(f"the model {model.name!r} cannot be traced with {given}: {line}") from error


def specs_of(model: Any, inputs: Any) -> Any:
    """Return what a model is called with as Specs, nested as the model takes it."""
    if inputs is None:
        inputs = getattr(model, "inputs", None)
        if not isinstance(inputs, list) or not inputs:
            raise WorkloadError(f"the model {model.name!r} does not say what it takes: give inputs=, arrays or shapes")
        inputs = inputs[0] if len(inputs) == 1 else inputs
    return _nested(inputs)


def _nested(value: Any) -> Any:
    if isinstance(value, Spec):
        return value
    if isinstance(value, Mapping):
        return {key: _nested(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and all(isinstance(n, int | None) for n in value):
        return Spec(tuple(value), "float32")
    if isinstance(value, Sequence):
        return tuple(map(_nested, value)) if isinstance(value, tuple) else [*map(_nested, value)]
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        raise WorkloadError(f"a model is called with arrays or shapes, not a {type(value).__name__}")
    name = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
    return Spec(tuple(None if n is None else int(n) for n in shape), name)


def mapped(specs: Any, function: Callable[[Spec], Any]) -> Any:
    """Apply a function to every Spec."""
    if isinstance(specs, Spec):
        return function(specs)
    if isinstance(specs, Mapping):
        return {key: mapped(inner, function) for key, inner in specs.items()}
    made = (mapped(inner, function) for inner in specs)
    return tuple(made) if isinstance(specs, tuple) else [*made]


def leaves(specs: Any) -> list[Spec]:
    """Return all Specs in order."""
    found: list[Spec] = []
    mapped(specs, found.append)
    return found


def _targets(model: Any, given: Any, targets: Any) -> Any:
    """Return what the model is to answer: by default tensors like its outputs, or classes if its loss takes these."""
    if targets is not None:
        return _nested(targets)
    outputs = getattr(model, "outputs", None)
    if not outputs:
        raise WorkloadError(f"the model {model.name!r} does not say what it returns: give targets=, arrays or shapes")
    found = [_nested(output) for output in outputs]
    loss = getattr(model, "loss", None)
    name = loss if isinstance(loss, str) else type(loss).__name__
    if name.lower().replace("_", "") == "sparsecategoricalcrossentropy":
        found = [Spec(spec.shape[:-1], "int32") for spec in found]
    return found[0] if len(found) == 1 else found


def trained_with(model: Any) -> Any:
    """Return an optimizer like that of a model: a step that is traced makes state, which the user's is spared."""
    own = model.optimizer
    return type(own).from_config(own.get_config())
