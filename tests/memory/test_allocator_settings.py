"""Settings of PyTorch's allocator: read as PyTorch reads them, and replayed by its documented rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide import GraphBuilder
from tensortide.errors import GraphError
from tensortide.memory import CachingAllocator, allocator, reserve
from tensortide.memory.allocator_settings import SETTINGS, AllocatorSettings, read_settings
from tensortide.memory.allocators import allocator_of, expandable

MIB = 1 << 20
DOCS = Path(__file__).parents[2] / "docs" / "memory.md"


@pytest.mark.parametrize(
    ("settings", "name", "others"),
    [
        ("", "cuda", ""),
        ("expandable_segments:True", "cuda_expandable", ""),
        (
            "max_split_size_mb:128, expandable_segments:True",
            "cuda:max_split_size_mb:128,expandable_segments:True",
            "",
        ),
        (
            "expandable_segments:False,roundup_power2_divisions:[1:1,>:4]",
            "cuda:roundup_power2_divisions:[1:1,>:4]",
            "",
        ),
        ("max_non_split_rounding_mb:20", "cuda", ""),
        ("backend:native", "cuda", ""),
        ("backend:cudaMallocAsync,max_split_size_mb:64", "cuda", "backend:cudaMallocAsync"),
        (
            "pinned_use_background_threads:True,garbage_collection_threshold:0.8",
            "cuda",
            "garbage_collection_threshold:0.8",
        ),
    ],
)
def test_settings_of_pytorch_choose_the_allocator(settings: str, name: str, others: str) -> None:
    assert allocator_of(settings) == (name, others)
    assert allocator(name).title


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("max_split_size:128", "Unrecognized key 'max_split_size' in CUDA allocator config"),
        ("max_split_size_mb:10", "max_split_size_mb too small, must be >= 20"),
        ("max_split_size_mb:20,large_segment_size_mb:25", "max_split_size_mb too small, must be >= 25"),
        ("max_split_size_mb:large", "a number of MiB, not 'large'"),
        ("roundup_power2_divisions:3", "powers of 2, not '3'"),
        ("roundup_power2_divisions:[3:4]", "powers of 2, not '3'"),
        ("expandable_segments:yes", "Expected 'True' or 'False' but got 'yes'"),
        ("backend:async", "options are native and cudaMallocAsync"),
    ],
)
def test_what_pytorch_does_not_accept_is_an_error_of_one_line(settings: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        allocator_of(settings)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(GraphError, match=r"^allocator cuda:"):
        allocator(f"cuda:{settings}")


def test_an_allocator_by_name_has_no_setting_that_is_not_modelled() -> None:
    with pytest.raises(GraphError, match="backend:cudaMallocAsync is not modelled"):
        allocator("cuda:backend:cudaMallocAsync")


def test_every_setting_is_in_the_table_of_the_docs() -> None:
    table = DOCS.read_text("utf-8")
    assert [key for key in SETTINGS if f"`{key}`" not in table] == []


@pytest.mark.parametrize(
    ("text", "divisions"),
    [
        (
            "[64:8,128:2,256:4,512:2,1024:4,>:1]",
            {32: 8, 64: 8, 128: 2, 256: 4, 512: 2, 1024: 4, 2048: 1, 4096: 1, 8192: 1},
        ),
        ("[128:8,256:16,512:1,2048:8,>:2]", {64: 8, 128: 8, 256: 16, 512: 1, 1024: 0, 2048: 8, 4096: 2}),
        ("4", {64: 4, 256: 4, 2048: 4}),
    ],
)
def test_divisions_are_those_that_pytorch_tests(text: str, divisions: dict[int, int]) -> None:
    """Oracle: ``c10/test/core/AllocatorConfig_test.cpp``, by MiB."""
    found = read_settings(f"roundup_power2_divisions:{text}")[0].divisions
    assert {size: found[size.bit_length() - 1] for size in divisions} == divisions


@given(st.integers(1, 1 << 31) | st.integers(1, 20_000), st.sampled_from([1, 2, 4, 8, 16]))
def test_requests_are_rounded_up_to_the_nearest_part_of_a_power_of_two(nbytes: int, parts: int) -> None:
    """Oracle: of all boundaries that divide the space between two powers of two the first that is large enough."""
    rounding = allocator(f"cuda:roundup_power2_divisions:{parts}").rounding
    expected = -(-nbytes // 512) * 512
    if parts > 1 and nbytes > 512 * parts:
        low = next(1 << power for power in range(31, -1, -1) if 1 << power <= nbytes)
        expected = min(low + low * part // parts for part in range(parts + 1) if low + low * part // parts >= nbytes)
    assert rounding(nbytes) == expected


def test_the_example_of_the_documentation_is_rounded_as_it_says() -> None:
    """1200 with 4 divisions lies between 1024 and 2048, whose parts begin at 1024, 1280, 1536 and 1792: in KiB here."""
    assert allocator("cuda:roundup_power2_divisions:4").rounding(1200 << 10) == 1280 << 10


Steps = list[tuple[bool, int]]


def in_segments(steps: Steps, settings: AllocatorSettings) -> Iterator[tuple[int, int]]:
    """Yield bytes reserved and handed out after each step of a trace, from the intervals of each segment that are
    taken: what lies between them is free."""
    segments: list[tuple[bool, int]] = []
    taken: list[tuple[int, int, int]] = []
    limit = settings.max_split or 1 << 60
    for frees, nbytes in steps:
        if frees and taken:
            taken.pop(nbytes % len(taken))
        else:
            size = -(-nbytes // 512) * 512
            small, gaps = size <= MIB, []
            for number, (of_small, length) in enumerate(segments):
                own = sorted((start, stop) for segment, start, stop in taken if segment == number)
                edges = [(0, 0), *own, (length, length)]
                between = [(stop, start) for (_, stop), (start, _) in itertools.pairwise(edges)]
                gaps += [(end - at, number, at) for at, end in between if of_small == small and end - at >= size]
            found = min(gaps, default=None)
            if found is not None and (found[0] >= limit if size < limit else found[0] >= size + settings.max_rounding):
                found = None
            if found is None:
                length = 2 * MIB if small else settings.large_segment
                length = length if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
                segments.append((small, length))
                found = (length, len(segments) - 1, 0)
            rest = found[0] - size
            splits = rest >= 512 if small else rest > MIB and size < limit
            taken.append((found[1], found[2], found[2] + (size if splits else found[0])))
        yield sum(length for _, length in segments), sum(stop - start for _, start, stop in taken)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 80 * MIB) | st.integers(1, 3 * MIB)), max_size=30),
    st.sampled_from(["", "max_split_size_mb:20", "max_split_size_mb:32,max_non_split_rounding_mb:40"]),
    st.sampled_from(["", "large_segment_size_mb:12"]),
)
def test_the_replay_reserves_what_intervals_of_segments_do(steps: Steps, splits: str, segments: str) -> None:
    settings = read_settings(f"{splits},{segments}")[0]
    pool = CachingAllocator(settings)
    held: list[Any] = []
    for (frees, nbytes), (reserved, handed_out) in zip(steps, in_segments(steps, settings), strict=True):
        if frees and held:
            pool.release(held.pop(nbytes % len(held)))
        else:
            held.append(pool.malloc(nbytes))
        assert (pool.reserved, pool.allocated) == (reserved, handed_out)


def test_a_block_that_may_not_be_split_serves_no_smaller_request() -> None:
    """A free block of 64 MiB is split for 30 MiB by default; from 40 MiB on blocks are not, and another is reserved."""
    for name, reserved in (("cuda", 64), ("cuda:max_split_size_mb:40", 94)):
        pool = allocator(name).pool()
        pool.release(pool.malloc(64 * MIB))
        pool.malloc(30 * MIB)
        assert pool.reserved == reserved * MIB


def test_expandable_segments_come_on_top_of_other_settings() -> None:
    assert expandable("cuda") == expandable("cuda_expandable") == "cuda_expandable"
    both = "cuda:max_split_size_mb:64,expandable_segments:True"
    assert expandable("cuda:max_split_size_mb:64") == expandable(both) == both


def test_a_graph_is_replayed_with_the_settings_of_its_program() -> None:
    build = GraphBuilder("step", device="cuda:0")
    build.op("aten.relu.default", build.input("x", (4,)), out=(1200 << 8,))
    graph = build.build()
    plain, divided = reserve(graph), reserve(graph, "cuda:roundup_power2_divisions:4")
    assert divided.peak_allocated - plain.peak_allocated == 80 << 10
