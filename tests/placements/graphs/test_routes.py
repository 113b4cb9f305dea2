"""Routes between the devices of a cluster: the fastest of all, and found quickly where many devices are linked."""

from __future__ import annotations

import itertools
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import TensortideError
from tensortide.timing import device
from tensortide.timing.clusters import Channel, Cluster, ClusterDevice, both_ways, joined
from tensortide.timing.links import Link, link

A100 = device("A100-SXM-80GB")
BYTES = 1 << 20


def cluster(count: int, links: dict[tuple[int, int], tuple[int, int]]) -> Cluster:
    """``count`` devices, and by pair the rates of its link out and back in GB/s."""
    devices = tuple(ClusterDevice(f"gpu{number}", A100) for number in range(count))
    channels = [
        Channel(Link("a link", Fraction(out * 10**9), 1000, in_bytes_per_s=Fraction(back * 10**9)))
        for out, back in links.values()
    ]
    return Cluster("a cluster", devices, both_ways([*links]), tuple(channels))


def every_way(made: Cluster, source: int, target: int) -> list[tuple[int, int, tuple[int, ...]]]:
    """Time, number of lanes and lanes of every way that visits no device twice, by trying all."""
    others = [each for each in range(len(made)) if each not in (source, target)]
    found = []
    for length in range(len(others) + 1):
        for between in itertools.permutations(others, length):
            stops = [source, *between, target]
            lanes = [
                [number for number, lane in enumerate(made.wires) if (lane.source, lane.target) == pair]
                for pair in itertools.pairwise(stops)
            ]
            found += [
                (sum(made.wires[lane].transfer_ns(BYTES) for lane in way), len(way), way)
                for way in itertools.product(*lanes)
            ]
    return found


@given(st.data())
def test_a_route_is_the_fastest_of_all_ways(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 4))
    pairs = list(itertools.combinations(range(count), 2))
    chain = [(at, at + 1) for at in range(count - 1)]
    chosen = {*chain, *data.draw(st.lists(st.sampled_from(pairs)))}
    rate = st.integers(1, 4)
    made = cluster(count, {pair: data.draw(st.tuples(rate, rate)) for pair in sorted(chosen)})
    for source, target in itertools.permutations(range(count), 2):
        assert made.routes[source][target] == min(every_way(made, source, target))[2]
        assert made.routes[source][source] == ()


def test_a_hundred_linked_devices_have_their_routes_at_once() -> None:
    began = time.process_time()
    made = joined([A100] * 100, link("300GB/s,2us"))
    assert {len(way) for row in made.routes for way in row} == {0, 1}
    assert time.process_time() - began < 20  # a search for each of the 9,900 routes took minutes


def test_devices_that_no_links_join_are_an_error() -> None:
    with pytest.raises(TensortideError, match="no links lead from 'gpu0' to 'gpu2' and back"):
        cluster(4, {(0, 1): (1, 1), (2, 3): (1, 1)}).check_for_steps()
