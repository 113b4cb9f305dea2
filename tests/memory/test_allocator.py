"""The caching allocator replayed: pools, splits and merges by hand, and invariants on random graphs."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from rich.console import Console

from tensortide import GraphBuilder
from tensortide.errors import GraphError
from tensortide.graph import Graph, Phase, Role
from tensortide.memory import ALLOCATORS, CUDA_CACHING, Allocator, CachingAllocator, Rounding, reserve
from tensortide.memory.allocator_settings import AllocatorSettings
from tensortide.memory.rounding import Rounded
from tensortide.reports.sections import Step
from tensortide.reports.sections.memory import document as memory_document
from tensortide.timelines import timeline
from tests.graphs import Builder, graphs

KIB, MIB = 1 << 10, 1 << 20


def test_segments_by_size() -> None:
    for request, segment in [(1, 2), (MIB, 2), (MIB + 1, 20), (10 * MIB - 512, 20), (10 * MIB, 10), (11 * MIB + 1, 12)]:
        allocator = CachingAllocator()
        allocator.malloc(request)
        assert allocator.reserved == segment * MIB


def test_small_and_large_do_not_share() -> None:
    allocator = CachingAllocator()
    allocator.malloc(2 * MIB)
    allocator.malloc(KIB)
    assert allocator.reserved == 22 * MIB


def test_what_a_stream_has_freed_no_other_takes() -> None:
    allocator = CachingAllocator()
    allocator.release(allocator.malloc(2 * MIB, 1))
    allocator.malloc(2 * MIB)
    assert allocator.reserved == 40 * MIB
    allocator.malloc(2 * MIB, 1)
    assert allocator.reserved == 40 * MIB


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30 * MIB), st.integers(0, 2)), max_size=40))
def test_streams_reserve_what_each_would_alone(steps: list[tuple[bool, int, int]]) -> None:
    """Oracle: an allocator for each stream."""
    together, apart = CachingAllocator(), [CachingAllocator() for _ in range(3)]
    held: list[tuple[Any, Any, int]] = []
    for frees, nbytes, stream in steps:
        if frees and held:
            one, other, of = held.pop(nbytes % len(held))
            together.release(one)
            apart[of].release(other)
        else:
            held.append((together.malloc(nbytes, stream), apart[stream].malloc(nbytes), stream))
        assert together.reserved == sum(each.reserved for each in apart)
        assert together.allocated == sum(each.allocated for each in apart)


def reserved_with_room_at_the_end(steps: list[tuple[bool, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield bytes reserved and handed out after each step of a trace with expandable segments, from the intervals that
    are taken of each pool: what lies between them is free."""
    mapped: dict[tuple[bool, int], int] = {}
    taken: list[tuple[tuple[bool, int], int, int]] = []
    for frees, nbytes, stream in steps:
        if frees and taken:
            taken.pop(nbytes % len(taken))
        else:
            size = -(-nbytes // 512) * 512
            pool = (size <= MIB, stream)
            end, gaps, at = mapped.get(pool, 0), [], 0
            for start, stop in sorted((start, stop) for own, start, stop in taken if own == pool):
                gaps.append((start - at, at))
                at = stop
            inner = [gap for gap in gaps if gap[0] >= size]
            at = min(inner)[1] if inner else at
            page = 2 * MIB if pool[0] else 20 * MIB
            mapped[pool] = end if at + size <= end else end + -(-(at + size - end) // page) * page
            taken.append((pool, at, at + size))
        yield sum(mapped.values()), sum(stop - start for _, start, stop in taken)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30 * MIB) | st.integers(1, 3 * MIB), st.integers(0, 1))))
def test_expandable_segments_are_intervals_of_one_that_grows(steps: list[tuple[bool, int, int]]) -> None:
    allocator = CachingAllocator(AllocatorSettings(expandable=True))
    held: list[Any] = []
    for (frees, nbytes, stream), (reserved, handed_out) in zip(
        steps, reserved_with_room_at_the_end(steps), strict=True
    ):
        if frees and held:
            allocator.release(held.pop(nbytes % len(held)))
        else:
            held.append(allocator.malloc(nbytes, stream))
        assert (allocator.reserved, allocator.allocated) == (reserved, handed_out)


