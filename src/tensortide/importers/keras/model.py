"""The layers of a description followed in order: a Graph of what one call of the model runs in inference."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from tensortide.collector import no_collection
from tensortide.dtypes import DTYPES
from tensortide.expr import sized, symbol
from tensortide.graph.builder import GraphBuilder
from tensortide.graph.calls import LAYER
from tensortide.graph.handles import Handle, Out
from tensortide.graph.model import Graph, Value
from tensortide.importers.imported import Imported
from tensortide.importers.keras.archive import KerasFileError, read_config
from tensortide.importers.keras.layers import LAYERS, Layer, Weights
from tensortide.importers.keras.layers.layer import Shape
from tensortide.importers.keras.op_shapes import MOST_RESULTS, Operation, dtype_of, shapes_of
from tensortide.importers.shapes import ShapeError, plain
from tensortide.importers.symbols import BATCH, LENGTH, require_symbols

_ORDERED = ("Sequential", "Pipeline")
"""Classes whose layers run one after the other."""
_LONG = 8
"""Longest list of numbers of an operation's description that is kept."""
DEEPEST = 32
"""Models and wrappers in each other, at most."""

MOST_CALLS = 100_000
"""Calls of layers, at most."""

_DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, ShapeError)
"""What a description that contradicts itself leads to."""


class Key(NamedTuple):
    """One result of one call of a layer."""

    layer: str
    node: int
    tensor: int


