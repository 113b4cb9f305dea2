"""Live Keras models: the same figures on every framework, from the file, and by hand."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.importers.keras.scripts import run

pytestmark = pytest.mark.frameworks

ZOO = """
from tests.importers.keras.zoo import ZOO, JOINED

def compared(model):
    model.save("z.keras")
    sizes = {"batch": 2}
    read, traced = (tensortide.open(x, hyperparameters=sizes).graph for x in ("./z.keras", model))
    a, b = count(read), count(traced)
    found = [list(map(int, read.tensors[i].shape)) for op in read.ops[-1:] for i in op.outputs][:1]
    stated = [[2, *(n or 0 for n in model.outputs[0].shape[1:])]]
    right = not found or all(m in (0, n) for n, m in zip(found[0], stated[0], strict=True))
    held = sum(read.tensors[n.tensor].numel for n in read.named if n.role != "input")
    return [a.total.macs - b.total.macs, right, held - model.count_params(), *map(str, a.coverage.missing)]

found = {}
for name, (shape, text) in ZOO.items():
    x = keras.Input(shape, dtype="int32" if "Embedding" in text else None)
    found[name] = compared(keras.Model(x, eval(text)(x), name="net"))
for name, (shapes, text) in JOINED.items():
    a, b = map(keras.Input, shapes)
    found[name] = compared(keras.Model([a, b], eval(text), name="net"))
print(json.dumps(found))
"""


def test_every_layer_reads_as_keras_runs_it(tmp_path: Path) -> None:
    found = run("tensorflow", ZOO, tmp_path)
    assert len(found) > 50
    assert {name: row for name, row in found.items() if row != [0, True, 0]} == {}


NET = """
x = keras.Input((12, 16))
y = layers.LSTM(20, return_sequences=True)(x)
y = layers.MultiHeadAttention(2, 8)(y, y)
y = layers.Dense(8, activation="relu")(y)
y = layers.BatchNormalization()(y)
y = layers.GlobalAveragePooling1D()(y)
model = keras.Model(x, layers.Dense(3)(y), name="net")
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
before = [v.path for v in model.variables], model.optimizer.built
found = {}
for training in (False, True):
    step = tensortide.open(model, training=training, hyperparameters={"batch": 4})
    counted = count(step.graph)
    learned = {n.tensor: n for n in step.graph.named if n.role is Role.PARAMETER}
    found[str(training)] = {
        "macs": {phase: total.macs for phase, total in counted.by_phase.items()},
        "learned": sum(step.graph.tensors[i].numel for i in learned),
        "modules": sorted({m.path.split(".")[0] for m in step.graph.modules}),
        "elementwise": counted.by_phase["optimizer"].cost.elementwise_flops,
        "missing": len(counted.coverage.missing),
    }
found["same"] = before == ([v.path for v in model.variables], model.optimizer.built)
found["learnable"] = sum(int(np.prod(v.shape)) for v in model.trainable_weights)
print(json.dumps(found))
"""
FORWARD = 4 * (12 * 80 * 36 + 12 * (3 * 20 * 16 + 16 * 20) + 2 * 12 * 12 * 16 + 12 * 20 * 8 + 8 * 3)
"""Products by hand: recurrent, projections, attention, dense."""

BACKWARD = 2 * FORWARD - 4 * 12 * 80 * 16
"""Twice the forward, without the gradient of the model's input."""

LAST = 4 * 80 * 20
"""The gradient of the initial state, which nobody needs; frameworks that differentiate a loop compute it."""


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_inference_and_training_are_counted_as_by_hand(backend: str, tmp_path: Path) -> None:
    found: dict[str, Any] = run(backend, NET, tmp_path)
    assert found["False"]["macs"]["forward"] == FORWARD == sum(found["False"]["macs"].values())
    trained = found["True"]["macs"]
    assert trained["forward"] == FORWARD
    assert trained["backward"] in (BACKWARD, BACKWARD - LAST)
    assert found["True"]["learned"] == found["learnable"]
    assert {"lstm", "multi_head_attention", "dense", "dense_1"} <= set(found["False"]["modules"])
    assert found["True"]["elementwise"] > 10 * found["learnable"]  # a step of Adam
    assert not found["True"]["missing"]
    assert found["same"]


@pytest.mark.skipif(find_spec("tensortide.importers.jax") is None, reason="needs the importer of JAX functions")
def test_a_model_on_jax_has_the_products_of_the_others(tmp_path: Path) -> None:
    found: dict[str, Any] = run("jax", NET, tmp_path)
    assert sum(found["False"]["macs"].values()) == FORWARD
    assert found["True"]["macs"]["forward"] == FORWARD
    assert found["True"]["macs"]["backward"] in (BACKWARD, BACKWARD - LAST)
    assert found["same"]