def test_an_expandable_segment_grows_by_what_is_missing_at_its_end() -> None:
    allocator = CachingAllocator(AllocatorSettings(expandable=True))
    allocator.release(allocator.malloc(30 * MIB))
    assert allocator.reserved == 40 * MIB
    allocator.malloc(45 * MIB)
    assert allocator.reserved == 60 * MIB


def freed_and_taken(*streams: int) -> Graph:
    """A step that frees a result of 2 MiB and then makes one as large that outlasts it, on these streams."""
    build = GraphBuilder("step", device="cuda:0")
    x = build.input("x", (4,))
    for _ in streams:
        build.op("aten.relu.default", x, out=(MIB // 2,))
    graph = build.build()
    first, *own = (each.birth is not None for each in graph.storages)
    assert not first
    assert own == [True, True]
    births = [None, 0, 1]
    deaths = [None, 1, None]
    storages = tuple(
        structs.replace(each, birth=birth, death=death, stream=stream)
        for each, birth, death, stream in zip(graph.storages, births, deaths, (0, *streams), strict=True)
    )
    return structs.replace(graph, storages=storages)


def test_a_replayed_step_has_a_pool_for_each_stream() -> None:
    assert reserve(freed_and_taken(0, 0)).peak_reserved == 22 * MIB
    assert reserve(freed_and_taken(0, 1)).peak_reserved == 42 * MIB


def test_an_empty_request_takes_nothing() -> None:
    allocator = CachingAllocator()
    block = allocator.malloc(0)
    allocator.release(block)
    assert (allocator.allocated, allocator.reserved) == (0, 0)


def test_best_fit_takes_the_smallest_hole_that_is_large_enough() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.malloc(n * MIB) for n in (4, 2, 3, 2, 5)]
    allocator.release(blocks[0])
    allocator.release(blocks[2])
    hole = allocator.malloc(3 * MIB)
    assert hole is not None
    assert hole.address == 6 * MIB
    assert allocator.reserved == 20 * MIB


def test_neighbours_merge_when_freed() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.malloc(5 * MIB) for _ in range(4)]
    for i in (1, 3, 2):
        allocator.release(blocks[i])
    assert allocator.malloc(15 * MIB) is not None
    assert allocator.reserved == 20 * MIB


def test_a_large_block_keeps_a_rest_of_up_to_a_mebibyte() -> None:
    allocator = CachingAllocator()
    allocator.release(allocator.malloc(12 * MIB))
    allocator.malloc(11 * MIB)
    assert allocator.allocated == 12 * MIB
    other = CachingAllocator()
    other.release(other.malloc(12 * MIB))
    other.malloc(11 * MIB - 512)
    assert other.allocated == 11 * MIB - 512


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30 * MIB), st.integers(0, 50)), max_size=60))
def test_blocks_never_overlap_and_everything_comes_back(steps: list[tuple[bool, int, int]]) -> None:
    allocator = CachingAllocator()
    held: list[Any] = []
    for take, nbytes, which in steps:
        if take or not held:
            held.append(allocator.malloc(nbytes))
        else:
            allocator.release(held.pop(which % len(held)))
        spans = sorted((b.address, b.address + b.size) for b in held if b is not None)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        assert allocator.allocated == sum(end - start for start, end in spans) <= allocator.reserved
    for block in held:
        allocator.release(block)
    assert allocator.allocated == 0


@given(graphs())
def test_a_step_allocates_at_least_its_rounded_bytes(graph: Graph) -> None:
    result, line = reserve(graph), timeline(graph, rounding=CUDA_CACHING, workspace=False)
    assert (result.allocated >= line.resident).all()
    assert (result.reserved >= result.allocated).all()
    assert (result.allocated - line.resident <= MIB * len(graph.storages)).all()