class Model:
    """The Graph of a description. ``settings`` are values of the open sizes; ``symbols`` those that were used."""

    def __init__(self, file: str, config: Mapping[str, Any], version: str, settings: Mapping[str, int]) -> None:
        self.file, self.config, self.settings = file, config, settings
        self.symbols: dict[str, int] = {}
        self.notes: list[str] = []
        self.guesses: list[str] = []
        self.b = GraphBuilder(framework=f"Keras {version}".rstrip())
        self.weights = Weights(self.b)
        self._left = MOST_CALLS

    def graph(self, name: str) -> Graph:
        """Follow the layers. Raises KerasFileError for a description that contradicts itself."""
        try:
            self.b.output(*self._model(self.config, "", None, True, 0))
        except RecursionError:
            raise KerasFileError(f"{self.file}: models are nested too deeply") from None
        except _DAMAGED as error:
            raise KerasFileError(f"{self.file}: its layers are not described as Keras does: {error!r}") from None
        opened = [f"{key} is open in the file: {value}, an example (--set {key}=...)" for key, value in
                  self.symbols.items() if key not in self.settings]  # fmt: skip
        guesses = tuple(dict.fromkeys(self.guesses))
        notes = (*opened, *dict.fromkeys(self.notes), *guesses, "inference, by the descriptions of the layers",
                 "lifetimes by last use")  # fmt: skip
        self.b.meta = msgspec.structs.replace(self.b.meta, workload=name, assumptions=notes, decisive=guesses)
        return self.b.build()

    def _model(
        self, config: Mapping[str, Any], path: str, given: Sequence[Handle] | None, trainable: bool, depth: int,
        shapes: Mapping[int, tuple[Any, str]] = MappingProxyType({}),
    ) -> list[Handle]:  # fmt: skip
        """Follow the layers of a model with ``given`` inputs; None: those of the whole file. ``shapes`` are those that
        the file states for its results."""
        kind, inner = config.get("class_name"), config.get("config")
        if depth > DEEPEST:
            raise KerasFileError(f"{self.file}: models are nested over {DEEPEST} deep")
        ordered = kind in _ORDERED or (isinstance(inner, Mapping) and inner.get("output_layers"))
        if not isinstance(inner, Mapping) or not isinstance(inner.get("layers"), list) or not ordered:
            what = config.get("registered_name") or kind
            raise KerasFileError(
                f"{self.file}: the model {path or what!r} is code of a class of its own ({what}), and no list of "
                "layers with its outputs: open it live, as tensortide.open(model)"
            )
        trainable = trainable and inner.get("trainable") is not False
        layers = [layer for layer in inner["layers"] if isinstance(layer, Mapping)]
        if kind in _ORDERED:
            return self._sequential(layers, inner, path, given, trainable, depth)
        return self._functional(layers, inner, path, given, trainable, depth, shapes)

    def _sequential(
        self, layers: Sequence[Mapping[str, Any]], inner: Mapping[str, Any], path: str,
        given: Sequence[Handle] | None, trainable: bool, depth: int,
    ) -> list[Handle]:  # fmt: skip
        values = [*given] if given is not None else []
        for i, layer in enumerate(layers):
            if layer.get("class_name") == "InputLayer":
                values = values or [self._input(layer)]
                continue
            if not values:
                shape = inner.get("build_input_shape") or (layer.get("build_config") or {}).get("input_shape")
                values = [self._opened("input", shape, "float32")]
            following = (layers[i + 1].get("build_config") or {}) if i + 1 < len(layers) else {}
            shapes = {0: (following.get("input_shape"), "")}
            values = self._apply(layer, path, values, {}, trainable, depth, shapes)
        return values

    def _functional(
        self, layers: Sequence[Mapping[str, Any]], inner: Mapping[str, Any], path: str,
        given: Sequence[Handle] | None, trainable: bool, depth: int, shapes: Mapping[int, tuple[Any, str]],
    ) -> list[Handle]:  # fmt: skip
        """Run the calls of the layers, each after those whose results it takes."""
        by_name = {_name(layer): layer for layer in layers}
        known: dict[Key, Handle] = {}
        entries = [*_keys(inner.get("input_layers"))]
        for i, key in enumerate(entries):
            if given is not None and i >= len(given):
                raise KerasFileError(f"{self.file}: the model {path!r} takes {len(entries)} inputs, given {len(given)}")
            known[key] = given[i] if given is not None else self._input(by_name.get(key.layer, {}))
        calls = {
            (name, i): node
            for name, layer in by_name.items()
            for i, node in enumerate(layer.get("inbound_nodes") or ())
            if layer.get("class_name") != "InputLayer"
        }  # fmt: skip
        outputs = [*_keys(inner.get("output_layers"))]
        recorded = {key: shapes[i] for i, key in enumerate(outputs) if i in shapes}
        recorded |= {key: about for node in calls.values() for key, about in _tensors(node)}
        for call in _ordered(calls, known):
            name, number = call
            node = calls[call]
            missing = next((key for key, _ in _tensors(node) if key not in known), None)
            if missing is not None:
                raise KerasFileError(
                    f"{self.file}: layer {name!r} takes a result of {missing.layer!r} that is not there"
                )
            stated = {key.tensor: about for key, about in recorded.items() if (key.layer, key.node) == call}
            positional = [known[key] for key, _ in _tensors({"args": node.get("args")})]
            keywords = {key: _resolved(value, known) for key, value in (node.get("kwargs") or {}).items()}
            values = positional or [value for value in keywords.values() if isinstance(value, Handle)]
            arguments = [_filled(value, known) for value in (node.get("args") or ())]
            made = self._apply(by_name[name], path, values, keywords, trainable, depth, stated, arguments)
            known.update((Key(name, number, i), value) for i, value in enumerate(made))
        if absent := [key.layer for key in outputs if key not in known]:
            raise KerasFileError(
                f"{self.file}: the output {absent[0]!r} is not computed: layers take each other's results"
            )
        return [known[key] for key in outputs]

    def _apply(
        self, layer: Mapping[str, Any], path: str, inputs: Sequence[Handle], keywords: Mapping[str, Any],
        trainable: bool, depth: int, shapes: Mapping[int, tuple[Any, str]], arguments: Sequence[Any] = (),
    ) -> list[Handle]:  # fmt: skip
        """Call one layer. ``shapes`` are those that the file states for its results."""
        self._left -= 1
        if self._left < 0:
            raise KerasFileError(f"{self.file}: it calls over {MOST_CALLS} layers")
        name, kind = _name(layer), str(layer.get("class_name"))
        full = f"{path}.{name}" if path else name
        config = layer.get("config")
        config = config if isinstance(config, Mapping) else {}
        if isinstance(config.get("layers"), list) and _is_ours(layer):
            return self._model(layer, full, inputs, trainable, depth + 1, shapes)
        trained = trainable and config.get("trainable") is not False
        try:
            with self.b.module(full, kind):
                if _is_ours(layer) and kind in LAYERS and not _is_op(layer):
                    call = Layer(
                        self.b, self.weights, kind, full, config, inputs, keywords, trained, self._nested(depth)
                    )
                    made = LAYERS[kind](call)
                    return made if isinstance(made, list) else [made]
                return self._unruled(layer, full, inputs, shapes, arguments, keywords)
        except _DAMAGED as error:
            raise KerasFileError(f"{self.file}: layer {full!r} ({kind}): {error}") from None

    def _nested(self, depth: int) -> Any:
        """Return the function that applies the layer inside of a wrapper."""

        def apply(layer: Mapping[str, Any], path: str, inputs: Sequence[Handle], trainable: bool) -> list[Handle]:
            if depth > DEEPEST:
                raise KerasFileError(f"{self.file}: layers are nested over {DEEPEST} deep")
            named = {**layer, "config": {**layer["config"], "name": path.rpartition(".")[2]}, "name": None}
            return self._apply(named, path.rpartition(".")[0], inputs, {}, trainable, depth + 1, {})

        return apply

    def _unruled(
        self, layer: Mapping[str, Any], path: str, inputs: Sequence[Handle], shapes: Mapping[int, tuple[Any, str]],
        arguments: Sequence[Any], keywords: Mapping[str, Any],
    ) -> list[Handle]:  # fmt: skip
        """Append an operation of ``keras.ops``, or a layer that nothing is known of: what it computes is unknown."""
        kind, config = str(layer.get("class_name")), layer.get("config") or {}
        if _is_op(layer):
            name, extra = f"ops_{kind}", _plain(config)
        elif _is_ours(layer):
            name, extra = re.sub(r"\W", "_", kind), {}
            self.notes.append(f"layer {path} ({kind}) is not known: its code, if it has any, is not run")
        else:
            custom = str(layer.get("registered_name") or kind)
            name, extra = "custom_" + re.sub(r"\W", "_", custom), {}
            self.notes.append(f"layer {path} is of the class {custom}, which is not Keras's: its code is not run")
        named = [value for value in keywords.values() if value is not None]
        call = Operation(kind if _is_op(layer) else "", config, [*arguments, *named])
        told = shapes_of(call)
        count = max(1 + max(shapes, default=0), len(told or ()))
        outs, tags = [], [] if _is_op(layer) else [LAYER]
        for i in range(count):
            shape, dtype = shapes.get(i, (None, ""))
            known = self._sizes(shape, inputs) if isinstance(shape, list) else None
            if known is None and told is not None and i < len(told):
                known = told[i]
            if known is None:
                known = inputs[0].shape if inputs else ()
                tags = [*tags, "guessed"]
                self.guesses.append(f"the result of {path} is taken to have the shape of its input, {plain(known)}")
            dtype = dtype if dtype in DTYPES else dtype_of(call, i)
            if dtype not in DTYPES:
                self.guesses.append(f"the result of {path} is taken to have the dtype of its input")
            outs.append(Out(known, dtype if dtype in DTYPES else inputs[0].dtype if inputs else "float32"))
        names = tuple(f"x{i}" for i in range(len(inputs)))
        return [*self.b.ops(f"keras.{name}", *inputs, outs=outs, names=names, arguments=extra, tags=tags, label=path)]

    # --- sizes ---------------------------------------------------------------------------------------

    def _input(self, layer: Mapping[str, Any]) -> Handle:
        config = layer.get("config") or {}
        shape = config.get("batch_shape") or config.get("batch_input_shape")
        return self._opened(_name(layer), shape, str(config.get("dtype", "float32")))

    def _opened(self, name: str, shape: Any, dtype: str) -> Handle:
        if not isinstance(shape, list):
            raise KerasFileError(f"{self.file}: the input {name!r} has no shape: the model was never built")
        sizes = self._sizes(shape, ())
        if sizes is None:
            raise KerasFileError(f"{self.file}: the input {name!r} has the shape {shape}")
        if dtype not in DTYPES:
            raise KerasFileError(f"{self.file}: the input {name!r} has the unknown dtype {dtype}")
        return self.b.input(name, sizes, dtype)

    def _sizes(self, shape: Sequence[Any], inputs: Sequence[Handle]) -> Shape | None:
        """Return a stored shape with symbols for what it leaves open; None for one that is none."""
        found = []
        for axis, n in enumerate(shape):
            if n is None and not axis and inputs and inputs[0].shape:
                found.append(inputs[0].shape[0])
            elif n is None:
                found.append(self._symbol(axis, len(shape)))
            elif isinstance(n, int) and not isinstance(n, bool) and n >= 0:
                found.append(n)
            else:
                return None
        return tuple(found)

    def _symbol(self, axis: int, rank: int) -> int:
        names = {0: "batch", 1: "height" if rank == 4 else "length", 2: "width" if rank == 4 else "length_2"}
        name = names.get(axis, f"dim_{axis}")
        value = self.settings.get(name, BATCH if name == "batch" else LENGTH)
        self.symbols[name] = value
        return sized(symbol(name), value)


