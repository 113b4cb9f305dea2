"""Keras models on JAX: their stateless calls, handed to the importer of JAX functions."""

from __future__ import annotations

from typing import Any

from tensortide.errors import NotHere
from tensortide.importers.imported import Imported
from tensortide.importers.keras.live import mapped, trained_with
from tensortide.importers.table import importers


def import_model(model: Any, inputs: Any, targets: Any, sizes: dict[str, int]) -> Imported:
    """Convert the inference of ``model``, or with ``targets`` its training step."""
    x = mapped(inputs, lambda spec: _shaped(spec.sized(sizes), spec.dtype))
    trained, other = (_listed(group) for group in (model.trainable_variables, model.non_trainable_variables))
    if targets is None:
        return _converted(lambda a, b, data: model.stateless_call(a, b, data, training=False)[0], (trained, other, x))
    y = mapped(targets, lambda spec: _shaped(spec.sized(sizes), spec.dtype))
    own, model.optimizer = model.optimizer, trained_with(model)
    try:
        model.optimizer.build(model.trainable_variables)
        state = (trained, other, _listed(model.optimizer.variables), _listed(model.metrics_variables))
        return _converted(lambda state, x, y: model.train_step(state, (x, y)), (state, x, y))
    finally:
        model.optimizer = own


def gradients(model: Any, inputs: Any, sizes: dict[str, int]) -> Imported:
    """Convert a forward pass in training mode and the gradients of the sum of its outputs."""
    import jax

    x = mapped(inputs, lambda spec: _shaped(spec.sized(sizes), spec.dtype))
    trained, other = (_listed(group) for group in (model.trainable_variables, model.non_trainable_variables))

    def total(a: Any, b: Any, data: Any) -> Any:
        outputs, _ = model.stateless_call(a, b, data, training=True)
        return sum(y.sum() for y in jax.tree.leaves(outputs))

    return _converted(jax.value_and_grad(total), (trained, other, x))


def _shaped(shape: tuple[int, ...], dtype: str) -> Any:
    import jax

    return jax.ShapeDtypeStruct(shape, dtype)


def _listed(variables: Any) -> list[Any]:
    return [_shaped(tuple(variable.shape), str(variable.dtype)) for variable in variables]


def _converted(function: Any, arguments: tuple[Any, ...]) -> Imported:
    found = next((importer for importer in importers() if importer.name == "jax" and importer.convert), None)
    if found is None or found.convert is None:
        raise NotHere("a Keras model on JAX is read by the importer of JAX functions, which is not here")
    return found.convert((function, arguments), found.options())
