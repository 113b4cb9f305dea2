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
from tensortide.timing import catalogue, device
from tensortide.timing.collectives import COLLECTIVES, Nodes, collective, nodes_of, predict_collective, sweep
from tensortide.timing.collectives.bound import bound
from tensortide.timing.collectives.constants import fabric, shipped
from tensortide.timing.collectives.nodes import LinkRates, group, largest_node
from tensortide.timing.estimates import Estimate, Provenance
from tensortide.timing.wiring import WIRINGS
from tests.reference import measured_times

JOINED = [row.name for row in catalogue() if row.intra_link_gbytes_per_s is not None]
devices = st.sampled_from(JOINED)
SWITCHED = st.sampled_from([name for name in JOINED if WIRINGS[device(name).wiring].part is None])
"""Devices any group of which has the whole rate."""
sizes = st.integers(0, 2**28).map(lambda number: 64 * number)
counts = st.sampled_from([2, 4, 8])
names = st.sampled_from([name for name in COLLECTIVES if name != "send_recv"])

H100 = nodes_of("H100-SXM-80GB", nodes=4)


def of(name: str, devices_per_node: int = 8, nodes: int = 1) -> Nodes:
    per = min(devices_per_node, largest_node(device(name)))
    return nodes_of(name, devices_per_node=per, nodes=nodes * devices_per_node // per, nic_gbytes_per_s=25.0)


# -- physics ----------------------------------------------------------------------------------------


@given(names, sizes, sizes, counts, st.sampled_from([1, 2, 8]), devices)
def test_more_bytes_never_take_less(name: str, one: int, other: int, local: int, nodes: int, device: str) -> None:
    where = of(device, devices_per_node=local, nodes=nodes)
    small, large = sorted((one, other))
    less, more = (collective(name, size, where.size, where).time_ns for size in (small, large))
    assert less <= more * (1 + 1e-12)


@given(names, sizes, SWITCHED, st.lists(st.integers(1, 64), min_size=2, max_size=2, unique=True))
def test_more_ranks_of_a_node_never_take_less(name: str, nbytes: int, device: str, ranks: list[int]) -> None:
    where = nodes_of(device, devices_per_node=64)
    nbytes = nbytes * math.lcm(*ranks) // 64
    few, many = (collective(name, nbytes - nbytes % math.lcm(*ranks), n, where).time_ns for n in sorted(ranks))
    assert few <= many * (1 + 1e-12)


@given(names, sizes, counts, devices, st.lists(st.integers(1, 32), min_size=2, max_size=2, unique=True))
def test_more_nodes_never_take_less(name: str, nbytes: int, local: int, device: str, nodes: list[int]) -> None:
    where = of(device, devices_per_node=local, nodes=32)
    ways = [where.devices_per_node * count for count in sorted(nodes)]
    nbytes = nbytes // 64 * math.lcm(*ways)
    few, many = (collective(name, nbytes, ranks, where).time_ns for ranks in ways)
    assert few <= many * (1 + 1e-9)


@given(st.sampled_from(list(COLLECTIVES)), sizes, counts, devices)
def test_no_rank_receives_more_than_its_link_carries(name: str, nbytes: int, local: int, device: str) -> None:
    ranks = 2 if name == "send_recv" else local
    where = of(device)
    found = predict_collective(name, nbytes, ranks, where)
    rate = float(group(ranks, where).link.bytes_per_s) / 1e9
    assert rate <= float(where.link.bytes_per_s) / 1e9
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
    def claim(name: str, nbytes: int, ranks: int, on: Nodes = H100) -> Provenance:
        return predict_collective(name, nbytes, ranks, on).provenance

    assert claim("all_reduce", 2**20, 8) is Provenance.INTERPOLATED
    assert claim("all_reduce", 2**34, 8) is Provenance.EXTRAPOLATED
    assert claim("all_reduce", 2**20, 16) is Provenance.EXTRAPOLATED
    assert claim("broadcast", 2**20, 8) is Provenance.EXTRAPOLATED
    assert claim("all_reduce", 2**20, 8, on=of("V100-SXM-32GB")) is Provenance.EXTRAPOLATED
    assert claim("all_reduce", 2**20, 8, on=of("MI300X")) is Provenance.PHYSICS
    slower = nodes_of("H100-SXM-80GB", link_gbytes_per_s=200.0)
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
    where = nodes_of("H100-SXM-80GB", sweeps={"all_reduce": table})
    exact, between, ranks, beyond = (
        predict_collective("all_reduce", *asked, where) for asked in ((4000, 8), (2000, 8), (4000, 4), (2**20, 8))
    )
    assert (exact.ns, exact.provenance) == (40e3, Provenance.MEASURED)
    assert between.ns == pytest.approx(math.sqrt(20e3 * 40e3))
    assert between.provenance is Provenance.INTERPOLATED
    assert ranks.ns == pytest.approx(math.sqrt(10e3 * 40e3))
    assert beyond.model == "constants"
    assert table.ns(8, 16000) == 40e3  # more bytes never take less


# -- wiring ------------------------------------------------------------------------------------------


def rates(name: str, per: int = 8) -> list[float]:
    """What groups of the first 2, 3, ... devices of a node have."""
    where = nodes_of(name, devices_per_node=per)
    return [round(float(where.joining(range(size)).bytes_per_s) / 1e9, 2) for size in range(2, per + 1)]


def test_a_group_has_the_links_between_its_members() -> None:
    assert rates("H100-SXM-80GB") == [450.0] * 7
    assert rates("MI300X") == [64.0 * others for others in range(1, 8)]
    assert rates("GH200-96GB", per=4) == [150.0, 300.0, 450.0]
    assert rates("V100-SXM-16GB") == [25, 50, 100, 50, 75, 100, 150]
    assert rates("P100-SXM2-16GB") == [20, 40, 60, 20, 40, 60, 80]
    assert rates("RTX 4090", per=4) == [31.0] * 3


def test_bridges_join_pairs_and_pcie_the_others() -> None:
    pairs = nodes_of("RTX 3090", devices_per_node=4)
    assert rates("RTX 3090", per=4) == [56.25, 31, 31]
    assert [group(own, pairs).link.name[:4] for own in ([0, 1], [2, 3], [1, 2], [0, 1, 2, 3])] == [
        *("NVLi", "NVLi", "PCIe", "PCIe")
    ]
    bridged, apart = (collective("all_reduce", 2**28, own, pairs).time_ns for own in ([2, 3], [1, 2]))
    assert apart > bridged
    assert "2 joined by a bridge, others by PCIe; a device sends at most 56.25 GB/s, 31 GB/s over PCIe" in pairs.about
    assert "no peer access" in pairs.about


def test_two_of_eight_in_a_mesh_are_as_slow_as_they_were_measured() -> None:
    """47.7 GB/s among two MI300X and 312.9 among eight, 4 GiB (the source NET of the catalogue)."""
    where = nodes_of("MI300X")
    two, eight = (predict_collective("all_reduce", 2**32, ranks, where).busbw for ranks in (2, 8))
    assert 47.7 < two < 47.7 * 1.5
    assert 312.9 < eight < 312.9 * 1.5


@given(st.sampled_from([name for name in JOINED if WIRINGS[device(name).wiring].part is not None]))
def test_the_whole_node_has_the_whole_rate_and_a_part_no_more(name: str) -> None:
    row = device(name)
    where = nodes_of(name, devices_per_node=row.wired_devices or 8)
    assert where.joining(range(where.size)).bytes_per_s == where.link.bytes_per_s
    assert all(where.joining(range(size)).bytes_per_s <= where.link.bytes_per_s for size in range(1, where.size))


def test_wiring_that_nobody_knows_is_asked_for_and_given() -> None:
    with pytest.raises(TensortideError, match=r"among 8 GH200-96GB .* join 4, is unknown: give it with --device-link"):
        nodes_of("GH200-96GB")
    assert rates("GH200-96GB", per=4)[0] == 150
    given = LinkRates(device_link=450e9).nodes_of(device("GH200-96GB"), 8)
    assert given.joining([0, 1]).bytes_per_s == 450e9
    assert LinkRates().spread(device("GH200-96GB"), 16).name == "4 x 4 GH200-96GB"
    assert LinkRates(450e9).spread(device("GH200-96GB"), 16).name == "2 x 8 GH200-96GB"
    assert "wiring unknown" in nodes_of("MI210", devices_per_node=2).about


# -- nodes ------------------------------------------------------------------------------------------


def test_the_faster_of_ring_and_two_levels_is_taken_and_named() -> None:
    assert predict_collective("all_reduce", 2**12, 32, H100).algorithm == "two-level, tree between nodes"
    assert predict_collective("all_reduce", 2**30, 32, H100).algorithm == "flat ring"


def test_what_goes_straight_is_bounded_by_the_nics_of_one_end() -> None:
    each = 50 * 0.72  # bytes per ns of the NIC of a rank
    for name, outside in (("all_to_all", 24 / 32), ("gather", 24 / 32), ("scatter", 24 / 32), ("permute", 1.0)):
        found = predict_collective(name, 2**30, 32, H100)
        assert found.algorithm == "direct"
        assert found.ns == pytest.approx(outside * 2**30 / each, rel=0.02)


def test_groups_that_share_a_nic_share_its_rate() -> None:
    where = nodes_of("A100-SXM-80GB", nodes=2, nics=4)
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
    where = nodes_of("A100-SXM-80GB", devices_per_node=per_node, nodes=32, nics=nics)
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
        nodes_of("some device")
    with pytest.raises(TensortideError, match=r"the link between devices of .* is unknown: give it with --device-link"):
        nodes_of("Intel i9-13900K")
    with pytest.raises(TensortideError, match=r"the NICs of .* is unknown: give it with --nic, as in --nic 50GB/s"):
        nodes_of("V100-PCIe-32GB", nodes=2)
    with pytest.raises(TensortideError, match="0 nodes"):
        nodes_of("H100-SXM-80GB", nodes=0)
    with pytest.raises(TensortideError, match=r"2\.5 nodes"):
        nodes_of("H100-SXM-80GB", nodes=2.5)  # type: ignore[arg-type]
    with pytest.raises(TensortideError, match="a rate is positive"):
        nodes_of("H100-SXM-80GB", link_gbytes_per_s=-1)
    with pytest.raises(TensortideError, match="at least one"):
        sweep([])
    with pytest.raises(TensortideError, match="must be positive"):
        sweep([(2, 8, 0.0)])


# -- measured ---------------------------------------------------------------------------------------


def test_four_ranks_from_two_and_eight_are_within_a_tenth(reference: Path) -> None:
    measured_times(reference)
    import numpy as np

    from scripts.training.collectives import without_ranks
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
    found = {row.name: fabric(row.intra_link) for row in catalogue()}
    assert found["H100-SXM-80GB"] == "NVLink"
    assert found["H100-PCIe-80GB"] == "PCIe"
    assert found["MI300X"] == ""


def test_a_message_to_another_node_takes_the_nic_of_one_rank_however_nodes_are_filled() -> None:
    nodes = nodes_of("H100-SXM-80GB", nodes=2)
    full = predict_collective("permute", 1 << 28, 16, nodes).ns
    for ranks in (9, 12, [0, 1, 2, 8], [0, 8, 9]):
        assert predict_collective("permute", 1 << 28, ranks, nodes).ns == pytest.approx(full, rel=0.01)
    few = nodes_of("H100-SXM-80GB", nodes=2, nics=1)  # which the eight ranks of the full node share
    one, eight = (predict_collective("permute", 1 << 28, ranks, few).ns for ranks in ([0, 8], 9))
    assert eight == pytest.approx(8 * one, rel=0.02)


def test_the_words_of_a_link_have_the_rate_that_a_group_has() -> None:
    node = nodes_of("MI300X", devices_per_node=8)
    assert (node.joining([0, 1]).about, node.joining(range(8)).about) == ("64 GB/s", "448 GB/s")