def _name(layer: Mapping[str, Any]) -> str:
    config = layer.get("config")
    inner = config.get("name") if isinstance(config, Mapping) else None
    return str(layer.get("name") or inner or layer.get("class_name"))


def _is_ours(layer: Mapping[str, Any]) -> bool:
    """Tell whether a class is one of Keras, and not registered under its name by somebody else."""
    module, registered = layer.get("module"), layer.get("registered_name")
    return isinstance(module, str) and module.split(".")[0] == "keras" and not (registered and ">" in str(registered))


def _is_op(layer: Mapping[str, Any]) -> bool:
    return _is_ours(layer) and ".ops" in str(layer.get("module"))


def _plain(config: Mapping[str, Any]) -> dict[str, Value]:
    """Return the numbers, texts and short lists of numbers of a description."""
    found: dict[str, Value] = {}
    for key, value in config.items():
        if isinstance(value, str | int | float | bool) and key != "name":
            found[key] = value
        elif isinstance(value, list) and len(value) <= _LONG and all(isinstance(n, int | float) for n in value):
            found[key] = tuple(value)
    return found


def _keys(entries: Any) -> Iterator[Key]:
    """Return the tensors that ``input_layers`` or ``output_layers`` name, however they are nested."""
    if isinstance(entries, Mapping):
        entries = [entries[key] for key in sorted(entries)]
    if isinstance(entries, list) and len(entries) == 3 and isinstance(entries[0], str):
        yield Key(entries[0], int(entries[1]), int(entries[2]))
    elif isinstance(entries, list):
        for entry in entries:
            yield from _keys(entry)


