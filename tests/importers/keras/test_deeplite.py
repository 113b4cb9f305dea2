"""Scripts written for deeplite-profiler run on models of Keras 3 and of TensorFlow Lite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.importers.keras.scripts import run

pytestmark = pytest.mark.frameworks

START = """
import logging, warnings
from tensortide.measures.deeplite import *

def classified(x):
    y = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    y = layers.BatchNormalization()(y)
    y = layers.Add()([y, layers.DepthwiseConv2D(3, padding="same")(y)])
    y = layers.MaxPooling2D(2)(y)
    return layers.Dense(5)(layers.GlobalAveragePooling2D()(y))

def model_of(shape=(8, 8, 3)):
    x = keras.Input(shape)
    return keras.Model(x, classified(x), name="net")

rng = np.random.default_rng(0)
images, classes = rng.random((10, 8, 8, 3), "float32"), rng.integers(0, 5, 10)
one_hot = np.eye(5, dtype="float32")[classes]
"""

SCRIPT = (
    START
    + """
if keras.backend.backend() == "tensorflow":
    import tensorflow as tf
    data = tf.data.Dataset.from_tensor_slices((images, one_hot)).batch(4)
else:
    data = [(images[i : i + 4], one_hot[i : i + 4]) for i in (0, 4, 8)]
model, lines = model_of(), []
setLogger(type("Lines", (), {"log": lambda self, level, text, *args: lines.append(text % args),
                             "debug": lambda self, text, *args: lines.append(text % args)})())
splits = TFProfiler.enable_forward_pass_data_splits({"train": data, "test": data})
profiler = TFProfiler(model, splits, name="Original Model")
evaluation = ComputeEvalMetric(get_accuracy, "accuracy", unit_name="%")
functions = ComputeFlops(), ComputeSize(), ComputeParams(), ComputeLayerwiseSummary(), ComputeExecutionTime()
for function in (*functions, evaluation):
    profiler.register_profiler_function(function)
options = {"batch_size": 1, "device": Device.CPU, "short_print": False, "print_mode": "debug"}
known = profiler.compute_network_status(include_weights=True, **options)
other = profiler.clone(model=model)
other.name = "Clone Model"
profiler.compare(other, **options)
guessed = np.asarray(keras.ops.convert_to_numpy(model(images, training=False)))
ranks = (-guessed).argsort(1)
print(json.dumps({
    "status": {name: value for name, value in known.items()}, "table": lines[0],
    "alone": profiler.compute_status("memory_footprint", include_weights=False),
    "trainable": sum(int(np.prod(v.shape)) for v in model.trainable_weights),
    "accuracy": 100 * float((ranks[:, 0] == classes).mean()),
    "wrong": get_missclass(model, data), "top": get_topk(model, data, topk=(1, 3)),
    "top3": 100 * float((ranks[:, :3] == classes[:, None]).any(1).mean()),
    "loss": EvalLossFunction(lambda model, batch: keras.ops.mean(model(batch[0]) ** 2))(model, data),
    "by_hand": float((guessed ** 2).mean()),
    "compared": lines[2],
}))
"""
)
FLOPS = (
    2 * (64 * 4 * 27 + 64 * 4 * 9 + 4 * 5)  # products: convolution, one by channel, dense
    + 3 * 64 * 4  # biases of both convolutions, sum of the branches
    + 2 * 64 * 4  # scale and shift
    + 4 * 16 * 4 + 16 * 4 + 5  # the windows of the pooling, the mean, the bias
)  # fmt: skip
"""Float operations of the net by hand, but for those on the four channels of its normalization."""
RETURNED = 2 * 192 + 4 * 256 + 64 + 4 + 5
"""Elements of the input, which is a layer too, and of what each layer returns."""


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_the_published_script_runs_with_its_imports_changed(backend: str, tmp_path: Path) -> None:
    found: dict[str, Any] = run(backend, SCRIPT, tmp_path)
    known = found["status"]
    centred = 64 * 4 * (backend == "torch")  # there the mean is subtracted first, and not from the shift
    assert 2e9 * known["flops"] == pytest.approx(FLOPS + centred, abs=8 * 4)
    assert known["total_params"] == found["trainable"] / 1e6
    assert known["model_size"] == 4 * found["trainable"] / 2**20
    assert known["memory_footprint"] == pytest.approx(4 * (RETURNED + found["trainable"]) / 2**20)
    assert found["alone"] == 4 * RETURNED / 2**20
    assert "depthwise_conv2d" in known["layerwise_summary"]
    assert known["execution_time"] > 0
    assert known["inference_time"] > 0
    assert known["eval_metric"] == pytest.approx(found["accuracy"]) == 100 - found["wrong"]
    assert found["top"] == pytest.approx({"top-1": found["accuracy"], "top-3": found["top3"]})
    assert found["loss"] == pytest.approx(found["by_hand"], rel=1e-5)
    lines = found["table"].strip().splitlines()
    assert lines[3] == f"|{'Param Name (Original Model)':>40} | {'Value':>20}|"
    assert lines[4] == f"|{'Backend: TFBackend':>40} | {'':>20}|"
    assert "1.00x" in found["compared"]


PROFILED = (
    START
    + """
