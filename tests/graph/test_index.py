"""The index of a graph: by hand, and against plain definitions on random graphs."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from tensortide import timeline
from tensortide.errors import GraphError
from tensortide.graph import TENSOR, Call, Graph, Index, Op, Phase, Role, unrolled
from tensortide.plans.checkpointing.segments import no_recompute
from tensortide.plans.checkpointing.stages import to_plan
from tensortide.plans.checkpointing.static import static_graph
from tensortide.plans.order.minimal import footprint
from tensortide.plans.remat.schedule import recorded, schedule
from tensortide.timelines import idleness
from tests.graph.test_loops import looped
from tests.graphs import Builder, graphs


def step() -> Graph:
    """0: w -> a, b;  1: b += view of a;  2: a normalisation of b that updates the running mean m;  3: nothing."""
    builder = Builder()
    w, m = builder.storage(100, Role.PARAMETER), builder.storage(4, Role.BUFFER, device="meta")
    a, b = builder.storage(8, birth=0, death=2), builder.storage(8, birth=0, death=4)
    builder.storage(3, birth=2, death=4)
    view = builder.view(a, 8)
    builder.op([w], [a, b])
    builder.op([b, view], [b], mutated=(0,))
    slots = (("input", TENSOR), ("running_mean", TENSOR), ("training", True))
    builder.calls[Call("aten.native_batch_norm.default", slots, 3, (1,), (), ())] = len(builder.calls)
    builder.ops.append(Op(len(builder.calls) - 1, (b, m), (), Phase.FORWARD))
    builder.op()
    return builder.graph()


def test_by_hand() -> None:
    facts = step().index
    assert facts.owner == (0, 1, 2, 3, 4, 2)
    assert facts.allocated == ((2, 3), (), (4,), ())
    assert facts.released == ((), (), (2,), (), (3, 4))
    assert facts.reads == ((0,), (3, 2), (3, 1), ())
    assert facts.needs == ((0,), (3, 2), (3,), ())
    assert facts.blind == ((), (), (1,), ())
    assert facts.writes == ((2, 3), (3,), (1, 4), ())
    assert facts.touches == ((0, 2, 3), (2, 3), (1, 3, 4), ())
    assert facts.users == ((0,), (2,), (0, 1), (0, 1, 2), (2,))
    assert facts.dependencies == ((), (0,), (1,), ())
    assert all(map(facts.repeatable, range(4)))  # the running mean is updated blindly
    assert facts.devices == {"cpu": 119, "meta": 4}
    assert facts.main_device == "cpu"


def test_an_op_that_counts_its_runs_or_communicates_cannot_run_again() -> None:
    builder = Builder()
    count, value = builder.storage(8, Role.BUFFER), builder.storage(8, birth=0, death=3)
    builder.op([count], [value])
    builder.op([count], [count], mutated=(0,))
    builder.op([value], [value], mutated=(0,), name="c10d.allreduce_.default")
    assert list(map(builder.graph().index.repeatable, range(3))) == [True, False, False]


def test_it_is_made_once_and_each_fact_too() -> None:
    graph = step()
    assert isinstance(graph.index, Index)
    assert graph.index is graph.index
    assert graph.index.users is graph.index.users
    assert msgspec.structs.replace(graph, ops=()).index is not graph.index


@given(graphs())
def test_against_the_definitions(graph: Graph) -> None:
    facts = graph.index
    for index, view in enumerate(graph):
        read, returned = [t.storage for t in view.inputs], [t.storage for t in view.outputs]
        allocated = [i for i, storage in enumerate(graph.storages) if storage.birth == index]
        assert list(facts.reads[index]) == list(dict.fromkeys(read))
        assert set(facts.writes[index]) == view.written_storages | (set(returned) - set(read)) | set(allocated)
        assert list(facts.touches[index]) == sorted({*read, *returned, *allocated})
        assert list(facts.allocated[index]) == allocated
        assert list(facts.released[index]) == [i for i, s in enumerate(graph.storages) if s.death == index]
        assert set(facts.needs[index]) | set(facts.blind[index]) == set(read)
    backward = [index for index, view in enumerate(graph) if view.phase is Phase.BACKWARD]
    assert facts.backward_end == (backward[-1] + 1 if backward else 0)
    for storage, users in enumerate(facts.users):
        assert list(users) == [op for op, touched in enumerate(facts.touches) if storage in touched]


@given(graphs())
def test_the_digest_tells_what_a_plan_refers_to(graph: Graph) -> None:
    again = msgspec.structs.replace(graph, modules=())
    assert again.index.digest == graph.index.digest
    for storage in graph.storages[:1]:
        larger = msgspec.structs.replace(storage, nbytes=storage.nbytes + 1)
        other = msgspec.structs.replace(graph, storages=(larger, *graph.storages[1:]))
        assert other.index.digest != graph.index.digest


def test_a_loop_allocates_once_per_iteration() -> None:
    graph = looped()
    assert graph.index.copies == (1, 5, 15)
    assert sum(graph.index.devices.values()) == sum(s.nbytes for s in unrolled(graph).storages)


# The main device


def split() -> Graph:
    """The largest storage (50) is on ``meta``; most bytes (60) are on ``cpu``."""
    builder = Builder()
    parts = [builder.storage(30, Role.PARAMETER) for _ in range(2)]
    large = builder.storage(50, Role.PARAMETER, device="meta")
    builder.op([*parts, large], [builder.storage(1, birth=0)])
    return builder.graph()


def test_the_device_with_the_largest_footprint_is_the_default_everywhere() -> None:
    graph = split()
    nodes = static_graph(graph, [1])
    found = [
        timeline(graph).device,
        idleness(graph, [1]).device,
        footprint(graph).device,
        schedule(recorded(graph, [1])).device,
        to_plan(no_recompute(nodes), nodes, graph).lanes[0].device,
    ]
    assert found == ["cpu"] * 5
    assert nodes.fixed_bytes == 60


def test_a_device_that_holds_nothing_is_refused() -> None:
    for name in ("meta", None, ""):
        assert split().index.device(name) == (name or "cpu")
    with pytest.raises(GraphError, match="nothing is on device 'cuda:0'; the graph has cpu, meta"):
        split().index.device("cuda:0")
    assert Builder().graph().index.device(None) == "cpu"