def _tensors(value: Any) -> Iterator[tuple[Key, tuple[Any, str]]]:
    """Return the tensors among the arguments of a call, each with the shape and the dtype that the file states."""
    if isinstance(value, Mapping):
        config = value.get("config")
        if value.get("class_name") == "__keras_tensor__" and isinstance(config, Mapping):
            name, node, tensor = config["keras_history"]
            if not 0 <= int(tensor) < MOST_RESULTS:
                raise ValueError(f"result {tensor} of a layer")
            yield Key(str(name), int(node), int(tensor)), (config.get("shape"), str(config.get("dtype")))
        else:
            for inner in value.values():
                yield from _tensors(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _tensors(inner)


def _resolved(value: Any, known: Mapping[Key, Handle]) -> Any:
    found = [known[key] for key, _ in _tensors(value)]
    return found[0] if len(found) == 1 else value


def _filled(value: Any, known: Mapping[Key, Handle]) -> Any:
    """Return an argument of a call with Handles for its tensors."""
    if isinstance(value, list):
        return [_filled(inner, known) for inner in value]
    return _resolved(value, known)


def _ordered(calls: Mapping[tuple[str, int], Any], given: Mapping[Key, Handle]) -> Iterator[tuple[str, int]]:
    """Return the calls in an order in which they can run; those that wait for each other are left out."""
    there = {(key.layer, key.node) for key in given}
    waits = {
        call: {(k.layer, k.node) for k, _ in _tensors(node)} - there
        for call, node in calls.items()
        if call not in there
    }
    readers: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for call, before in waits.items():
        for other in before:
            readers.setdefault(other, []).append(call)
    ready = deque(call for call, before in waits.items() if not before)
    while ready:
        call = ready.popleft()
        yield call
        for reader in readers.get(call, ()):
            waits[reader].discard(call)
            if not waits[reader]:
                ready.append(reader)


# --- files ---------------------------------------------------------------------------------------------


@no_collection()
def import_file(path: Path, settings: Mapping[str, int]) -> Imported:
    """Read the inference of the model in a Keras file. ``settings`` are values of the sizes that it leaves open.

    Raises KerasFileError for a damaged file, WorkloadError for a setting that is no symbol of its sizes.
    """
    config, version = read_config(path)
    model = Model(str(path), config, version, settings)
    graph = model.graph(path.name)
    require_symbols(path, settings, model.symbols)
    return Imported(graph, symbols=model.symbols)
