"""Layers that several devices share, in searches: scores, bounds, and placements as good as those of brute force."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensortide.errors import PlacementError, TensortideError
from tensortide.placements import ACCURATE, COMPAT, Cluster, Net, NetProblem, OpTimes, Settings, simulate
from tensortide.placements.genes import MOST_DEVICES, are_numbers, devices_of, number_of
from tensortide.placements.search import Search
from tensortide.placements.search.genetic import Genetic
from tensortide.placements.search.groups import grouped
from tensortide.placements.search.map_elites import MapElites, shares
from tensortide.placements.search.session import Budget
from tensortide.timing.paleo.layers import Entry
from tests.marks import some_slow
from tests.placements.cases import PUBLISHED, cluster, net, published
from tests.placements.drawn import clusters
from tests.placements.search.doubles import random_problem

SEARCHES = (
    Genetic(population=20, mutation_rate=0.3, sharing_rate=0.5),
    MapElites(initial=10, mutation_rate=0.4, sharing_rate=0.5),
)


@st.composite
def images(draw: st.DrawFn, most: int = 4) -> Net:
    """A net of convolutions, with branches; some have groups of channels, some fewer channels than devices."""
    entries = {"data": Entry(type="Input", tensor=(4, 8, 8, 3))}
    for number in range(draw(st.integers(1, most - 1))):
        parent = draw(st.sampled_from([*entries]))
        if draw(st.integers(0, 3)):
            channels, splits = draw(st.sampled_from([(1, 1), (2, 1), (5, 1), (64, 1), (512, 1), (8, 2)]))
            entry = Entry(
                type="Convolution",
                parents=(parent,),
                filter=(3, 3, -1, channels),
                strides=(1, 1, 1, 1),
                padding="SAME",
                splits=splits,
            )
        else:
            entry = Entry(type="Pooling", parents=(parent,), ksize=(1, 2, 2, 1), strides=(1, 1, 1, 1), padding="SAME")
        entries[f"layer{number}"] = entry
    return Net("images", entries)


SETTINGS = st.builds(
    Settings,
    mode=st.sampled_from([COMPAT, ACCURATE]),
    batches=st.just(3),
    pipeline_batches=st.integers(1, 3),
    include_backward=st.booleans(),
    memory_penalization_factor=st.just(1.0),
)


def numbers(devices: int) -> list[int]:
    """The numbers of every set of ``devices``."""
    sets = (of for count in range(1, devices + 1) for of in itertools.combinations(range(devices), count))
    return [number_of(of, devices) for of in sets]


def every_placement(problem: NetProblem) -> np.ndarray:
    """All placements that differ: layers that have no shards are on one device."""
    sharing = problem.sharing
    assert sharing is not None
    ways = [
        [n for n in numbers(problem.devices) if len(devices_of(n, problem.devices)) <= most] for most in sharing.most
    ]
    return np.array([*itertools.product(*ways)], np.int64)


@given(st.integers(1, 6))
def test_every_set_of_devices_has_its_number(devices: int) -> None:
    found = numbers(devices)
    assert len({*found}) == 2**devices - 1
    assert all(number_of(devices_of(one, devices), devices) == one for one in found)
    assert are_numbers(np.array(found), devices, shared=True)
    assert are_numbers(np.array(found), devices, shared=False) == (devices == 1)
    assert not are_numbers(np.array([max(found) + 1]), devices, shared=True)


@pytest.mark.parametrize("number", [0, 1])
def test_alexnet_with_shared_layers_takes_the_published_time(number: int) -> None:
    case = published("sharding_cases")[number]
    problem = NetProblem(net("alex_v2"), cluster("malvik"), PUBLISHED)
    row = [1] * len(problem.names)
    for layer, devices in case["shards"].items():
        row[problem.net.index[layer]] = number_of(devices, problem.devices)
    assert problem.evaluate(np.array(row))[0][0] == pytest.approx(case["time"], rel=1e-15)
    assert [one for one in problem.on_devices(row) if one != 1] == [(1, 2)] * len(case["shards"])


@settings(max_examples=25)
@given(images(), clusters(3), SETTINGS, st.data())
def test_a_shared_placement_scores_as_it_is_simulated_and_no_less_than_the_bound(
    net: Net, cluster: Cluster, given: Settings, data: st.DataObject
) -> None:
    problem = NetProblem(net, cluster, given)
    sharing, gene = problem.sharing, st.sampled_from(numbers(problem.devices))
    rows = np.array([[data.draw(gene) for _ in problem.names] for _ in range(4)])
    scores, over = problem.evaluate(rows)
    assert sharing is not None
    for row, score, above in zip(rows.tolist(), scores.tolist(), over.tolist(), strict=True):
        run = simulate(net, cluster, problem.on_devices(row), given)
        assert (score, above) == (run.score, sum(run.over_use))
        assert sharing.bounds.best_ms <= score * (1 + 1e-12)


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
@pytest.mark.parametrize("seed", some_slow([0, 1, 2], [1, 2]))
def test_a_search_that_shares_is_as_good_as_brute_force(search: Search, seed: int) -> None:
    rng = np.random.default_rng(seed)
    entries = {"data": Entry(type="Input", tensor=(64, 16, 16, 3))}
    for number in range(3):
        parents = ("data",) if not number else (f"conv{rng.integers(number)}",)
        shape = (3, 3, -1, int(rng.choice([2, 64, 2048])))
        entries[f"conv{number}"] = Entry(
            type="Convolution", parents=parents, filter=shape, strides=(1, 1, 1, 1), padding="SAME"
        )
    problem = NetProblem(Net("small", entries), cluster("malvik"), replace(PUBLISHED, batch_size=64))
    least = float(problem.evaluate(every_placement(problem))[0].min())
    found = search.search(problem, 1500, seed)
    assert found.score_ms <= least * (1 + 1e-12)
    assert found.bound_ms <= found.score_ms
    alone = replace(search, sharing_rate=0.0).search(problem, 1500, seed)  # type: ignore[call-arg]
    assert found.score_ms <= alone.score_ms


def test_every_set_of_as_many_devices_as_share_layers_has_a_number_that_files_keep() -> None:
    most = np.iinfo(np.int16).max
    assert number_of(range(MOST_DEVICES), MOST_DEVICES) <= most < number_of(range(MOST_DEVICES + 1), MOST_DEVICES + 1)


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
def test_a_search_that_shares_repeats_and_resumes(tmp_path: Path, search: Search) -> None:
    problem = NetProblem(net("alex_v2"), cluster("malvik"), PUBLISHED)
    whole = search.search(problem, 90, 3, threads=2)
    first = search.search(problem, 40, 3, checkpoint=tmp_path / "state")
    found = search.search(pickle.loads(pickle.dumps(problem)), 90, 3, checkpoint=tmp_path / "state")
    assert found.placement == whole.placement
    assert found.resumed == first.evaluations
    assert (found.score_ms, found.evaluations) == (whole.score_ms, whole.evaluations)


def test_groups_share_all_their_convolutions_and_descriptors_count_every_device() -> None:
    base = NetProblem(net("alex_v2"), cluster("malvik"), PUBLISHED)
    problem = grouped(base, "prefix:4")
    row = np.array([number_of([0, 2], 3) if name.startswith("conv") else 1 for name in problem.names])
    layers = np.array([number_of([0, 2], 3) if name.startswith("conv") else 1 for name in base.names])
    assert problem.evaluate(row)[0].tolist() == base.evaluate(layers)[0].tolist()
    sharing = problem.sharing
    assert sharing is not None
    assert sharing.most[[*problem.names].index("conv")] == 384
    assert shares(np.array([number_of([0, 2], 3), 2]), random_problem(0, genes=2))[:2] == (2 / 3, 1 / 3)


def test_a_file_to_resume_from_may_have_sets_of_devices_but_not_the_empty_one(tmp_path: Path) -> None:
    problem, file = NetProblem(net("alex_v2"), cluster("malvik"), PUBLISHED), tmp_path / "search.state"
    found = SEARCHES[0].search(problem, 200, checkpoint=file)
    assert SEARCHES[0].search(problem, 200, checkpoint=file).resumed == found.evaluations
    stored = msgspec.msgpack.decode(file.read_bytes())
    rows = np.frombuffer(stored["rows"], np.int16).copy()
    assert (rows > problem.devices).any()
    rows[-1] = problem.devices
    file.write_bytes(msgspec.msgpack.encode(stored | {"rows": rows.tobytes()}))
    with pytest.raises(PlacementError, match="it is damaged"):
        SEARCHES[0].search(problem, 200, checkpoint=file)


def test_genes_that_cannot_be_shared_are_refused() -> None:
    search = SEARCHES[0]
    with pytest.raises(PlacementError, match="devices share layers of networks alone: set sharing_rate to 0"):
        search.search(random_problem(0, genes=4), Budget(100))
    base = NetProblem(net("alex_v2"), cluster("malvik"), PUBLISHED)
    with pytest.raises(TensortideError, match="a gene is"):
        base.evaluate(np.full(len(base.names), base.devices + 1))
    ones = np.ones((len(base.names), 3))
    timed = NetProblem(base.net, base.cluster, PUBLISHED, times=OpTimes(ones, ones))
    assert timed.sharing is None
    with pytest.raises(TensortideError, match="a gene is"):
        timed.evaluate(np.full(len(base.names), number_of([0, 1], 3)))