import tensorflow as tf

def profiled(model):
    spec = tf.TensorSpec((1, *model.input_shape[1:]), model.inputs[0].dtype)
    graph = tf.function(lambda x: model(x, training=False)).get_concrete_function(spec).graph
    builder = tf.compat.v1.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    return tf.compat.v1.profiler.profile(graph=graph, cmd="op", options=options).total_float_ops

def heads():
    x = keras.Input((16, 24))
    return keras.Model(x, layers.MultiHeadAttention(2, 8)(x, x))

def normalized():
    x = keras.Input((8, 8, 3))
    y = layers.LayerNormalization()(layers.AveragePooling2D(2)(x) * 2 - 1)
    return keras.Model(x, layers.Dense(4, activation="softmax")(layers.Flatten()(y)))

models = {
    "net": model_of(), "heads": heads(), "normalized": normalized(),
    "published": keras.Sequential([
        keras.Input((224, 224, 3)), layers.Conv2D(32, 5, padding="same"), layers.ReLU(), layers.MaxPooling2D(2),
        layers.Flatten(),
    ]),
    "vgg": keras.applications.VGG19(weights=None, include_top=False, input_shape=(32, 32, 3)),
}
found = {}
for name, model in models.items():
    profiler = TFProfiler(model, {"train": [(np.zeros((1, *model.input_shape[1:]), "float32"), 0)]})
    for function in (ComputeFlops(), ComputeSize(), ComputeParams()):
        profiler.register_profiler_function(function)
    found[name] = {**profiler.compute_network_status(), "profiled": profiled(model), "params": model.count_params()}
print(json.dumps(found))
"""
)


def test_figures_are_those_of_the_graph_profiler_and_of_published_tests(tmp_path: Path) -> None:
    found = run("tensorflow", PROFILED, tmp_path)
    for name in ("net", "normalized", "published", "vgg"):
        assert 2e9 * found[name]["flops"] == pytest.approx(found[name]["profiled"], abs=0.1), name
    lost = 2 * 2 * 2 * 16 * 16 * 8  # the products of attention, which are Einsums
    assert 2e9 * found["heads"]["flops"] == pytest.approx(found["heads"]["profiled"] + lost, abs=0.1)
    assert {name: found["published"][name] for name in ("total_params", "model_size", "memory_footprint")} == {
        "total_params": 0.002432,
        "model_size": 0.00927734375,
        "memory_footprint": 15.89599609375,
    }
    assert 2e9 * found["published"]["flops"] == 244_056_064
    assert found["vgg"]["total_params"] == found["vgg"]["params"] / 1e6


ODD = (
    START
    + """
class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)
    def call(self, x):
        return self.dense(x)

