"""Times of layers in accurate mode: work counted by hand, gradients found from the graph, each correction by itself."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import TensortideError
from tensortide.placements import ACCURATE, COMPAT, MODES, Mode, Net, Rates, layer_times
from tensortide.placements.op_times.work import layer_work
from tensortide.timing.clusters.device_graphs import DeviceGraph, GraphChannel, GraphDevice, as_cluster
from tensortide.timing.paleo.layers import Entry
from tensortide.timing.paleo.parts import Work
from tests.placements.cases import net

INPUT = Entry(type="Input", tensor=(2, 5, 6, 3))


def conv(parent: str, channels: int = 4, stride: int = 1, padding: str = "SAME") -> Entry:
    strides = (1, stride, stride, 1)
    return Entry(type="Convolution", parents=(parent,), filter=(3, 3, -1, channels), strides=strides, padding=padding)


def work(net: Net, mode: Mode) -> dict[str, tuple[Work, Work]]:
    """All work of each layer, forward and backward."""
    found = zip(net.order, layer_work(net, net.layers(), mode), strict=True)
    return {name: (total(forward), total(backward)) for name, (forward, backward) in found}


def total(works: tuple[Work, ...]) -> Work:
    return Work(sum(one.flops for one in works), tuple(nbytes for one in works for nbytes in one.tensors))


@given(st.integers(1, 3), st.sampled_from(["SAME", "VALID"]), st.integers(1, 5))
def test_a_convolution_counts_a_product_for_each_output_input_and_weight(
    stride: int, padding: str, channels: int
) -> None:
    drawn = Net("drawn", {"image": INPUT, "one": conv("image"), "two": conv("one", channels, stride, padding)})
    forward, backward = work(drawn, ACCURATE)["two"]
    batch, high, wide, out = drawn.layers()[2].output
    products = sum(1 for _ in itertools.product(range(batch), range(high), range(wide), range(out), range(3 * 3 * 4)))
    assert forward.flops == 2 * products + batch * high * wide * out  # and a bias for each output
    assert backward.flops == 2 * 2 * products + batch * high * wide * out
    x, weights, y = 2 * 5 * 6 * 4 * 4, 3 * 3 * 4 * out * 4, batch * high * wide * out * 4
    assert sorted(forward.tensors) == sorted([x, weights, y, out * 4])
    assert sum(backward.tensors) == 2 * (x + weights + y) + y + out * 4


def test_the_gradient_of_the_data_follows_from_the_graph_and_not_from_a_name() -> None:
    image = Net("image", {"image": INPUT, "first": conv("image"), "data": conv("first"), "last": conv("data")})
    accurate = {
        name: parts[1].flops > 0 for name, parts in work(image, replace(ACCURATE, filter_gradient=False)).items()
    }
    compat = {name: parts[1].flops > 0 for name, parts in work(image, COMPAT).items()}
    assert accurate == {"image": False, "first": False, "data": True, "last": True}
    assert compat == {"image": False, "first": True, "data": True, "last": False}


def test_the_published_gradient_of_a_dense_window_is_twenty_times_its_arithmetic() -> None:
    alexnet, layers = net("alex_v2"), net("alex_v2").layers(128)
    fc6 = alexnet.index["fc6"]
    products = replace(ACCURATE, filter_gradient=False, every_layer=False)
    published, corrected = (
        [total(part) for part in layer_work(alexnet, layers, mode)[fc6]] for mode in (COMPAT, products)
    )
    assert published[1].flops / published[0].flops == pytest.approx(25, rel=0.01)
    assert corrected[1].flops == corrected[0].flops == published[0].flops


def test_layers_that_only_move_data_take_the_time_of_their_bytes() -> None:
    add = Entry(type="Elementwise", parents=("one", "two"))
    drawn = Net("drawn", {"image": INPUT, "one": conv("image"), "two": conv("image"), "add": add})
    forward, backward = work(drawn, ACCURATE)["add"]
    elements = 2 * 5 * 6 * 4
    assert forward == backward
    assert list(forward.tensors) == [2 * elements * 4, elements * 4]
    assert work(drawn, COMPAT)["add"] == (Work(), Work())


def test_activations_and_normalisations_are_kernels_of_their_own() -> None:
    bare = Net("bare", {"image": INPUT, "one": conv("image")})
    both = msgspec.structs.replace(conv("image"), activation_fn="relu", normalizer_fn="batch_norm")
    full = Net("full", {"image": INPUT, "one": both})
    counts = [[len(part) for part in layer_work(net, net.layers(), ACCURATE)[1]] for net in (bare, full)]
    assert counts == [[1, 2], [3, 4]]  # products; gradients of weights and bias; two more of each
    moved = 2 * 5 * 6 * 4 * 4
    less, more = work(bare, ACCURATE)["one"], work(full, ACCURATE)["one"]
    extra = [sum(b.tensors) - sum(a.tensors) for a, b in zip(less, more, strict=True)]
    assert extra == [2 * 2 * moved, 2 * 3 * moved]
    assert work(full, COMPAT) == work(bare, COMPAT)


def test_a_part_takes_the_longer_of_computing_and_moving_and_a_launch() -> None:
    device = GraphDevice(model="d", clock=1000, peak_gflops=1000, memory=1, mem_bandwidth=10, peaks={"bfloat16": 4000})
    cluster = as_cluster(DeviceGraph((GraphChannel(bandwidth=1),), (device,)), "one")
    dense = Entry(type="InnerProduct", parents=("data",), num_outputs=1000)
    drawn = Net("drawn", {"data": Entry(type="Input", tensor=(1000, 1000)), "fc": dense})
    flops, nbytes = 2e9 + 1e6, 4 * (3e6 + 1000)

    def forward(**rates: object) -> float:
        made = replace(Rates(launch_us=7), **rates)  # type: ignore[arg-type]
        return float(layer_times(drawn, cluster, drawn.layers(), ACCURATE, made).forward[1, 0])

    assert forward() == pytest.approx(flops / 1e12 * 1e3 + 0.007)
    assert forward(compute=0.5) == pytest.approx(2 * flops / 1e12 * 1e3 + 0.007)
    assert forward(memory=0.1) == pytest.approx(nbytes / 1e9 * 1e3 + 0.007)
    assert forward(dtype="bfloat16") == pytest.approx(max(flops / 4e12, nbytes / 2 / 10e9) * 1e3 + 0.007)
    with pytest.raises(TensortideError, match="device 'd' has no peak of float16: it has float32, bfloat16"):
        forward(dtype="float16")


def test_a_transposed_convolution_has_the_products_of_the_convolution_back() -> None:
    up = Entry(
        type="Deconvolution", parents=("image",), filter=(2, 2, 3, 7), strides=(1, 2, 2, 1), output_shape=(2, 10, 12, 7)
    )
    drawn = Net("drawn", {"image": INPUT, "up": up})
    forward, _ = work(drawn, COMPAT)["up"]
    assert forward.flops == 2 * (2 * 2 * 3 * 7) * (2 * 5 * 6)
    assert drawn.layers()[1].output == (2, 10, 12, 7)


def test_modes_switch_every_fault_on_or_off() -> None:
    assert list(MODES) == ["compat", "accurate"]
    for switch in fields(Mode):
        assert (getattr(COMPAT, switch.name), getattr(ACCURATE, switch.name)) == (False, True)
        assert replace(ACCURATE, **{switch.name: False}).name == f"accurate without {switch.name}"
        assert replace(COMPAT, **{switch.name: True}).name == f"compat with {switch.name}"


def test_steps_that_were_half_counted_are_whole() -> None:
    resnet, layers = net("resnet50"), net("resnet50").layers(128)
    half = replace(ACCURATE, filter_gradient=False)
    device = GraphDevice(model="d", clock=1000, peak_gflops=10_000, memory=1, mem_bandwidth=1000)
    cluster = as_cluster(DeviceGraph((GraphChannel(bandwidth=1),), (device,)), "one")
    whole_ms, half_ms = (
        float(np.sum(layer_times(resnet, cluster, layers, mode, Rates()).forward))
        + float(np.sum(layer_times(resnet, cluster, layers, mode, Rates()).backward))
        for mode in (ACCURATE, half)
    )
    assert 0.6 < half_ms / whole_ms < 0.75  # the published share of ResNet-50 is 0.689
