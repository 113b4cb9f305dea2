"""Options and corrections of the simulator, each on a net of three layers whose times can be added up by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensortide.errors import TensortideError
from tensortide.placements import ACCURATE, COMPAT, Cluster, Net, OpTimes, Simulation, simulate
from tensortide.timing.clusters.device_graphs import DeviceGraph, GraphChannel, GraphDevice, Neighbour, as_cluster
from tensortide.timing.paleo.layers import Entry

DATA = Entry(type="Input", tensor=(1, 250_000))
"""A megabyte, which takes a millisecond over 8 Gbit/s."""
FAN = Net(
    "fan", {"data": DATA, "a": Entry(type="Softmax", parents=("data",)), "b": Entry(type="Softmax", parents=("data",))}
)
CHAIN = Net("chain", {"data": DATA, "a": Entry(type="Softmax", parents=("data",))})
CROSS = Net(
    "cross",
    {
        "left": DATA,
        "right": DATA,
        "a": Entry(type="Softmax", parents=("left",)),
        "b": Entry(type="Softmax", parents=("right",)),
    },
)
SLOW = GraphChannel(bandwidth=8)


def machine(links: dict[tuple[int, int], int], *channels: GraphChannel, switches: tuple[int, ...] = ()) -> Cluster:
    """Devices with such links, each way of a pair."""
    count = 1 + max(max(pair) for pair in links)
    both = links | {(j, i): channel for (i, j), channel in links.items()}
    devices = [
        GraphDevice(
            model=f"d{i}",
            clock=1000,
            peak_gflops=1,
            memory=1,
            type="switch" if i in switches else "gpu",
            neighbours=tuple(Neighbour(j, channel) for (k, j), channel in sorted(both.items()) if k == i),
        )
        for i in range(count)
    ]
    return as_cluster(DeviceGraph(channels, tuple(devices)), "by hand")


STAR = machine({(0, 1): 0, (0, 2): 1, (1, 2): 1}, SLOW, SLOW)
PAIR = machine({(0, 1): 0}, SLOW)


def run(net: Net, cluster: Cluster, place: list[int], **options: Any) -> Simulation:
    """Every layer takes a millisecond, forward and backward."""
    ones = np.ones((len(net.order), len(cluster.devices)))
    settings = {"include_backward": False, "mode": ACCURATE, **options}
    by_name = dict(zip(net.entries, place, strict=True))
    return simulate(net, cluster, by_name, times=OpTimes(ones, ones), **settings)


def test_a_gap_delays_the_next_op_but_not_the_result() -> None:
    assert run(FAN, STAR, [0, 0, 0]).makespan == 3
    assert run(FAN, STAR, [0, 0, 0], op_gap_us=100).makespan == pytest.approx(3.2)


def test_transfers_queue_on_their_channel_or_on_the_bus_of_the_sender() -> None:
    assert run(FAN, STAR, [0, 1, 2]).makespan == pytest.approx(3)
    assert run(FAN, STAR, [0, 1, 2], egress="device").makespan == pytest.approx(4)
    assert run(FAN, STAR, [0, 1, 2], egress="device").lanes[3:] == ("out of 0", "out of 1", "out of 2")
    assert run(FAN, STAR, [0, 1, 2], egress="device", transfer_overhead_us=500).makespan == pytest.approx(4.5)


def test_latency_counts_in_accurate_mode_alone() -> None:
    late = machine({(0, 1): 0}, GraphChannel(bandwidth=8, latency_us=500))
    assert run(CHAIN, late, [0, 1]).makespan == pytest.approx(3.5)
    compat = run(CHAIN, late, [0, 1], mode=COMPAT)
    assert compat.makespan == pytest.approx(2 + 1e6 / 2**30 * 1000)
    assert (compat.mode, run(CHAIN, late, [0, 1]).mode) == ("compat", "accurate")


def test_duplex_channels_carry_both_directions_at_once() -> None:
    both = machine({(0, 1): 0}, GraphChannel(bandwidth=8, duplex=True))
    assert run(CROSS, PAIR, [0, 1, 1, 0]).makespan == pytest.approx(4)
    assert run(CROSS, both, [0, 1, 1, 0]).makespan == pytest.approx(3)
    assert run(CROSS, both, [0, 1, 1, 0], mode=COMPAT).makespan > 3.8


def test_without_a_link_data_are_routed_over_other_devices() -> None:
    line = machine({(0, 1): 0, (1, 2): 1}, SLOW, SLOW)
    found = run(CHAIN, line, [0, 2])
    assert found.makespan == pytest.approx(4)
    assert [event.kind for event in found.trace if event.on_lane and event.kind != "wakeup"] == ["hop", "transfer"]
    assert found.transfers == 1
    with pytest.raises(TensortideError, match=r"no link leads from device 0 \(d0\) to device 2 \(d2\)"):
        run(CHAIN, line, [0, 2], mode=COMPAT)


def test_a_switch_passes_data_on_as_they_arrive() -> None:
    even = machine({(0, 1): 0, (1, 2): 1}, SLOW, SLOW, switches=(1,))
    slower = machine({(0, 1): 0, (1, 2): 1}, SLOW, GraphChannel(bandwidth=4), switches=(1,))
    assert run(CHAIN, even, [0, 2]).makespan == pytest.approx(3)
    assert run(CHAIN, slower, [0, 2]).makespan == pytest.approx(4)
    with pytest.raises(TensortideError, match=r"layer 'a' is placed on device 1, a switch"):
        run(CHAIN, even, [0, 1])


def test_priorities_order_what_waits_for_a_device() -> None:
    order = FAN.order
    urgent = tuple(float(name == "a") for name in order)
    first = run(FAN, STAR, [0, 0, 0]).trace
    other = run(FAN, STAR, [0, 0, 0], priority=urgent).trace
    named = [[event.layer for event in trace if event.kind == "op"] for trace in (first, other)]
    assert named == [["data", "a", "b"], ["data", "b", "a"]]


def test_activations_are_released_at_their_last_use_without_a_backward_part() -> None:
    found = run(FAN, STAR, [0, 0, 0], batches=3)
    assert found.memory.nbytes[0].max() == 10**6
    assert found.memory.nbytes[0, -1] == 0
    published = run(FAN, STAR, [0, 0, 0], batches=3, mode=COMPAT)
    assert published.memory.nbytes[0, -1] == 3 * 10**6
    assert run(FAN, STAR, [0, 0, 0], batches=3, mode=COMPAT, release="last_use").memory.nbytes[0, -1] == 0


def test_training_holds_gradients_and_the_state_of_the_optimizer() -> None:
    dense = Net("dense", {"data": DATA, "fc": Entry(type="InnerProduct", parents=("data",), num_outputs=10)})
    weights = (250_000 * 10 + 10) * 4
    resident = [
        run(dense, PAIR, [0, 0], include_backward=True, optimizer=optimizer).memory.nbytes[0, 0]
        for optimizer in ("sgd", "momentum", "adam")
    ]
    assert resident == [2 * weights, 3 * weights, 4 * weights]
    assert run(dense, PAIR, [0, 0], include_backward=True, mode=COMPAT).memory.nbytes[0, 0] == weights


def test_over_use_is_a_penalty_or_a_failure() -> None:
    small = as_cluster(DeviceGraph((SLOW,), tuple(device_of(memory) for memory in (1e-4, 1))), "small")
    free = run(CHAIN, small, [0, 0], mode=COMPAT)
    over = 10**6 - 1e5
    assert (free.score, free.over_use, free.fits) == (-1, (over, 0), False)
    assert run(CHAIN, small, [0, 0], mode=COMPAT, memory_penalization_factor=2).score == 2 + 2 * over
    assert run(CHAIN, small, [1, 1], mode=COMPAT).score == 2
    half = run(CHAIN, small, [1, 1], mode=COMPAT, device_memory_utilization=0.0005)
    assert half.over_use == (0, 500_000)


def device_of(memory: float) -> GraphDevice:
    return GraphDevice(model="d", clock=1, peak_gflops=1, memory=memory, neighbours=())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batches": 0}, "batches is 0"),
        ({"pipeline_batches": -1}, "pipeline_batches is -1"),
        ({"batches": 1.5}, r"batches is 1\.5: a whole number"),
        ({"batch_size": 1 << 60}, r"have 2\^62 bytes or more"),
        ({"batch_size": 1 << 37, "batches": 64, "pipeline_batches": 64}, r"of 64 batches in flight have 2\^62 bytes"),
        ({"batches": 1 << 40, "pipeline_batches": 1 << 40}, "lower pipeline_batches"),
        ({"batches": 1 << 40}, "1,099,511,627,776 batches of 3 layers are too many to simulate: 33,333,333 batches"),
        ({"comp_penalization": 0}, "comp_penalization is 0"),
        ({"comm_penalization": float("nan")}, "comm_penalization is nan"),
        ({"ties": "random"}, "ties is 'random': one of heap, fifo"),
        ({"egress": "bus"}, "no egress is called 'bus'"),
        ({"priority": (1.0,)}, r"priority has 1 numbers: one for each of 3 layers"),
        ({"release": "last_use", "include_backward": True}, "include_backward=False"),
        ({"dtype": "int3"}, "dtype is 'int3'"),
    ],
)
def test_settings_that_cannot_be_are_one_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TensortideError, match=message):
        run(FAN, STAR, [0, 0, 0], **options)


def test_a_given_time_that_is_not_finite_is_named_by_layer_and_device() -> None:
    net = Net("two", {"data": DATA, "a": Entry(type="InnerProduct", parents=("data",), num_outputs=2)})
    times = np.array([[1.0, 1.0], [np.inf, 1.0]])
    with pytest.raises(TensortideError, match=r"layer a takes inf ms on device 0 .*: times are 0 or more, and finite"):
        simulate(net, PAIR, [0, 1], times=OpTimes(times, times))
