"""Keras models on TensorFlow: their concrete functions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from tensortide.graph.model import Role
from tensortide.importers.imported import Imported
from tensortide.importers.keras.live import Spec, mapped, trained_with
from tensortide.importers.keras.modules import by_layer, layers_of, of_scopes
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


_NUMBER = re.compile(r"_\d+$")
_GRADIENTS = re.compile(r"^gradient_tape(?:_\d+)?/")


class Scopes:
    """Scopes of a traced model and the layers they are of. What a layer reads its variables under tells which it is;
    another scope is that of the layer whose name it has, its number left out."""

    def __init__(self, model: Any) -> None:
        self.model = model.name
        self.names = {layer.name for layer in layers_of(model)}
        self.known: dict[tuple[str, ...], str] = {}

    def learn(self, scope: str, variable: str) -> None:
        """Learn from the place where a variable is read, and its path: ``net_1/dense_2/Cast``, ``net/dense/kernel``."""
        places, layers = self._inside(scope.split("/")), self._inside(variable.split("/")[:-1])
        if len(places) <= len(layers) or any(not _is_of(a, b) for a, b in zip(places, layers, strict=False)):
            return
        for i, name in enumerate(layers):
            self.known.setdefault(tuple(places[: i + 1]), name)

    def learn_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Learn from several."""
        for scope, variable in pairs:
            self.learn(scope, variable)

    def shorten(self, name: str) -> str:
        """Return the name of a node with the names of layers for scopes, that of the model left out."""
        found = _GRADIENTS.match(name)
        before = found[0] if found else ""
        places = self._inside(name[len(before) :].split("/"))
        parts = [self._part(tuple(places[: i + 1])) for i in range(len(places) - 1)]
        return before + "/".join([*parts, places[-1]])

    def _inside(self, places: list[str]) -> list[str]:
        """Return scopes without that of the model."""
        return places[1:] if len(places) > 1 and _is_of(places[0], self.model) else places

    def _part(self, places: tuple[str, ...]) -> str:
        if places in self.known:
            return self.known[places]
        base = _base(places[-1])
        return base if base in self.names else places[-1]


def _base(name: str) -> str:
    return _NUMBER.sub("", name)


def _is_of(scope: str, name: str) -> bool:
    """Tell whether a scope has a name, or a number after it."""
    return scope == name or _base(scope) == name