a, b = keras.Input((4,)), keras.Input((4,))
cases = {
    "own": (Own(), np.zeros((2, 4), "float32")),
    "open": (keras.Sequential([keras.Input((None, 4)), layers.Dense(3)]), np.zeros((2, 6, 4), "float32")),
    "gpu": (model_of(), images[:2]),
}
found = {}
for name, (model, x) in cases.items():
    profiler = TFProfiler(model, {"train": [(x, 0)]})
    profiler.register_profiler_function(ComputeSize())
    profiler.register_profiler_function(ComputeExecutionTime())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            profiler.compute_network_status(device=Device.GPU if name == "gpu" else Device.CPU)
            text = ""
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
    own = [str(one.message) for one in said if "memory_footprint" in str(one.message)]
    found[name] = [own[0] if own else "", text]
print(json.dumps(found))
"""
)


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    found = run("tensorflow", ODD, tmp_path)
    said, error = found["own"]
    assert said.startswith(
        "memory_footprint: the layer 'dense' of 'own' does not say what it returns: those of functional"
    )
    assert not error
    assert "leaves sizes open: build the model with inputs of fixed shapes" in found["open"][0]
    assert found["open"][1] == ""
    assert "a Keras model runs where Keras does, on cpu:0, not on 'cuda'" in found["gpu"][1]


LITE = (
    START
    + """
import tensorflow as tf

model = model_of()
content = tf.lite.TFLiteConverter.from_keras_model(model).convert()
data = tf.data.Dataset.from_tensor_slices((images, one_hot)).batch(4)
profiler = TFLiteProfiler(content, TFLiteProfiler.enable_forward_pass_data_splits({"train": data, "test": data}))
for function in (ComputeFlops(), ComputeSize(), ComputeParams(), ComputeExecutionTime()):
    profiler.register_profiler_function(function)
profiler.register_profiler_function(ComputeEvalMetric(get_accuracy, 'accuracy', unit_name='%'))
known = profiler.compute_network_status(batch_size=1, device=Device.CPU, include_weights=True, k=1)
tensors = tf.lite.Interpreter(model_content=content).get_tensor_details()  # before kernels add scratch of their own
sizes = [int(np.prod(one["shape"])) * np.dtype(one["dtype"]).itemsize for one in tensors]
guessed = np.asarray(keras.ops.convert_to_numpy(model(images, training=False))).argmax(1)
print(json.dumps({
    "known": known, "elements": sum(int(np.prod(one["shape"])) for one in tensors), "largest": max(sizes),
    "bytes": len(content), "accuracy": 100 * float((guessed == classes).mean()),
}))
"""
)


def test_a_flat_buffer_is_profiled_and_run(tmp_path: Path) -> None:
    found = run("tensorflow", LITE, tmp_path)
    known = found["known"]
    assert known["flops"] == 2 * (64 * 4 * 27 + 64 * 4 * 9 + 4 * 5) / 1e9
    assert known["total_params"] == found["elements"] / 1e6
    assert known["model_size"] == found["bytes"] / 1e6
    assert known["memory_footprint"] == 2 * found["largest"] / 1e6
    assert known["execution_time"] > 0
    assert known["eval_metric"] == pytest.approx(found["accuracy"])


QUANTIZED = """
from tensortide.importers.tflite.backend import LiteModel
from tests.importers import truths

def answer(name, x):
    return LiteModel((truths.folder() / "tflite" / f"{name}.tflite").read_bytes())(x)

x = np.random.default_rng(0).random((3, 16, 16, 3), "float32")
plain, quantized = answer("convs", x), answer("convs_int8", x)
print(json.dumps([plain.tolist(), quantized.tolist(), answer("convs", x[1:2]).tolist()]))
"""


def test_a_quantized_flat_buffer_answers_in_the_numbers_that_its_integers_stand_for(tmp_path: Path) -> None:
    plain, quantized, alone = run("tensorflow", QUANTIZED, tmp_path)
    for one, other in zip(plain, quantized, strict=True):
        assert one == pytest.approx(other, abs=0.05)  # samples beyond what it was calibrated on are clipped
    assert plain[1] == pytest.approx(alone[0], abs=1e-6)
