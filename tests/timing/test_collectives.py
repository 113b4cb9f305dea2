"""Collectives against physics, against what they claim of themselves, and against measured ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import TensortideError
from tensortide.timing import catalogue
from tensortide.timing.collectives import COLLECTIVES, Cluster, cluster, collective, predict_collective, sweep
from tensortide.timing.collectives.bound import bound
from tensortide.timing.collectives.cluster import group
from tensortide.timing.collectives.constants import fabric, shipped
from tensortide.timing.estimates import Estimate, Provenance
from tests.reference import measured_times

JOINED = [row.name for row in catalogue() if row.intra_link_gbytes_per_s is not None]
devices = st.sampled_from(JOINED)
sizes = st.integers(0, 2**28).map(lambda number: 64 * number)
counts = st.sampled_from([2, 4, 8])
names = st.sampled_from([name for name in COLLECTIVES if name != "send_recv"])

H100 = cluster("H100-SXM-80GB", nodes=4)


def of(device: str, devices_per_node: int = 8, nodes: int = 1) -> Cluster:
    return cluster(device, devices_per_node=devices_per_node, nodes=nodes, nic_gbytes_per_s=25.0)


# -- physics ----------------------------------------------------------------------------------------


@given(names, sizes, sizes, counts, st.sampled_from([1, 2, 8]), devices)
def test_more_bytes_never_take_less(name: str, one: int, other: int, local: int, nodes: int, device: str) -> None:
    where = of(device, devices_per_node=local, nodes=nodes)
    small, large = sorted((one, other))
    less, more = (collective(name, size, where.size, where).time_ns for size in (small, large))
    assert less <= more * (1 + 1e-12)


@given(names, sizes, devices, st.lists(st.integers(1, 64), min_size=2, max_size=2, unique=True))
def test_more_ranks_of_a_node_never_take_less(name: str, nbytes: int, device: str, ranks: list[int]) -> None:
    where = of(device, devices_per_node=64)
    nbytes = nbytes * math.lcm(*ranks) // 64
    few, many = (collective(name, nbytes - nbytes % math.lcm(*ranks), n, where).time_ns for n in sorted(ranks))
    assert few <= many * (1 + 1e-12)


@given(names, sizes, counts, devices, st.lists(st.integers(1, 32), min_size=2, max_size=2, unique=True))
def test_more_nodes_never_take_less(name: str, nbytes: int, local: int, device: str, nodes: list[int]) -> None:
    where, ways = of(device, devices_per_node=local, nodes=32), [local * count for count in sorted(nodes)]
    nbytes = nbytes // 64 * math.lcm(*ways)
    few, many = (collective(name, nbytes, ranks, where).time_ns for ranks in ways)
    assert few <= many * (1 + 1e-9)


@given(st.sampled_from(list(COLLECTIVES)), sizes, counts, devices)
def test_no_rank_receives_more_than_its_link_carries(name: str, nbytes: int, local: int, device: str) -> None:
    ranks = 2 if name == "send_recv" else local
    where = of(device)
    found = predict_collective(name, nbytes, ranks, where)
    rate = float(where.link.bytes_per_s) / 1e9
    assert found.ns >= COLLECTIVES[name].phi(ranks) * nbytes / rate * (1 - 1e-9)
    assert found.busbw <= rate * (1 + 1e-9)
    assert 0 < found.ns < math.inf


@given(st.sampled_from(list(COLLECTIVES)), sizes, devices)
def test_one_rank_alone_costs_nothing(name: str, nbytes: int, device: str) -> None:
    assert collective(name, nbytes, 1, of(device)) == Estimate()


def test_units_are_nanoseconds_and_total_bytes() -> None:
    least = bound(COLLECTIVES["all_reduce"], 8, 10**9, bytes_per_ns=450.0, hop_ns=1000)
    assert least.ns == pytest.approx(14 * 1000 + 2 * 7 / 8 * 1e9 / 450)
    assert least.algorithm == "ring"
    assert bound(COLLECTIVES["all_gather"], 4, 10**9, 100.0, 0).ns == pytest.approx(0.75e7)
    assert bound(COLLECTIVES["broadcast"], 4, 10**9, 100.0, 0).ns == pytest.approx(1e7)


def test_a_tree_has_fewer_hops_and_moves_more() -> None:
    small = bound(COLLECTIVES["all_reduce"], 64, 1024, 100.0, 1000)
    assert small.algorithm == "tree"
    assert small.ns == pytest.approx(12_000 + 2 * 1024 / 100)
    assert bound(COLLECTIVES["all_reduce"], 64, 2**30, 100.0, 1000).algorithm == "ring"


# -- rungs ------------------------------------------------------------------------------------------


def test_measured_devices_are_interpolated_in_their_range_only() -> None:
    def claim(name: str, nbytes: int, ranks: int, on: Cluster = H100) -> Provenance:
        return predict_collective(name, nbytes, ranks, on).provenance

    assert claim("all_reduce", 2**20, 8) is Provenance.INTERPOLATED
    assert claim("all_reduce", 2**34, 8) is Provenance.EXTRAPOLATED
    assert claim("all_reduce", 2**20, 16) is Provenance.EXTRAPOLATED
    assert claim("broadcast", 2**20, 8) is Provenance.EXTRAPOLATED
    assert claim("all_reduce", 2**20, 8, on=of("V100-SXM-32GB")) is Provenance.EXTRAPOLATED
    assert claim("all_reduce", 2**20, 8, on=of("MI300X")) is Provenance.PHYSICS
    slower = cluster("H100-SXM-80GB", link_gbytes_per_s=200.0)
    assert claim("all_reduce", 2**20, 8, on=slower) is Provenance.EXTRAPOLATED


def test_a_device_without_constants_takes_those_of_its_architecture() -> None:
    same = [collective("all_gather", 2**24, 8, of(name)) for name in ("A100-SXM-80GB", "A100-SXM-40GB")]
    assert same[0].time_ns == same[1].time_ns
    assert same[0].log_width < same[1].log_width


def test_each_measured_kind_has_constants_on_each_fabric() -> None:
    table = shipped().constants
    for kind in COLLECTIVES.values():
        assert (kind.like or kind.name) in table["NVLink"]
    for name, kinds in table.items():
        assert all(0 < row.share <= 1 and row.base_ns > 0 for row in kinds.values()), name


def test_a_sweep_is_surer_than_constants_and_interpolates() -> None:
    large = [(8, 4000, 40e3), (8, 4000, 44e3), (8, 4000, 30e3), (8, 16000, 35e3)]
    table = sweep([(8, 1000, 20e3), *large, (2, 4000, 10e3)])
    where = cluster("H100-SXM-80GB", sweeps={"all_reduce": table})
    exact, between, ranks, beyond = (
        predict_collective("all_reduce", *asked, where) for asked in ((4000, 8), (2000, 8), (4000, 4), (2**20, 8))
    )
    assert (exact.ns, exact.provenance) == (40e3, Provenance.MEASURED)
    assert between.ns == pytest.approx(math.sqrt(20e3 * 40e3))
    assert between.provenance is Provenance.INTERPOLATED
    assert ranks.ns == pytest.approx(math.sqrt(10e3 * 40e3))
    assert beyond.model == "constants"
    assert table.ns(8, 16000) == 40e3  # more bytes never take less


# -- nodes ------------------------------------------------------------------------------------------


def test_the_faster_of_ring_and_two_levels_is_taken_and_named() -> None:
    assert predict_collective("all_reduce", 2**12, 32, H100).algorithm == "two-level, tree between nodes"
    assert predict_collective("all_reduce", 2**30, 32, H100).algorithm == "flat ring"


def test_groups_that_share_a_nic_share_its_rate() -> None:
    where = cluster("A100-SXM-80GB", nodes=2, nics=4)
    own, same, other = [0, 8], [1, 9], [2, 10]
    alone = group(own, where).network
    assert alone == 25.0
    assert group(own, where, beside=[same]).network == alone / 2
    assert group(own, where, beside=[other, [1, 2]]).network == alone  # another NIC, and a group within a node
    assert group(16, where).network == 4 * alone
    slow, fast = (collective("all_reduce", 2**30, own, where, beside=some) for some in ([same], []))
    assert slow.time_ns > 1.9 * fast.time_ns


@given(st.integers(1, 32), st.integers(1, 8), st.integers(1, 12))
def test_a_count_of_ranks_is_the_first_ranks(count: int, per_node: int, nics: int) -> None:
    where = cluster("A100-SXM-80GB", devices_per_node=per_node, nodes=32, nics=nics)
    assert group(count, where) == group(list(range(count)), where)


def test_tensor_parallel_groups_across_nodes_hurt() -> None:
    inside, spread = (collective("all_reduce", 2**24, ranks, H100).time_ns for ranks in ([0, 1], [0, 8]))
    assert spread > 2 * inside


def test_collectives_add_up_with_common_errors() -> None:
    one = collective("all_gather", 2**20, 8, H100)
    assert (one + one).time_ns == 2 * one.time_ns
    assert (one * 100).log_width > 0.8 * one.log_width


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("allreduce", 8, 2), "Did you mean all_reduce"),
        (("gossip", 8, 2), "Kinds: all_reduce, all_gather"),
        (("all_reduce", 8, 0), "among 0 ranks"),
        (("all_reduce", -8, 2), "-8 bytes"),
        (("all_gather", 9, 2), "do not divide them evenly"),
        (("send_recv", 9, 3), "it joins two"),
        (("all_reduce", 8, 33), "ranks 0 to 31"),
        (("all_reduce", 8, []), "no ranks"),
        (("all_reduce", 8, [0, 0]), "a rank twice"),
        (("all_reduce", 8, [-1, 0]), "rank -1"),
        (("all_reduce", 1.5, 2), "all_reduce of 1.5 bytes: it needs a whole number, at least 0"),
        (("all_reduce", math.nan, 2), "nan bytes"),
        (("all_reduce", True, 2), "True bytes"),
        (("all_reduce", "8", 2), "'8' bytes"),
        (("all_reduce", 8, 2.0), "among 2.0 ranks"),
        (("all_reduce", 8, math.nan), "among nan ranks"),
        (("all_reduce", 8, True), "among True ranks"),
        (("all_reduce", 8, None), "among None ranks"),
        (("all_reduce", 8, [0, 1.5]), "rank 1.5"),
        (("all_reduce", 8, "01"), "rank '0'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_message(asked: tuple[str, Any, Any], words: str) -> None:
    with pytest.raises(TensortideError, match=words):
        collective(*asked, H100)


def test_sizes_of_numpy_are_whole_numbers_too() -> None:
    assert collective("all_reduce", np.int64(2**20), np.int32(2), H100) == collective("all_reduce", 2**20, 2, H100)  # type: ignore[arg-type]


def test_device_graphs_that_cannot_be_are_refused() -> None:
    with pytest.raises(TensortideError, match="no device is called"):
        cluster("some device")
    with pytest.raises(TensortideError, match="give link_gbytes_per_s"):
        cluster("Intel i9-13900K")
    with pytest.raises(TensortideError, match="give nic_gbytes_per_s"):
        cluster("V100-PCIe-32GB", nodes=2)
    with pytest.raises(TensortideError, match="0 nodes"):
        cluster("H100-SXM-80GB", nodes=0)
    with pytest.raises(TensortideError, match=r"2\.5 nodes"):
        cluster("H100-SXM-80GB", nodes=2.5)  # type: ignore[arg-type]
    with pytest.raises(TensortideError, match="positive rate"):
        cluster("H100-SXM-80GB", link_gbytes_per_s=-1)
    with pytest.raises(TensortideError, match="at least one"):
        sweep([])
    with pytest.raises(TensortideError, match="must be positive"):
        sweep([(2, 8, 0.0)])


# -- measured ---------------------------------------------------------------------------------------


def test_four_ranks_from_two_and_eight_are_within_a_tenth(reference: Path) -> None:
    measured_times(reference)
    import numpy as np

    from tensortide.timing.fit.collectives import without_ranks
    from tests.timing.tables import nccl

    tested = ("A100-SXM-80GB", "H100-SXM-80GB", "H200-SXM-141GB", "B200-SXM-180GB")
    made = [without_ranks(each, 4) for each in nccl() if each.device in tested]
    errors = [np.abs(four.predicted(row) / four.ns - 1).mean() for row, four in filter(None, made)]
    assert len(errors) == 16
    assert sum(errors) / 16 < 0.09


def test_only_reduction_in_the_switch_beats_the_link(reference: Path) -> None:
    measured_times(reference)
    from tests.timing.tables import nccl, send_recv

    for each in [*nccl(), *send_recv()]:
        for ranks, nbytes, ns in zip(each.ranks.tolist(), each.nbytes.tolist(), each.ns.tolist(), strict=True):
            reduced = each.kind == "all_reduce" and each.fabric == "NVLink" and ranks == 8
            busbw = COLLECTIVES[each.kind].phi(int(ranks)) * nbytes / ns
            assert busbw <= each.link * (1.05 if reduced else 1.0)


def test_fabrics_are_those_of_the_catalogue() -> None:
    found = {row.name: fabric(row) for row in catalogue()}
    assert found["H100-SXM-80GB"] == "NVLink"
    assert found["H100-PCIe-80GB"] == "PCIe"
    assert found["MI300X"] == ""
