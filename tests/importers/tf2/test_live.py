"""Functions of a running TensorFlow, traced and never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.cost import count
from tensortide.errors import WorkloadError
from tests.importers import truths

pytestmark = pytest.mark.frameworks


@pytest.fixture
def tf() -> Any:
    return pytest.importorskip("tensorflow")


def macs(function: Any, *inputs: Any, **sizes: int) -> int:
    graph = tensortide.open(function, inputs=inputs, hyperparameters=sizes).graph
    return int(count(graph, strict=True).total.macs)


def test_a_training_step_has_its_products_by_phase(tf: Any) -> None:
    weights = [tf.Variable(tf.ones((5, 7))), tf.Variable(tf.ones((7, 2)))]

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.relu(x @ weights[0]) @ weights[1])
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    graph = tensortide.open(step, inputs=(tf.TensorSpec((None, 5)),), hyperparameters={"batch": 3}).graph
    phases = {phase: total.macs for phase, total in count(graph, strict=True).by_phase.items()}
    first, second = 3 * 5 * 7, 3 * 7 * 2
    assert (phases["forward"], phases["backward"]) == (first + second, first + 2 * second)
    assert count(graph).by_phase["optimizer"].cost.elementwise_flops == 35 + 14
    assert truths.learned(graph) == 35 + 14
    assert weights[0].numpy().sum() == 35  # traced, not run


def test_loops_and_choices_of_many(tf: Any) -> None:
    weight = tf.Variable(tf.ones((5, 5)))

    @tf.function
    def nested(x: Any) -> Any:
        for _ in tf.range(3):
            for _ in tf.range(4):
                x = x @ weight
        return x

    @tf.function
    def chosen(x: Any, which: Any) -> Any:
        return tf.switch_case(which, [lambda: x, lambda: x @ weight, lambda: x @ weight @ weight])

    assert macs(nested, tf.TensorSpec((2, 5))) == 12 * 2 * 25
    graph = tensortide.open(chosen, inputs=(tf.TensorSpec((2, 5)), tf.TensorSpec((), tf.int32))).graph
    low, high = count(graph, strict=True).range
    assert (low.macs, high.macs) == (0, 2 * 2 * 25)


def test_products_under_other_names(tf: Any) -> None:
    x = tf.TensorSpec((2, 8, 8, 6))
    kernel, deep = tf.Variable(tf.ones((3, 3, 3, 4))), tf.Variable(tf.ones((3, 3, 6, 5)))
    dilated = tf.function(lambda x: tf.nn.convolution(x, deep, padding="SAME", dilations=2))
    assert macs(dilated, x) == 2 * 64 * 9 * 6 * 5
    assert macs(tf.function(lambda x: tf.nn.conv2d(x, kernel, 1, "SAME")), x) == 2 * 64 * 9 * 3 * 4
    assert macs(tf.function(lambda x: tf.einsum("...ab,...cb->...ac", x, x)), x) == 2 * 8 * 8 * 8 * 6
    batched = tf.function(lambda a, b: tf.matmul(a, b, transpose_b=True))
    assert macs(batched, tf.TensorSpec((4, 1, 3, 5)), tf.TensorSpec((2, 6, 5))) == 4 * 2 * 3 * 5 * 6


def test_a_concrete_function_needs_no_inputs(tf: Any) -> None:
    concrete = tf.function(lambda x: x @ x).get_concrete_function(tf.TensorSpec((4, 4)))
    assert macs(concrete) == 64


def test_a_function_with_its_inputs_is_a_target_of_the_command_line(tf: Any, tmp_path: Path) -> None:
    (tmp_path / "products.py").write_text(
        "import tensorflow as tf\n"
        "@tf.function\ndef product(x):\n    return x @ x\n"
        "def of(n=4):\n    return product, (tf.TensorSpec((n, n)),)\n"
    )
    graph = tensortide.open(f"{tmp_path / 'products.py'}:of", hyperparameters={"n": 5}).graph
    assert count(graph).total.macs == 125
    assert not graph.meta.workload.startswith("b'")
    assert macs(tf.function(lambda x: x @ x), tf.TensorSpec((3, 3))) == 27
    with pytest.raises(WorkloadError, match=r"return \(function, \(tf.TensorSpec"):
        tensortide.open(f"{tmp_path / 'products.py'}:product")


def test_a_function_that_cannot_be_traced_is_one_error(tf: Any) -> None:
    with pytest.raises(WorkloadError, match="cannot be traced with 1 inputs"):
        tensortide.open(tf.function(lambda x: x @ x), inputs=(tf.TensorSpec((4, 5)),))


def test_what_the_function_raises_is_in_the_error(tf: Any) -> None:
    def wrong(x: Any) -> Any:
        raise ValueError(f"no such thing as {x.shape}")

    with pytest.raises(WorkloadError, match=r"ValueError: no such thing as \(4, 5\)"):
        tensortide.open(tf.function(wrong), inputs=(tf.TensorSpec((4, 5)),))


def test_what_is_saved_reads_as_what_is_live(tf: Any, tmp_path: Path) -> None:
    module = tf.Module()
    module.weight = tf.Variable(tf.ones((5, 5)))
    module.call = tf.function(lambda x: tf.nn.softmax(x @ module.weight), input_signature=[tf.TensorSpec((None, 5))])
    tf.saved_model.save(module, str(tmp_path / "saved"))
    read = count(tensortide.open(tmp_path / "saved", hyperparameters={"batch": 3}).graph, strict=True).total
    live = count(tensortide.open(module.call, hyperparameters={"batch": 3}).graph, strict=True).total
    assert (read.macs, read.cost.elementwise_flops) == (live.macs, live.cost.elementwise_flops) == (75, 3 * 23)


def test_a_layout_that_a_saved_model_leaves_out_has_channels_last(tf: Any, tmp_path: Path) -> None:
    module = tf.Module()
    module.kernel = tf.Variable(tf.ones((3, 3, 3, 3, 2)))
    module.call = tf.function(lambda x: tf.nn.conv3d(x, module.kernel, (1, 1, 1, 1, 1), "VALID"))
    spec = tf.TensorSpec((1, 8, 8, 8, 3))
    tf.saved_model.save(module, str(tmp_path), signatures=module.call.get_concrete_function(spec))
    graph = tensortide.open(tmp_path).graph
    assert count(graph, strict=True).total.macs == 6**3 * 2 * 3 * 27