def test_a_step_by_hand() -> None:
    b = Builder()
    b.storage(30 * MIB, Role.PARAMETER, device="cuda:0")
    first = b.storage(12 * MIB, Role.ACTIVATION, 0, 1, device="cuda:0")
    second = b.storage(12 * MIB, Role.ACTIVATION, 1, 2, device="cuda:0")
    b.op([], [first])
    b.op([], [second])
    result = reserve(b.graph())
    assert (result.peak_allocated, result.peak_reserved) == (42 * MIB, 42 * MIB), "the second takes the first's place"
    assert reserve(Builder().graph()).peak_reserved == 0


@pytest.mark.parametrize("name", ALLOCATORS)
def test_every_row_is_complete(name: str) -> None:
    row = ALLOCATORS[name]
    assert row.title
    pool = row.pool()
    blocks = [pool.malloc(nbytes) for nbytes in (0, 1, 700, 5000)]
    assert row.rounding(5701) <= pool.allocated <= pool.reserved
    assert pool.allocated == sum(map(row.rounding, (0, 1, 700, 5000)))
    for block in blocks:
        pool.release(block)
    assert pool.allocated == 0
    assert row.pool().reserved == 0, "a fresh pool each time"


@given(graphs())
def test_each_allocator_holds_at_least_its_rounded_bytes(graph: Graph) -> None:
    for name, row in ALLOCATORS.items():
        result, line = reserve(graph, name), timeline(graph, rounding=row.rounding, workspace=False)
        assert (result.allocated >= line.resident).all()
        if isinstance(row.pool(), Rounded):
            assert result.allocated.tolist() == result.reserved.tolist() == line.resident.tolist()


def test_a_new_row_is_a_new_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    dozens = Rounding("dozens", 12)
    row = Allocator(title="Egg boxes", rounding=dozens, pool=lambda: Rounded(dozens), counters=("eggs", "boxes"))
    monkeypatch.setitem(ALLOCATORS, "eggs", row)
    b = Builder()
    b.op([b.storage(13, Role.PARAMETER)], [b.storage(25, Role.ACTIVATION, 0, 1)])
    document = memory_document(Step(b.graph()), allocator="eggs")
    found = document["memory"]
    assert (found.fact("peak_allocated_bytes"), found.fact("peak_reserved_op")) == (24 + 36, 0)
    shown = io.StringIO()
    Console(file=shown, width=80).print(document)
    assert all(word in shown.getvalue() for word in ("Egg boxes", "60 B", "eggs", "boxes"))
    with pytest.raises(
        GraphError, match="there is no allocator 'crates'; there are exact, cpu, cuda, cuda_expandable, pages, eggs"
    ):
        reserve(b.graph(), "crates")


def test_the_first_step_makes_the_optimizers_state_where_its_activations_were() -> None:
    """A block of 30 MiB is free again when 20 MiB of state are made, and split: the next step needs another."""
    b = Builder()
    weight, state = b.storage(30 * MIB, Role.PARAMETER), b.storage(20 * MIB, Role.OPTIMIZER_STATE)
    activation = b.storage(30 * MIB, Role.ACTIVATION, 0, 1)
    b.op([weight], [activation])
    b.op([weight, state], [], phase=Phase.OPTIMIZER)
    found = reserve(b.graph())
    assert (found.peak_allocated, found.peak_reserved) == (80 * MIB, 90 * MIB)


def test_what_a_step_leaves_behind_is_what_the_next_one_finds() -> None:
    b = Builder()
    weight, before = b.storage(30 * MIB, Role.PARAMETER), b.storage(30 * MIB, Role.GRADIENT, None, 0, name="w.grad")
    after = b.storage(30 * MIB, Role.GRADIENT, 0, name="w.grad")
    b.op([weight, before], [after])
    found = reserve(b.graph())
    assert found.allocated.tolist() == [60 * MIB]
    assert found.peak_reserved == 60 * MIB
