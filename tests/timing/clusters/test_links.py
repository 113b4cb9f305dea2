"""Links, channels and queues that the file of a cluster describes."""

from __future__ import annotations

import itertools
from pathlib import Path

from tensortide.timing.clusters import load_cluster
from tests.timing.clusters.test_file import GPUS, HOST, RATES, written


def test_two_devices_may_have_several_links(tmp_path: Path) -> None:
    nvlink = {"between": ["gpu*"], "link": {"name": "nvlink", "bytes_per_s": 450e9, "latency_ns": 2000}}
    pcie = {"between": ["*"], "link": "pcie5", "beside": True}
    found = load_cluster(written(tmp_path, devices=[{**GPUS, "count": 2, "device": "h100"}], links=[nvlink, pcie]))
    assert [(wire.name, wire.link.name) for wire in found.wires] == [
        ("gpu0 > gpu1", "nvlink"),
        ("gpu1 > gpu0", "nvlink"),
        ("gpu0 > gpu1", "pcie5"),
        ("gpu1 > gpu0", "pcie5"),
    ]
    assert found.queues == (0, 1, 2, 3)
    assert found.routes[0][1] == (0,)
    instead = load_cluster(written(tmp_path, devices=[GPUS, HOST], links=[nvlink, {**pcie, "beside": False}]))
    assert len(instead.wires) == 12  # one for each way of each pair


def test_links_may_share_a_channel_and_lead_one_way(tmp_path: Path) -> None:
    bus = {"name": "bus", "link": {"bytes_per_s": 16e9, "latency_ns": 500, "back_bytes_per_s": 8e9}, "duplex": False}
    links = [
        {"between": ["cpu", "gpu*"], "channel": "bus"},
        {"between": ["gpu0", "gpu1"], "link": "pcie3", "one_way": True},
    ]
    found = load_cluster(written(tmp_path, devices=[HOST, {**GPUS, "count": 2}], channels=[bus], links=links))
    queue = {wire.name: number for wire, number in zip(found.wires, found.queues, strict=True)}
    assert queue == {"cpu > gpu0": 0, "gpu0 > cpu": 0, "cpu > gpu1": 0, "gpu1 > cpu": 0, "gpu0 > gpu1": 1}
    rates = {wire.name: float(wire.bytes_per_s) / 1e9 for wire in found.wires[:2]}
    assert rates == {"cpu > gpu0": 16, "gpu0 > cpu": 8}


def test_one_queue_carries_both_ways_whichever_device_is_first(tmp_path: Path) -> None:
    for between in itertools.permutations(["cpu", "gpu0"]):
        link = {"between": between, "link": {**RATES, "back_bytes_per_s": 5e9}, "duplex": False}
        found = load_cluster(written(tmp_path, devices=[HOST, {**GPUS, "count": 1, "name": "gpu0"}], links=[link]))
        assert found.queues == (0, 0)


def test_three_patterns_join_all_pairs_of_what_they_match(tmp_path: Path) -> None:
    old = {"name": "old", "device": "t4"}
    links = [{"between": ["cpu", "gpu*", "old"], "link": "pcie4"}]
    found = load_cluster(written(tmp_path, devices=[HOST, GPUS, old], links=links))
    assert [(one.source, one.target) for one in found.links[::2]] == [*itertools.combinations(range(5), 2)]


def test_the_speed_of_a_link_is_from_the_first_device_of_between(tmp_path: Path) -> None:
    link = {"between": ["gpu0", "cpu"], "link": {"bytes_per_s": 20e9, "latency_ns": 0, "back_bytes_per_s": 5e9}}
    found = load_cluster(written(tmp_path, devices=[HOST, {**GPUS, "count": 1, "name": "gpu0"}], links=[link]))
    assert [(wire.name, wire.transfer_ns(10**9)) for wire in found.wires] == [
        ("gpu0 > cpu", 50_000_000),
        ("cpu > gpu0", 200_000_000),
    ]