ZOO_OF_KERAS = """
def by_hand(model):
    total = 0
    for layer in model._flatten_layers():
        if isinstance(layer, (layers.Conv2D, layers.DepthwiseConv2D)):
            total += math.prod(layer.output.shape[1:3]) * math.prod(layer.kernel.shape)
        elif type(layer) is layers.Dense:
            total += math.prod(layer.kernel.shape)
    return total

def heads():
    x = keras.Input((128, 768))
    return keras.Model(x, layers.MultiHeadAttention(12, 64)(x, x), name="heads")

models = {
    "ResNet50": lambda: keras.applications.ResNet50(weights=None),
    "VGG19_32": lambda: keras.applications.VGG19(weights=None, include_top=False, input_shape=(32, 32, 3)),
    "MobileNetV2": lambda: keras.applications.MobileNetV2(weights=None),
    "EfficientNetB0": lambda: keras.applications.EfficientNetB0(weights=None),
    "MHA": heads,
    "LSTM": lambda: keras.Sequential([keras.Input((100, 256)), layers.LSTM(512)], name="net"),
}
found = {}
for name, make in models.items():
    model = make()
    step = tensortide.open(model, hyperparameters={"batch": 1})
    counted = count(step.graph, strict=True)
    model.save("m.keras")
    read = tensortide.open("./m.keras", hyperparameters={"batch": 1}).graph
    found[name] = {
        "macs": counted.total.macs, "file": count(read, strict=True).total.macs, "hand": by_hand(model),
        "parameters": model.count_params(),
        "held": sum(read.tensors[n.tensor].numel for n in read.named if n.role != "input"),
        "by_op": {op: total.cost.elementwise_flops for op, total in counted.by_op.items()},
    }
print(json.dumps(found))
"""


def profiled(by_op: dict[str, int], macs: int, pooled: int = 0) -> int:
    """What TensorFlow's graph profiler says where it sees all products, and how: additions and products of elements at
    1 each, a root at 2, a softmax at 5 per element, ReLU at 0, a pooling at the whole window."""
    ones = sum(by_op.get(f"tf.{op}", 0) for op in ("BiasAdd", "AddV2", "Mul", "Sub", "Mean"))
    return 2 * macs + ones + 2 * by_op.get("tf.Rsqrt", 0) + pooled


@pytest.mark.slow
def test_models_of_keras_are_counted_as_by_hand_and_as_the_graph_profiler_but_for_its_faults(
    tmp_path: Path, reference: Path
) -> None:
    import json

    found = run("tensorflow", ZOO_OF_KERAS, tmp_path)
    said = json.loads((reference / "counters" / "keras_graph_profiler.json").read_text())
    for name, row in found.items():
        assert row["macs"] == row["file"], name
        assert row["parameters"] == row["held"] == said.get(name, {"params": row["held"]})["params"], name
    for name in ("ResNet50", "VGG19_32", "MobileNetV2", "EfficientNetB0"):
        assert found[name]["macs"] == found[name]["hand"], name
    figures = {name: row["graph_profiler_flops"] for name, row in said.items()}
    by = {name: row["by_op"] for name, row in found.items()}
    softmax = 5 * 1000
    assert figures["ResNet50"] == profiled(by["ResNet50"], found["ResNet50"]["macs"], 9 * 56 * 56 * 64) + softmax
    assert figures["VGG19_32"] == profiled(
        by["VGG19_32"], found["VGG19_32"]["macs"], by["VGG19_32"]["tf.MaxPool"] * 4 // 3
    )
    lost, softmax = 2 * 12 * 128 * 128 * 64, 5 * 12 * 128 * 128  # the products of attention, which are Einsums
    assert figures["MHA"] == profiled(by["MHA"], found["MHA"]["macs"] - lost) + softmax
    assert 2 * found["MHA"]["macs"] == 654_311_424
    assert 2 * found["LSTM"]["macs"] == 314_572_800 > 70 * figures["LSTM"]  # a loop's body once


METRICS = """
model = keras.Sequential([
    keras.Input((8, 8, 3)), layers.Conv2D(4, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(),
    layers.Flatten(), layers.Dense(5),
], name="net")
x, y = np.random.rand(10, 8, 8, 3).astype("float32"), np.random.randint(0, 5, 10)
data = [(x[:4], y[:4]), (x[4:8], y[4:8]), (x[8:], y[8:])]
from tensortide.measures.scores import accuracy, misclassification
profiler = tensortide.Profiler(model, {"train": data, "test": data})
known = profiler.compute_all()
guessed = np.asarray(keras.ops.convert_to_numpy(model(x, training=False))).argmax(1)
print(json.dumps({
    "metrics": {key: known[key] for key in ("macs", "total_params", "trainable_params", "model_size",
                                            "activation_peak", "saved_activations", "execution_time")},
    "accuracy": [accuracy(model, data), 100 * float((guessed == y).mean())],
    "wrong": misclassification(model, data), "all": [known["macs"], 8 * 8 * 4 * 27 + 256 * 5],
    "batch": profiler.compute("macs", batch_size=3),
    "layers": {row.path: [row.macs, row.parameters] for row in profiler.layers("module").rows},
}))
"""


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_a_keras_model_has_metrics(backend: str, tmp_path: Path) -> None:
    found = run(backend, METRICS, tmp_path)
    known = found["metrics"]
    assert known["macs"] == 8 * 8 * 4 * 27 + 256 * 5
    assert found["batch"] == 3 * known["macs"]
    assert (known["total_params"], known["trainable_params"]) == (112 + 16 + 1285, 112 + 8 + 1285)
    assert known["model_size"] == 4 * known["total_params"]
    rows = found["layers"]
    assert (rows["conv2d"], rows["dense"]) == ([8 * 8 * 4 * 27, 112], [256 * 5, 1285])
    assert known["activation_peak"] >= 2 * 8 * 8 * 4 * 4
    assert known["saved_activations"] > 0
    assert known["execution_time"] > 0
    assert found["accuracy"][0] == pytest.approx(found["accuracy"][1]) == 100 - found["wrong"]
