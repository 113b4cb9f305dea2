"""Keras models on TensorFlow: their concrete functions."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from tensortide.graph.model import Role
from tensortide.importers.imported import Imported
from tensortide.importers.keras.live import Spec, mapped, trained_with
from tensortide.importers.keras.modules import by_layer, of_scopes
from tensortide.importers.keras.scopes import Scopes
from tensortide.importers.tf2.live import import_function


def import_model(model: Any, inputs: Any, targets: Any, sizes: dict[str, int]) -> Imported:
    """Trace the inference of ``model``, or with ``targets`` its training step."""
    import tensorflow as tf

    def spec_of(spec: Spec) -> Any:
        return tf.TensorSpec(spec.shape, spec.dtype)

    if targets is None:
        function = tf.function(lambda x: model(x, training=False))
        concrete = function.get_concrete_function(mapped(inputs, spec_of))
    else:
        own, model.optimizer = model.optimizer, trained_with(model)
        try:
            function = tf.function(lambda x, y: model.train_step((x, y)))
            concrete = function.get_concrete_function(mapped(inputs, spec_of), mapped(targets, spec_of))
            state = [variable.value.name for variable in model.optimizer.variables if variable.shape]
            return _with_state(_converted(model, concrete, sizes, True), state)
        finally:
            model.optimizer = own
    return _converted(model, concrete, sizes, False)


def _with_state(step: Imported, names: list[str]) -> Imported:
    """Return the step with the optimizer's variables as its state."""
    state, graph = {name.rpartition(":")[0].replace("/", ".") for name in names}, step.graph
    ours = {graph.tensors[entry.tensor].storage for entry in graph.named if entry.name in state}
    role = Role.OPTIMIZER_STATE
    named = tuple(msgspec.structs.replace(e, role=role) if e.name in state else e for e in graph.named)
    storages = tuple(
        msgspec.structs.replace(storage, role=role) if i in ours else storage
        for i, storage in enumerate(graph.storages)
    )
    return dataclasses.replace(step, graph=msgspec.structs.replace(graph, named=named, storages=storages))


def gradients(model: Any, inputs: Any, sizes: dict[str, int]) -> Imported:
    """Trace a forward pass in training mode and the gradients of the sum of its outputs."""
    import tensorflow as tf

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            total = tf.add_n(
                [tf.reduce_sum(y) for y in tf.nest.flatten(model(x, training=True)) if y.dtype.is_floating]
            )
        return tape.gradient(total, [variable.value for variable in model.trainable_variables])

    given = mapped(inputs, lambda spec: tf.TensorSpec(spec.shape, spec.dtype))
    return _converted(model, tf.function(step).get_concrete_function(given), sizes, True)


def _converted(model: Any, concrete: Any, sizes: dict[str, int], training: bool) -> Imported:
    paths = {id(variable.value.handle): variable.path for variable in model.variables}
    scopes = Scopes(model)
    captures = [(inside.op.name, paths.get(id(outside))) for outside, inside in concrete.graph.captures]
    scopes.learn_all((scope, path) for scope, path in captures if path is not None)
    prefix = f"{model.name}/"
    step = import_function(
        concrete,
        settings=sizes,
        name=model.name,
        label=lambda variable: _label(paths, variable).removeprefix(prefix),
        shorten=scopes.shorten,
        notes=(f"Keras on TensorFlow, {'a training step' if training else 'inference'}",),
    )
    return dataclasses.replace(step, graph=by_layer(step.graph, of_scopes(model)))


def _label(paths: dict[int, str], variable: Any) -> str:
    """Return the path in Keras of a variable of a layer, the name in TensorFlow of any other."""
    return paths.get(id(variable.handle)) or variable.name.rpartition(":")[0]
