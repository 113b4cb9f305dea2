"""Flat buffers as TensorFlow's converter writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.cost import count
from tests.importers import truths

pytestmark = pytest.mark.frameworks


class Maker:
    """Writes functions over the same variables as flat buffers."""

    def __init__(self, path: Path) -> None:
        self.tf = pytest.importorskip("tensorflow")
        self.path = path
        self.module = self.tf.Module()
        self.module.groups = self.tf.Variable(self.tf.random.normal((3, 3, 2, 8)))
        self.module.back = self.tf.Variable(self.tf.random.normal((3, 3, 5, 8)))
        self.module.square = self.tf.Variable(self.tf.random.normal((5, 5)))

    def write(self, function: Any, *specs: Any, half: bool = False) -> Path:
        concrete = self.tf.function(function).get_concrete_function(*specs)
        converter = self.tf.lite.TFLiteConverter.from_concrete_functions([concrete], self.module)
        if half:
            converter.optimizations = [self.tf.lite.Optimize.DEFAULT]
            converter.target_spec.supported_types = [self.tf.float16]
        self.path.write_bytes(converter.convert())
        return self.path


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "model.tflite")


def test_groups_and_transposed_convolutions(maker: Maker) -> None:
    tf, module = maker.tf, maker.module

    def both(x: Any) -> Any:
        y = tf.nn.conv2d(x, module.groups, 2, "SAME")
        return tf.nn.conv2d_transpose(y, module.back, (1, 8, 8, 5), 2, "SAME")

    graph = tensortide.open(maker.write(both, tf.TensorSpec((1, 8, 8, 4)))).graph
    assert count(graph, strict=True).total.macs == 16 * 9 * 2 * 8 + 16 * 9 * 5 * 8


def test_trips_of_an_input_are_assumed_or_given(maker: Maker) -> None:
    tf, module = maker.tf, maker.module

    def loop(x: Any, n: Any) -> Any:
        return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, tf.nn.relu(a @ module.square)), (0, x))[1]

    path = maker.write(loop, tf.TensorSpec((3, 5)), tf.TensorSpec((), tf.int32))
    step = tensortide.open(path)
    (name,) = step.symbols
    assert step.graph.loops[0].assumed
    given = tensortide.open(path, hyperparameters={name: 6}).graph
    assert count(given, strict=True).total.macs == 6 * 75


def test_a_loop_as_long_as_the_counter_around_it_is_assumed(maker: Maker) -> None:
    tf, square = maker.tf, maker.module.square

    def nested(x: Any) -> Any:
        for i in tf.range(4):
            for _ in tf.range(i):
                x = x @ square
        return x

    step = tensortide.open(maker.write(nested, tf.TensorSpec((3, 5))))
    (name,) = step.symbols
    assert sorted((loop.trips, loop.assumed) for loop in step.graph.loops) == [(1, True), (4, False)]
    assert count(step.graph).total.macs == 4 * 75
    given = tensortide.open(maker.path, hyperparameters={name: 2}).graph
    assert count(given, strict=True).total.macs == 4 * 2 * 75


def test_a_dilated_convolution_has_a_larger_batch(maker: Maker) -> None:
    tf, module = maker.tf, maker.module
    spec = tf.TensorSpec((None, 8, 8, 2))
    path = maker.write(lambda x: tf.nn.conv2d(x, module.groups, 1, "SAME", dilations=2), spec)
    for batch in (1, 3):
        graph = tensortide.open(path, hyperparameters={"batch": batch}).graph
        assert count(graph, strict=True).total.macs == batch * 64 * 9 * 2 * 8


def test_blocks_of_space_are_a_larger_batch(maker: Maker) -> None:
    tf, module = maker.tf, maker.module

    def blocks(x: Any) -> Any:
        parts = tf.nn.relu(tf.space_to_batch_nd(x, [2, 2], [[2, 2], [2, 2]]))  # the converter would fold it otherwise
        return tf.batch_to_space(tf.nn.conv2d(parts, module.groups, 1, "VALID"), [2, 2], [[0, 0], [0, 0]])

    path = maker.write(blocks, tf.TensorSpec((None, 8, 8, 2)))
    for batch in (1, 3):
        graph = tensortide.open(path, hyperparameters={"batch": batch}).graph
        assert count(graph, strict=True).total.macs == 4 * batch * 4 * 4 * 9 * 2 * 8


def test_sizes_that_are_open_beside_the_batch_are_said_to_be_those_stored(maker: Maker) -> None:
    tf, module = maker.tf, maker.module
    path = maker.write(lambda x: x @ module.square @ tf.transpose(x), tf.TensorSpec((None, 5)))
    graph = tensortide.open(path).graph
    assert any("open in the file" in note for note in graph.meta.decisive)


def test_a_choice_has_a_range(maker: Maker) -> None:
    tf, square = maker.tf, maker.module.square

    def choice(x: Any, p: Any) -> Any:
        return tf.cond(p, lambda: x @ square, lambda: tf.nn.relu(x @ square) @ square)

    low, high = count(
        tensortide.open(maker.write(choice, tf.TensorSpec((3, 5)), tf.TensorSpec((), tf.bool))).graph
    ).range
    assert (low.macs, high.macs) == (75, 150)


def test_half_weights_stand_behind_dequantize(maker: Maker) -> None:
    tf, module = maker.tf, maker.module
    spec = tf.TensorSpec((None, 8, 8, 4))
    graph = tensortide.open(
        maker.write(lambda x: tf.nn.conv2d(x, module.groups, 2, "SAME"), spec, half=True), hyperparameters={"batch": 3}
    ).graph
    assert count(graph, strict=True).total.macs == 3 * 16 * 9 * 2 * 8
    assert truths.learned(graph) == 9 * 2 * 8 + 8  # the converter adds a bias
    assert 2 * 9 * 2 * 8 in {storage.nbytes for storage in graph.storages if storage.role == "parameter"}
