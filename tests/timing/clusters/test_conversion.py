"""Nodes of the catalogue as clusters, which say each link, and back."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tensortide.errors import TensortideError
from tensortide.timing import device
from tensortide.timing.catalogue import catalogue
from tensortide.timing.clusters import Cluster, joined, load_cluster
from tensortide.timing.clusters.conversion import cluster_to_nodes, nodes_to_cluster
from tensortide.timing.collectives import Nodes, nodes_of, predict_collective
from tensortide.timing.collectives.nodes import largest_node
from tensortide.timing.wiring import WIRINGS

GPUS = [f"gpu{i}" for i in range(4)]
MACHINES = [
    *(("H100-SXM-80GB", 4, 2), ("MI300X", 8, 1), ("MI300X", 4, 2), ("GH200-96GB", 4, 2), ("V100-SXM-32GB", 8, 2)),
    *(("RTX 3090", 4, 1), ("RTX 4090", 2, 1), ("MI210", 2, 1), ("H100-96GB", 1, 2)),
]


def rates(made: Cluster) -> dict[tuple[int, int], float]:
    """1e9 bytes per second between each two devices."""
    return {
        (wire.source, wire.target): float(wire.bytes_per_s) / 1e9 for wire in made.wires if wire.source < wire.target
    }


@pytest.mark.parametrize(("name", "per", "nodes"), MACHINES)
def test_two_devices_are_joined_at_the_rate_of_their_group(name: str, per: int, nodes: int) -> None:
    asked = nodes_of(name, devices_per_node=per, nodes=nodes, nic_gbytes_per_s=25.0)
    made, size = nodes_to_cluster(asked), per * nodes
    assert [device.row.name for device in made.devices] == [name] * size
    found = rates(made)
    assert list(found) == list(itertools.combinations(range(size), 2))
    for (a, b), rate in found.items():
        same = a // per == b // per
        assert rate == pytest.approx(float(asked.joining((a % per, b % per)).bytes_per_s) / 1e9 if same else 25.0)


def test_what_a_device_sends_over_one_link_waits_in_one_queue() -> None:
    def out_of_first(name: str, per: int, nodes: int = 1) -> list[int]:
        made = nodes_to_cluster(nodes_of(name, devices_per_node=per, nodes=nodes))
        return [queue for wire, queue in zip(made.wires, made.queues, strict=True) if wire.source == 0]

    switched, mesh = out_of_first("H100-SXM-80GB", 4), out_of_first("MI300X", 4)
    assert len(set(switched)) == 1
    assert len(set(mesh)) == len(mesh) == 3
    assert len(set(out_of_first("RTX 3090", 4))) == 2  # the bridge, and PCIe to the other pair
    assert len(set(out_of_first("H100-SXM-80GB", 2, nodes=2))) == 2  # the switch and the NIC


def test_a_cluster_of_two_kinds_of_links_knows_both() -> None:
    found = rates(nodes_to_cluster(nodes_of("RTX 3090", devices_per_node=4)))
    assert found == {(0, 1): 56.25, (2, 3): 56.25, **dict.fromkeys([(0, 2), (0, 3), (1, 2), (1, 3)], 31.0)}


def figures(where: Nodes) -> list[float]:
    """Predictions of collectives on groups within a node and of all devices."""
    groups = {2, where.devices_per_node, where.size} - {1}
    return [
        predict_collective(kind, 1 << power, ranks, where).ns
        for kind in ("all_reduce", "all_to_all", "broadcast")
        for power in (10, 20, 28)
        for ranks in sorted(groups)
    ]


def said(asked: Nodes) -> Nodes:
    """``asked`` without what its cluster has no link for."""
    if asked.count == 1:
        asked = replace(asked, nic=None, nics=1)
    if asked.devices_per_node == 1:
        assert asked.nic is not None
        return replace(asked, link=asked.nic, pcie=None, wiring="switched", wired=0)
    part, pairs = WIRINGS[asked.wiring].part, itertools.combinations(range(asked.devices_per_node), 2)
    return asked if part and not all(part(*pair, asked.wired) for pair in pairs) else replace(asked, pcie=None)


def test_nodes_are_those_of_their_cluster() -> None:
    tried = set[str]()
    for row, per, (count, nics) in itertools.product(catalogue(), (1, 2, 4, 8), ((1, None), (2, None), (2, 1))):
        if row.intra_link_gbytes_per_s is None or per * count == 1 or per > largest_node(row):
            continue
        asked = nodes_of(row, devices_per_node=per, nodes=count, nics=nics, nic_gbytes_per_s=12.5)
        found = cluster_to_nodes(nodes_to_cluster(asked))
        assert found == replace(said(asked), cluster_name=asked.name)
        tried.add(row.wiring)
    assert tried == set(WIRINGS)


def test_a_file_means_what_the_same_cards_of_the_catalogue_do(tmp_path: Path) -> None:
    ports = [{"name": f"port {i}", "link": "31GB/s,1us", "duplex": False} for i in range(4)]
    links: list[dict[str, object]] = [{"between": pair, "link": "56.25GB/s,1us"} for pair in (GPUS[:2], GPUS[2:])]
    links += [{"between": [GPUS[i], "gpu*"], "channel": f"port {i}", "one_way": True} for i in range(4)]
    devices = [{"name": "gpu", "count": 4, "device": "RTX 3090"}]
    path = tmp_path / "box.json"
    path.write_text(json.dumps({"devices": devices, "links": links, "channels": ports}))
    found, asked = cluster_to_nodes(load_cluster(path)), nodes_of("RTX 3090", devices_per_node=4)
    assert found == replace(said(asked), cluster_name="box")
    assert figures(found) == figures(asked)


@pytest.mark.parametrize(("name", "per", "count"), [("RTX 3090", 4, 1), ("V100-SXM-32GB", 8, 1), ("MI300X", 4, 2)])
def test_nodes_with_one_link_that_differs_are_refused(name: str, per: int, count: int) -> None:
    made = nodes_to_cluster(nodes_of(name, devices_per_node=per, nodes=count))
    wrong = [replace(made, links=made.links[:i] + made.links[i + 1 :]) for i in range(len(made.links))]
    for i, channel in enumerate(made.channels):
        link = channel.link
        slower = dataclasses.replace(link, bytes_per_s=link.bytes_per_s - 1)
        for changed in (slower, dataclasses.replace(link, latency_ns=link.latency_ns + 1)):
            channels = (*made.channels[:i], replace(channel, link=changed), *made.channels[i + 1 :])
            wrong.append(replace(made, channels=channels))
    for i in (0, len(made.links) // 2, len(made.links) - 1):
        moved = replace(made.links[i], channel=(made.links[i].channel + 1) % len(made.channels))
        wrong.append(replace(made, links=(*made.links[:i], moved, *made.links[i + 1 :])))
    wrong.append(replace(made, links=(made.links[-1], *made.links[1:])))  # one pair has two links, and another none
    backwards = [one for one in made.links if one.source > one.target]
    wrong.append(replace(made, links=(*backwards, *backwards)))
    for other in wrong:
        with pytest.raises(TensortideError, match="not joined alike"):
            cluster_to_nodes(other)


def renamed(made: Cluster, *names: str) -> Cluster:
    """``made`` with links called ``names``, the fastest first."""
    rates = sorted({each.link.bytes_per_s for each in made.channels}, reverse=True)
    called = dict(zip(rates, names, strict=True))
    return replace(
        made,
        channels=tuple(
            replace(each, link=dataclasses.replace(each.link, name=called[each.link.bytes_per_s]))
            for each in made.channels
        ),
    )


def test_links_are_pcie_or_nics_by_their_names() -> None:
    switched = nodes_to_cluster(nodes_of("H100-SXM-80GB", devices_per_node=4))
    for name, wiring, link in (("a", "switched", "NVLink4"), ("pcie5", "pcie", "PCIe"), ("NIC 3", "switched", "NIC")):
        found = cluster_to_nodes(renamed(switched, name))
        assert (found.wiring, found.link.name, found.count) == (wiring, link, 4 if link == "NIC" else 1)
    pairs = nodes_to_cluster(nodes_of("RTX 3090", devices_per_node=4))
    for name, count in (("NIC", 2), ("a", 1), ("pcie4", 1)):
        assert cluster_to_nodes(renamed(pairs, "b", name)).count == count
    h100 = replace(pairs, devices=tuple(replace(each, row=device("H100-PCIe-80GB")) for each in pairs.devices))
    for name, count in (("NIC", 2), ("a", 2), ("PCIe 5", 1)):
        assert cluster_to_nodes(renamed(h100, "b", name)).count == count
    assert cluster_to_nodes(renamed(h100, "b", "PCIe 5")).wiring == "bridge"
    shared = nodes_to_cluster(nodes_of("RTX 3090", devices_per_node=2, nodes=2, nics=1, nic_gbytes_per_s=31))
    assert cluster_to_nodes(renamed(shared, "b", "a")).nics == 1
    with pytest.raises(TensortideError, match="not joined alike"):
        cluster_to_nodes(renamed(shared, "b", "pcie4"))


def test_cards_whose_links_nobody_knows_are_switched_as_their_cluster_says() -> None:
    row = device("Intel i9-13900K")
    assert row.intra_link_gbytes_per_s is None
    made = nodes_to_cluster(nodes_of(row, devices_per_node=4, link_gbytes_per_s=10))
    assert cluster_to_nodes(made).wiring == "switched"


def test_nodes_have_the_memory_of_their_cluster() -> None:
    made = nodes_to_cluster(nodes_of("H100-SXM-80GB", devices_per_node=2))
    less = replace(made, devices=tuple(replace(each, capacity_bytes=10 * 10**9) for each in made.devices))
    assert cluster_to_nodes(less).device.usable_bytes == 10 * 10**9


def test_clusters_that_are_not_alike_are_refused() -> None:
    h100, a100 = device("H100-SXM-80GB"), device("A100-SXM-80GB")
    link = nodes_of(h100).link
    alike = joined([h100] * 4, link)
    assert cluster_to_nodes(alike).wiring == "mesh"
    assert cluster_to_nodes(alike).link.bytes_per_s == 3 * link.bytes_per_s
    bus = replace(alike, links=tuple(replace(each, channel=0) for each in alike.links))
    less = replace(alike, devices=(*alike.devices[:3], replace(alike.devices[3], capacity_bytes=1 << 30)))
    for other in (joined([h100, a100], link), replace(alike, links=alike.links[2:]), bus, less, joined([h100], link)):
        with pytest.raises(TensortideError, match=r"its devices are not alike, or not joined alike: .* as FILE:gpu0"):
            cluster_to_nodes(other)


def test_a_device_has_the_memory_and_the_host_link_of_its_cluster() -> None:
    for name in ("H100-SXM-80GB", "Intel i9-13900K"):
        row = device(name)
        (one,) = joined([row], nodes_of("H100-SXM-80GB").link).devices
        assert one.as_row is row
        for nbytes in (10**9, 3 * 2**30 + 1):
            assert abs((replace(one, capacity_bytes=nbytes).as_row.usable_bytes or 0) - nbytes) <= (row.kind == "cpu")
