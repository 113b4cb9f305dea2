"""Cluster files of captured steps and device graphs of networks: each is read as the other, or says why not."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import TensortideError
from tensortide.placements import COMPAT, Settings, graph_of, plan_of, read_device_graph, simulate
from tensortide.placements.device_graphs import wiring
from tensortide.placements.graphs import load_cluster
from tensortide.placements.graphs.measured_links import links_meant
from tests.placements.cases import graph_file, net

CLUSTER: dict[str, Any] = {
    "name": "box",
    "devices": [
        {"name": "cpu", "memory": "64GB", "device": {"name": "24 cores", "kind": "cpu", "fp32_tflops": 1.5,
                                                     "memory_gbytes_per_s": 90}},
        {"name": "gpu", "count": 2, "device": "A100-SXM-80GB"},
    ],
    "links": [
        {"between": ["gpu*"], "link": "300GB/s,2us"},
        {"between": ["cpu", "gpu*"], "link": "20GB/s", "back": "5GB/s"},
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
    took = {lane.name: lane.transfer_ns(80_000_000) for lane in cluster.lanes}
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
    assert max(queue.values()) < len(cluster.lanes)
    assert [each.duplex for each in cluster.connections] == [False, True, True]


def test_a_cluster_file_is_a_device_graph_with_its_figures(tmp_path: Path) -> None:
    path = written(tmp_path, CLUSTER)
    graph, cluster = read_device_graph(path), load_cluster(path)
    assert [(each.id, each.type) for each in graph.devices] == [("cpu", "cpu"), ("gpu0", "gpu"), ("gpu1", "gpu")]
    assert graph.devices[0].peak("float32") == 1500
    assert graph.devices[1].peak("float16") == 312_000
    assert [each.memory * 1e9 for each in graph.devices] == pytest.approx(
        [each.capacity_bytes for each in cluster.devices]
    )
    routes = wiring(graph, routed=True).routes
    for lane in cluster.lanes:
        (hop,) = routes[lane.source, lane.target]
        nbytes = 123_456_789
        assert hop.latency_ms * 1e6 + nbytes / hop.gbytes_per_s == pytest.approx(lane.transfer_ns(nbytes), abs=1)
    lanes = {(source, target): hops[0].lane for (source, target), hops in routes.items()}
    assert len(set(lanes.values())) == len(lanes), "duplex links have a queue each way"
    assert simulate(net("mnist"), graph, [1] * 9).makespan > 0


def test_devices_keep_their_names_in_runs_plans_and_lanes(tmp_path: Path) -> None:
    graph = read_device_graph(written(tmp_path, CLUSTER))
    run = simulate(net("mnist"), graph, [0, 1, 2] * 3)
    links = ("gpu0 > gpu1", "gpu1 > gpu0", "cpu > gpu0", "gpu0 > cpu", "cpu > gpu1", "gpu1 > cpu")
    assert run.lanes == ("cpu", "gpu0", "gpu1", *links)
    assert [lane.device for lane in plan_of(run).lanes] == ["cpu", "gpu0", "gpu1"]
    assert {storage.device for storage in graph_of(run).storages} == {"cpu", "gpu0", "gpu1"}
    sent = {(each.source, each.target, run.lanes[3 + each.resource]) for each in run.trace if each.kind == "transfer"}
    ways = {(0, 1): "cpu > gpu0", (1, 0): "gpu0 > cpu", (1, 2): "gpu0 > gpu1", (2, 0): "gpu1 > cpu"}
    back = {(0, 2): "cpu > gpu1", (2, 1): "gpu1 > gpu0"}
    assert sent == {(*way, name) for way, name in {**ways, **back}.items()}
    sides = wiring(graph, routed=True, egress="device").lanes
    assert sides == ("out of cpu", "out of gpu0", "out of gpu1")


def test_a_queue_for_both_ways_has_the_names_of_both_ends_and_one_of_many_links_its_number(tmp_path: Path) -> None:
    links = [{"between": ["*"], "link": "20GB/s", "duplex": False}]
    shared = read_device_graph(written(tmp_path, {**CLUSTER, "links": links}))
    assert wiring(shared, routed=True).lanes == ("cpu - gpu0", "cpu - gpu1", "gpu0 - gpu1")
    named = [{**each, "id": f"d{number}"} for number, each in enumerate(GRAPH["devices"])]
    graph = read_device_graph(written(tmp_path, {**GRAPH, "devices": named}))
    lanes = wiring(graph, routed=True).lanes
    assert lanes == ("channel 0 (pcie3)", "d2 > d0", "d1 > d2", "d2 > d1")
    assert [each.name for each in load_cluster(written(tmp_path, {**GRAPH, "devices": named})).devices] == [
        "d0",
        "d1",
        "d2",
    ]


def test_a_device_is_found_by_its_name_before_its_number(tmp_path: Path) -> None:
    named = [{**each, "id": name} for name, each in zip(("1", "b", None), GRAPH["devices"], strict=True)]
    graph = read_device_graph(written(tmp_path, {**GRAPH, "devices": named}))
    assert (graph.names, [*map(graph.device_number, ("1", "b", "2", "0"))]) == (("1", "b", "2"), [0, 1, 2, 0])
    for text in ("3", "B", "-1", ""):
        with pytest.raises(TensortideError, match=f"there is no device '{text}'; its devices are 1, b, 2"):
            graph.device_number(text)
    named[2]["id"] = "b"
    with pytest.raises(TensortideError, match="2 devices have the name 'b'"):
        read_device_graph(written(tmp_path, {**GRAPH, "devices": named}))


@pytest.mark.parametrize("name", ["malvik", "cluster2", "malvik-4gpu-reduced-resnet"])
def test_published_device_graphs_come_back_with_the_times_they_had(name: str, tmp_path: Path) -> None:
    cluster, graph = load_cluster(graph_file(name)), read_device_graph(graph_file(name))
    assert len(cluster) == len(graph.devices)
    for lane in cluster.lanes:
        number = graph.link(lane.source, lane.target)
        assert number is not None
        assert lane.transfer_ns(10**9) == pytest.approx(8e9 / graph.channels[number].bandwidth, abs=1)


@pytest.mark.parametrize(
    ("devices", "channels", "message"),
    [
        ([device((1, 0)), device((0, 0), type="switch")], [channel(8)], "is a device graph: device 1 is a switch"),
        ([device((1, 0)), device()], [channel(8)], "device 0 is linked to 1 with no link back"),
        ([device((1, 0)), device((0, 1))], [channel(8), channel(8, latency_us=5)], "latency_us is 0 from device 0"),
        ([device((1, 0)), device((0, 0), peaks={"int4": 1})], [channel(8)], "device 1 has a peak of 'int4'"),
        ([device((1, 0), modl=1), device((0, 0))], [channel(8)], r"devices\[0\]: unknown key 'modl'"),
    ],
)  # fmt: skip
def test_what_a_step_cannot_have_is_named(
    devices: list[Any], channels: list[Any], message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, {"comm_channels": channels, "devices": devices})
    with pytest.raises(TensortideError, match=message) as error:
        load_cluster(path)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"devices": [{"name": "a", "device": "Intel i9-13900K"}]}, "has no fp32_tflops, which layers are timed by"),
        ({"devices": [{"name": "a", "device": CLUSTER["devices"][0]["device"]}]}, "the memory of 'a' is not known"),
        (
            {"links": [{"between": ["*"], "link": "20GB/s", "back": "5GB/s", "duplex": False}]},
            "the link of 'cpu' and 'gpu0' has two speeds and one queue",
        ),
    ],
)  # fmt: skip
def test_what_layers_cannot_have_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    kept = {"name": "box"} if "devices" in change else CLUSTER
    path = written(tmp_path, {**kept, **change})
    with pytest.raises(TensortideError, match=message) as error:
        read_device_graph(path)
    assert str(error.value).startswith(f"{path} is a cluster file of captured steps: ")


def test_the_published_model_needs_a_clock(tmp_path: Path) -> None:
    graph = read_device_graph(written(tmp_path, CLUSTER))
    with pytest.raises(TensortideError, match="device '24 cores' has no clock"):
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
        for read in (load_cluster, read_device_graph):
            try:
                read(path)
            except TensortideError as error:
                messages.append(str(error))
    assert len(messages) > 280
    assert all(message.startswith(str(tmp_path)) and len(message.splitlines()) == 1 for message in messages)
