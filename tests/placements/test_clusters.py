"""Cluster files and device graphs: networks of layers and captured steps run on either."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import TensortideError
from tensortide.placements import COMPAT, Settings, graph_of, load_cluster, plan_of, simulate
from tensortide.placements.graphs.measured_links import links_meant
from tensortide.placements.op_times.times import net_devices
from tensortide.placements.simulator.routing import routing
from tensortide.timing.clusters.device_graphs import DeviceGraph, GraphChannel, GraphDevice, Neighbour, as_cluster
from tests.placements.cases import net

CLUSTER: dict[str, Any] = {
    "name": "box",
    "devices": [
        {"name": "cpu", "memory_bytes": 64e9, "device": {"name": "24 cores", "kind": "cpu", "fp32_tflops": 1.5,
                                                     "memory_gbytes_per_s": 90}},
        {"name": "gpu", "count": 2, "device": "A100-SXM-80GB"},
    ],
    "links": [
        {"between": ["gpu*"], "link": "300GB/s,2us"},
        {"between": ["cpu", "gpu*"], "link": {"bytes_per_s": 20e9, "latency_ns": 45e3, "back_bytes_per_s": 5e9}},
    ],
}  # fmt: skip


def device(*links: tuple[int, int], **more: Any) -> dict[str, Any]:
    neighbours = [{"device": j, "comm_channel": c} for j, c in links]
    return {"model": "K80", "clock": 560, "peak_gflops": 5600, "memory": 12, "mem_bandwidth": 480,
            "neighbours": neighbours, **more}  # fmt: skip


def channel(gbits: float, **more: Any) -> dict[str, Any]:
    return {"type": "pcie3", "bandwidth": gbits, **more}


GRAPH: dict[str, Any] = {
    "comm_channels": [channel(128, latency_us=3), channel(64, latency_us=3), channel(80, duplex=True)],
    "devices": [
        device((1, 0), (2, 0), type="cpu", clock=24_000, peak_gflops=1500, memory=64, mem_bandwidth=90),
        device((0, 0), (2, 2), peaks={"float16": 11_200}),
        device((0, 1), (1, 2)),
    ],
}


def written(folder: Path, content: Any) -> Path:
    path = folder / "given.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def test_a_device_graph_is_a_cluster_with_its_figures_and_its_queues(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, GRAPH))
    assert [each.name for each in cluster.devices] == ["cpu0", "gpu1", "gpu2"]
    gpu = cluster.devices[1]
    assert (gpu.row.name, gpu.row.kind, gpu.row.fp32_tflops, gpu.row.fp16_tflops) == ("K80", "gpu", 5.6, 11.2)
    assert (gpu.row.memory_gbytes_per_s, gpu.capacity_bytes) == (480, 12 * 10**9)
    took = {lane.name: lane.transfer_ns(80_000_000) for lane in cluster.wires}
    assert took == {
        "cpu0 > gpu1": 5_003_000,  # 128 Gbit/s are 16 GB/s
        "gpu1 > cpu0": 5_003_000,
        "cpu0 > gpu2": 5_003_000,
        "gpu2 > cpu0": 10_003_000,
        "gpu1 > gpu2": 8_000_000,
        "gpu2 > gpu1": 8_000_000,
    }
    queue = dict(zip(took, cluster.queues, strict=True))
    assert queue["cpu0 > gpu1"] == queue["gpu1 > cpu0"] == queue["cpu0 > gpu2"]
    assert len(set(queue.values())) == 4
    assert [each.duplex for each in cluster.channels] == [False, False, True]


def test_networks_of_layers_run_on_a_cluster_file_with_its_figures(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, CLUSTER))
    host, gpu, _ = net_devices(cluster)
    assert host is not None
    assert gpu is not None
    assert (host.paleo.name, host.peak("float32"), host.paleo.mem_bandwidth) == ("24 cores", 1500, 90)
    assert (gpu.peak("float16"), gpu.paleo.clock_mhz) == (312_000, 1410)
    routes = routing(cluster, routed=True).routes
    for lane in cluster.wires:
        (hop,) = routes[lane.source, lane.target]
        nbytes = 123_456_789
        assert hop.latency_ms * 1e6 + nbytes / hop.gbytes_per_s == pytest.approx(lane.transfer_ns(nbytes), abs=1)
    lanes = {(source, target): hops[0].lane for (source, target), hops in routes.items()}
    assert len(set(lanes.values())) == len(lanes), "duplex links have a queue each way"
    assert simulate(net("mnist"), cluster, [1] * 9).makespan > 0


def test_devices_keep_their_names_in_runs_plans_and_lanes(tmp_path: Path) -> None:
    graph = load_cluster(written(tmp_path, CLUSTER))
    run = simulate(net("mnist"), graph, [0, 1, 2] * 3)
    links = ("gpu0 > gpu1", "gpu1 > gpu0", "cpu > gpu0", "gpu0 > cpu", "cpu > gpu1", "gpu1 > cpu")
    assert run.lanes == ("cpu", "gpu0", "gpu1", *links)
    assert [lane.device for lane in plan_of(run).lanes] == ["cpu", "gpu0", "gpu1"]
    assert {storage.device for storage in graph_of(run).storages} == {"cpu", "gpu0", "gpu1"}
    sent = {(each.source, each.target, run.lanes[3 + each.resource]) for each in run.trace if each.kind == "transfer"}
    ways = {(0, 1): "cpu > gpu0", (1, 0): "gpu0 > cpu", (1, 2): "gpu0 > gpu1", (2, 0): "gpu1 > cpu"}
    back = {(0, 2): "cpu > gpu1", (2, 1): "gpu1 > gpu0"}
    assert sent == {(*way, name) for way, name in {**ways, **back}.items()}
    sides = routing(graph, routed=True, egress="device").lanes
    assert sides == ("out of cpu", "out of gpu0", "out of gpu1")


def test_a_queue_for_both_ways_has_the_names_of_both_ends_and_one_of_many_links_its_number(tmp_path: Path) -> None:
    links = [{"between": ["*"], "link": "20GB/s", "duplex": False}]
    shared = load_cluster(written(tmp_path, {**CLUSTER, "links": links}))
    assert routing(shared, routed=True).lanes == ("cpu - gpu0", "cpu - gpu1", "gpu0 - gpu1")
    named = [{**each, "id": f"d{number}"} for number, each in enumerate(GRAPH["devices"])]
    graph = load_cluster(written(tmp_path, {**GRAPH, "devices": named}))
    lanes = routing(graph, routed=True).lanes
    assert lanes == ("channel 0 (pcie3)", "d2 > d0", "d1 > d2", "d2 > d1")
    assert [each.name for each in load_cluster(written(tmp_path, {**GRAPH, "devices": named})).devices] == [
        "d0",
        "d1",
        "d2",
    ]


def test_a_device_is_found_by_its_name_before_its_number(tmp_path: Path) -> None:
    named = [{**each, "id": name} for name, each in zip(("1", "b", None), GRAPH["devices"], strict=True)]
    graph = load_cluster(written(tmp_path, {**GRAPH, "devices": named}))
    assert (graph.names, [*map(graph.device_number, ("1", "b", "2", "0"))]) == (("1", "b", "gpu2"), [0, 1, 2, 0])
    for text in ("3", "B", "-1", ""):
        with pytest.raises(TensortideError, match=f"there is no device '{text}'; its devices are 1, b, gpu2"):
            graph.device_number(text)
    named[2]["id"] = "b"
    with pytest.raises(TensortideError, match="2 devices have the name 'b'"):
        load_cluster(written(tmp_path, {**GRAPH, "devices": named}))


FIGURES = st.floats(1e-3, 1e9, allow_subnormal=False).map(lambda value: float(f"{value:.12g}"))


@given(FIGURES, FIGURES, FIGURES, st.integers(1, 10**6))
def test_figures_of_a_device_graph_come_back_to_the_bit(gflops: float, gbits: float, clock: float, memory: int) -> None:
    part = GraphDevice(model="d", clock=clock, peak_gflops=gflops, memory=memory / 1000, mem_bandwidth=gbits)
    ends = tuple(msgspec.structs.replace(part, neighbours=(Neighbour(end, 0),)) for end in (1, 0))
    cluster = as_cluster(DeviceGraph((GraphChannel(bandwidth=gbits),), ends), "two")
    found = net_devices(cluster)[0]
    assert found is not None
    assert (found.paleo.peak_gflops, found.paleo.clock_mhz, found.paleo.mem_bandwidth) == (gflops, clock, gbits)
    assert routing(cluster, routed=False).routes[0, 1][0].gbytes_per_s == gbits / 8
    assert cluster.devices[0].capacity_bytes == int(memory / 1000 * 1e9)


@pytest.mark.parametrize(
    ("devices", "channels", "message"),
    [
        ([device((1, 0)), device((0, 0), type="switch")], [channel(8)], "'switch1' is a switch"),
        ([device((1, 0)), device()], [channel(8)], "no links lead from 'gpu0' to 'gpu1' and back"),
    ],
)
def test_what_a_step_cannot_have_is_named(
    devices: list[Any], channels: list[Any], message: str, tmp_path: Path
) -> None:
    cluster = load_cluster(written(tmp_path, {"comm_channels": channels, "devices": devices}))
    with pytest.raises(TensortideError, match=message):
        cluster.check_for_steps()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"peaks": {"int4": 1}}, "device 0 has a peak of 'int4'; known are float64, float32"),
        ({"modl": 1}, r"devices\[0\]: unknown key 'modl'"),
        ({"mem_bandwidth": 1e40}, "memory_gbytes_per_s is 1e"),
    ],
)
def test_what_a_cluster_cannot_have_is_named(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = written(tmp_path, {"comm_channels": [channel(8)], "devices": [device((1, 0), **more), device((0, 0))]})
    with pytest.raises(TensortideError, match=message) as error:
        load_cluster(path)
    assert str(error.value).startswith(str(path))


def test_each_way_of_a_step_has_the_latency_of_its_channel(tmp_path: Path) -> None:
    channels = [channel(8), channel(8, latency_us=5)]
    graph = {"comm_channels": channels, "devices": [device((1, 0)), device((0, 1))]}
    cluster = load_cluster(written(tmp_path, graph))
    assert [lane.link.latency_ns for lane in cluster.wires] == [0, 5000]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("Intel i9-13900K", "given: Intel i9-13900K.* has no fp32_tflops, which layers are timed by"),
        (CLUSTER["devices"][0]["device"], "given: the memory of 'a' is not known: give its 'memory_bytes'"),
    ],
)
def test_what_layers_cannot_have_is_named(given: object, message: str, tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, {"devices": [{"name": "a", "device": given}]}))
    with pytest.raises(TensortideError, match=message):
        simulate(net("mnist"), cluster, [0] * 9)


def test_the_published_model_needs_a_clock(tmp_path: Path) -> None:
    graph = load_cluster(written(tmp_path, CLUSTER))
    with pytest.raises(TensortideError, match="24 cores has no boost_mhz, which the published model needs"):
        simulate(net("mnist"), graph, [1] * 9, Settings(mode=COMPAT))


def test_measured_links_go_into_cluster_files_alone(tmp_path: Path) -> None:
    with pytest.raises(TensortideError, match="is a device graph: measured links go into cluster files"):
        links_meant(written(tmp_path, GRAPH), (), kind="gpu")


PIECES = (
    *(
        '""',
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "0",
        "-1",
        "1e999",
        "9" * 5000,
        "null",
        "NaN",
        "true",
        '"*"',
        '"\\n"',
        "\\u0000",
    ),
    *("é", '"gpu*"', "2000", '"1e999GB/s"', '"0GB/s"', '"device"', '"links"', '"comm_channels"', "[" * 5000, "\x00"),
)


def mutated(text: str, draw: random.Random) -> str:
    """``text`` after one to three changes, of which most leave it JSON: values, keys, and parts moved or doubled."""
    for _ in range(draw.randint(1, 3)):
        at, size = draw.randrange(len(text)), draw.choice((0, 1, 1, 2, 5, 20))
        match draw.randrange(4):
            case 0:
                text = text[:at] + text[at + size :]
            case 1:
                text = text[:at] + draw.choice(PIECES) + text[at + size :]
            case 2:
                text = text[:at] + text[at : at + size] * 2 + text[at + size :]
            case _:
                words = text.split('"')
                word = draw.randrange(len(words))
                words[word] = draw.choice([draw.choice(words), draw.choice(PIECES)])
                text = '"'.join(words)
    return text or " "


@pytest.mark.parametrize("content", [CLUSTER, GRAPH], ids=["cluster file", "device graph"])
def test_damaged_files_are_read_or_refused_in_one_line(content: dict[str, Any], tmp_path: Path) -> None:
    draw = random.Random(1)
    messages = []
    for _ in range(300):
        path = written(tmp_path, mutated(json.dumps(content), draw))
        try:
            load_cluster(path)
        except TensortideError as error:
            messages.append(str(error))
    assert len(messages) > 140
    assert all(message.startswith(str(tmp_path)) and len(message.splitlines()) == 1 for message in messages)
