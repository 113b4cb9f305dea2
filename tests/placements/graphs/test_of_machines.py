"""Machines of the catalogue as clusters that steps are placed on."""

from __future__ import annotations

import itertools

import pytest

from tensortide.placements.graphs.of_machines import of_machines
from tensortide.timing.clusters import Cluster
from tensortide.timing.collectives import cluster

MACHINES = [
    *(("H100-SXM-80GB", 4, 2), ("MI300X", 8, 1), ("MI300X", 4, 2), ("GH200-96GB", 4, 2), ("V100-SXM-32GB", 8, 2)),
    *(("RTX 3090", 4, 1), ("RTX 4090", 2, 1), ("MI210", 2, 1), ("H100-96GB", 1, 2)),
]


def rates(made: Cluster) -> dict[tuple[int, int], float]:
    """1e9 bytes per second between each two devices."""
    return {
        (lane.source, lane.target): float(lane.bytes_per_s) / 1e9 for lane in made.lanes if lane.source < lane.target
    }


@pytest.mark.parametrize(("name", "per", "nodes"), MACHINES)
def test_two_devices_are_joined_at_the_rate_of_their_group(name: str, per: int, nodes: int) -> None:
    asked = cluster(name, devices_per_node=per, nodes=nodes, nic_gbytes_per_s=25.0)
    made, size = of_machines(asked), per * nodes
    assert [device.row.name for device in made.devices] == [name] * size
    found = rates(made)
    assert list(found) == list(itertools.combinations(range(size), 2))
    for (a, b), rate in found.items():
        same = a // per == b // per
        assert rate == pytest.approx(float(asked.joining((a % per, b % per)).bytes_per_s) / 1e9 if same else 25.0)


def test_what_a_device_sends_over_one_link_waits_in_one_queue() -> None:
    def out_of_first(name: str, per: int, nodes: int = 1) -> list[int]:
        made = of_machines(cluster(name, devices_per_node=per, nodes=nodes))
        return [queue for lane, queue in zip(made.lanes, made.queues, strict=True) if lane.source == 0]

    switched, mesh = out_of_first("H100-SXM-80GB", 4), out_of_first("MI300X", 4)
    assert len(set(switched)) == 1
    assert len(set(mesh)) == len(mesh) == 3
    assert len(set(out_of_first("RTX 3090", 4))) == 2  # the bridge, and PCIe to the other pair
    assert len(set(out_of_first("H100-SXM-80GB", 2, nodes=2))) == 2  # the switch and the NIC


def test_a_cluster_of_two_kinds_of_links_knows_both() -> None:
    found = rates(of_machines(cluster("RTX 3090", devices_per_node=4)))
    assert found == {(0, 1): 56.25, (2, 3): 56.25, **dict.fromkeys([(0, 2), (0, 3), (1, 2), (1, 3)], 31.0)}
