"""Recurrent layers: a whole layer is one op, whose rule multiplies by the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensortide.graph.handles import Handle
from tensortide.importers.keras.layers.layer import Layer, layer
from tensortide.importers.shapes import ShapeError

_GATES = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}


@layer("LSTM GRU SimpleRNN")
def recurrent(call: Layer) -> list[Handle]:
    """A recurrent layer over all steps."""
    return _run(call, call.kind, call.x, "", call.config)


def _run(call: Layer, kind: str, x: Handle, prefix: str, cell: Mapping[str, Any]) -> list[Handle]:
    if len(x.shape) != 3:
        raise ShapeError(f"its input has {len(x.shape)} axes; it takes samples, steps and features")
    units, gates = cell.get("units"), _GATES[kind]
    if not isinstance(units, int) or units < 0:
        raise ShapeError(f"its units are {units!r}")
    batch, steps, features = x.shape
    inputs = {
        "x": x,
        "kernel": call.weight(f"{prefix}kernel", features, gates * units),
        "recurrent_kernel": call.weight(f"{prefix}recurrent_kernel", units, gates * units),
    }
    if cell.get("use_bias", True):
        twice = kind == "GRU" and cell.get("reset_after", True)
        inputs["bias"] = call.weight(f"{prefix}bias", *((2,) if twice else ()), gates * units)
    sequences, state = bool(cell.get("return_sequences")), bool(cell.get("return_state"))
    out = call.op(kind, inputs, (batch, steps, units) if sequences else (batch, units), steps=steps, units=units)
    if not state:
        return [out]
    states = [call.op("state", {"x": out}, (batch, units)) for _ in range(2 if kind == "LSTM" else 1)]
    return [out, *states]


_CELLS = {"LSTMCell": "LSTM", "GRUCell": "GRU", "SimpleRNNCell": "SimpleRNN"}


@layer("RNN")
def cells(call: Layer) -> list[Handle]:
    """A loop over a cell, or over cells on top of each other."""
    cell = call.config.get("cell")
    stack = [cell] if isinstance(cell, dict) else cell if isinstance(cell, list) else []
    if stack and isinstance(stack[0], dict) and stack[0].get("class_name") == "StackedRNNCells":
        stack = stack[0].get("config", {}).get("cells", [])
    found: list[Handle] = [call.x]
    for i, one in enumerate(stack):
        kind = _CELLS.get(str(one.get("class_name"))) if isinstance(one, dict) else None
        if kind is None:
            raise ShapeError(f"its cell is {one.get('class_name') if isinstance(one, dict) else one!r}")
        last = i == len(stack) - 1
        given = {**one["config"], "return_sequences": call.is_true("return_sequences") or not last}
        found = _run(call, kind, found[0], f"cell_{i}." if len(stack) > 1 else "cell.", given)
    return found


@layer("Bidirectional")
def both_ways(call: Layer) -> list[Handle]:
    """A layer forwards and one backwards, merged."""
    if call.apply is None or not isinstance(call.config.get("layer"), dict):
        raise ShapeError("it has no layer")
    forward = call.config["layer"]
    backward = call.config.get("backward_layer") or forward
    ahead = call.apply(forward, f"{call.path}.forward", call.inputs, call.trainable)
    back = call.apply(backward, f"{call.path}.backward", call.inputs, call.trainable)
    mode, (x, y) = call.config.get("merge_mode", "concat"), (ahead[0], back[0])
    if mode is None:
        return [x, y]
    kind = {"concat": "Concatenate", "sum": "Add", "mul": "Multiply", "ave": "Average"}.get(mode)
    if kind is None:
        raise ShapeError(f"its merge_mode is {mode!r}")
    shape = (*x.shape[:-1], x.shape[-1] + y.shape[-1]) if kind == "Concatenate" else x.shape
    return [call.op(kind, {"x0": x, "x1": y}, shape), *ahead[1:], *back[1:]]


@layer("TimeDistributed")
def distributed(call: Layer) -> list[Handle]:
    """A layer for each step, as if the steps were samples."""
    if call.apply is None or not isinstance(call.config.get("layer"), dict) or len(call.x.shape) < 2:
        raise ShapeError("it has no layer")
    batch, steps, *rest = call.x.shape
    flat = call.view("Reshape", call.x, (batch * steps, *rest))
    made = call.apply(call.config["layer"], f"{call.path}.layer", [flat], call.trainable)
    return [call.view("Reshape", one, (batch, steps, *one.shape[1:])) for one in made]
