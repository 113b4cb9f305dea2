"""Signs of scaling of the closed form, over a grid of models, devices and strategies."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from tensortide.parallelism.closed import Configuration, Transformer, predict_step, shipped
from tensortide.parallelism.pipelines import SCHEDULES, PipelineName
from tensortide.timing.collectives import Nodes, nodes_of

SHAPES = [
    Transformer(layers=16, hidden=1536, heads=16, seq=1024),
    Transformer(layers=48, hidden=5120, heads=64),
    Transformer(layers=96, hidden=14336, heads=112, seq=4096),
]
DEVICES = ("A100-SXM-80GB", "H100-SXM-80GB")
grid = pytest.mark.parametrize(("shape", "device"), list(itertools.product(SHAPES, DEVICES)))


def nodes(count: int, device: str) -> Nodes:
    return nodes_of(device, devices_per_node=8, nodes=count)


def seconds(shape: Transformer, one: Configuration, device: str, *, count: int | None = None) -> float:
    return predict_step(shape, one, nodes(count or one.devices // 8, device)).time.time_ns / 1e9


def assert_grows(values: list[float]) -> None:
    assert values == sorted(values)
    assert values[0] < values[-1]


@grid
@pytest.mark.parametrize(("zero", "overlap"), [(0, False), (0, True), (1, True), (2, False), (3, False), (3, True)])
def test_more_replicas_at_a_fixed_batch_cost_more_device_time(
    shape: Transformer, device: str, zero: int, overlap: bool
) -> None:
    one = Configuration(batch=2048, tensor=8, zero=zero, overlap_data=overlap)
    assert_grows([seconds(shape, replace(one, data=d), device) * d for d in (2, 4, 8, 32, 128, 512, 2048)])


@grid
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_longer_pipelines_at_fixed_micro_batches_idle_more(
    shape: Transformer, device: str, schedule: PipelineName
) -> None:
    chunks = SCHEDULES[schedule].least_chunks
    shares = []
    for pipeline in (2, 4, 8):
        one = Configuration(batch=64, tensor=8, pipeline=pipeline, chunks=chunks, schedule=schedule)
        found = predict_step(shape, one, nodes(pipeline, device))
        shares.append(found.parts["bubble"] / found.time.time_ns)
    assert_grows(shares)


@grid
def test_more_micro_batches_idle_less(shape: Transformer, device: str) -> None:
    shares = []
    for batch in (128, 64, 32, 8):
        found = predict_step(shape, Configuration(batch=batch, tensor=8, pipeline=8), nodes(8, device))
        shares.append(found.parts["bubble"] / found.time.time_ns)
    assert_grows(shares)


@grid
@pytest.mark.parametrize("sequence", [False, True])
def test_tensor_groups_over_more_nodes_hurt(shape: Transformer, device: str, sequence: bool) -> None:
    one = Configuration(batch=64, sequence=sequence)
    assert_grows([seconds(shape, replace(one, tensor=t, data=64 // t), device) for t in (8, 16)])


@grid
def test_more_work_takes_longer(shape: Transformer, device: str) -> None:
    one = Configuration(batch=256, tensor=8, pipeline=2, data=2)
    grown = {
        "layers": [replace(shape, layers=n * shape.layers) for n in (1, 2, 4)],
        "hidden": [replace(shape, hidden=n * shape.hidden) for n in (1, 2, 4)],
        "seq": [replace(shape, seq=n * shape.seq) for n in (1, 2, 4)],
        "vocab": [replace(shape, vocab=n * shape.vocab) for n in (1, 2, 4)],
    }
    for several in grown.values():
        assert_grows([seconds(each, one, device) for each in several])
    assert_grows([seconds(shape, replace(one, batch=n), device) for n in (64, 128, 256, 1024)])
    assert_grows([seconds(shape, replace(one, recompute=how), device) for how in ("none", "selective", "full")])


@grid
def test_a_vocabulary_that_tensor_cores_cannot_read_is_slower_than_a_longer_one(
    shape: Transformer, device: str
) -> None:
    one = Configuration(batch=64, data=8)
    odd, padded = (seconds(replace(shape, vocab=words), one, device) for words in (50257, 50304))
    assert odd > padded


def test_layers_that_many_steps_had_are_corrected_and_no_others() -> None:
    """vTrain's table has 30 steps of this layer, whatever their depth and degrees."""
    shape = Transformer(layers=24, hidden=2048, heads=16, seq=1024)
    one = Configuration(batch=64, micro_batch=2, data=2, tensor=4, recompute="none")
    found = predict_step(shape, one, nodes(1, DEVICES[0]))
    assert found.factor is not None
    assert found.factor < 0.9
    deeper = predict_step(replace(shape, layers=48), replace(one, data=1, pipeline=2), nodes(1, DEVICES[0]))
    assert deeper.factor == found.factor
    assert predict_step(shape, replace(one, dtype="bfloat16"), nodes(1, DEVICES[0])).factor == found.factor
    for other, device in ((replace(one, micro_batch=16), DEVICES[0]), (one, DEVICES[1])):
        assert predict_step(shape, other, nodes(1, device)).factor is None
    assert predict_step(replace(shape, kv_heads=4), one, nodes(1, DEVICES[0])).factor is None


def test_stages_exchange_the_gradient_of_the_shared_table_and_a_norm_once() -> None:
    """Two nodes, a stage each; two hops between nodes of 14 us for the table, and two for the norm."""
    shape, known = SHAPES[1], shipped().constants
    where = nodes_of("A100-SXM-80GB", devices_per_node=8, nodes=2)

    def exchanged(batch: int, **changes: int) -> float:
        one = replace(Configuration(batch=batch, tensor=8, pipeline=2), **changes)
        return predict_step(shape, one, where).parts["data"]

    assert where.nic is not None
    nbytes = 4 * shape.vocab * shape.hidden / 8  # each rank of a tensor group has its part
    rate = known.nic * float(where.nic.bytes_per_s) * where.nics / 8
    assert exchanged(8) == pytest.approx(known.gradients * nbytes / rate * 1e9 + 4 * 14_000)
    assert exchanged(64) == exchanged(8)
    assert exchanged(8, gradient_bytes=2) == pytest.approx((exchanged(8) + 4 * 14_000) / 2)
    alone = nodes_of("A100-SXM-80GB", devices_per_node=8)
    assert predict_step(shape, Configuration(batch=8, tensor=8), alone).parts["data"] == 0
