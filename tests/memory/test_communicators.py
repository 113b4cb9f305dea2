"""Communicators of NCCL: their number of buffers by hand, and what users report of a group."""

from __future__ import annotations

from msgspec.structs import replace

from tensortide import GraphBuilder
from tensortide.graph import Graph
from tensortide.memory.communicators import (
    CONNECTION_BYTES,
    OTHERS,
    SWITCHED,
    Interval,
    communicators,
    used_groups,
)


def with_groups(**groups: tuple[str, int]) -> Graph:
    """A step with a collective in each group: its kind and number of ranks."""
    build = GraphBuilder("step", device="cuda:0")
    x = build.input("x", (4,))
    for name, (kind, _) in groups.items():
        build.op(f"_c10d_functional.{kind}.default", x, out=(4,), arguments={"group_name": name})
    graph = build.build()
    ranks = {name: tuple(range(count)) for name, (_, count) in groups.items()}
    return replace(graph, meta=replace(graph.meta, groups=ranks))


def test_a_group_takes_the_buffers_of_its_channels_from_its_first_collective_on() -> None:
    graph = with_groups(alone=("all_reduce", 1), gathers=("all_gather_into_tensor", 8))
    assert used_groups(graph) == {"gathers": {"all_gather"}}
    one = CONNECTION_BYTES
    assert communicators(graph, SWITCHED) == Interval(16 * one, 24 * one, 32 * 3 * one)
    assert communicators(graph, OTHERS) == Interval(2 * one, 2 * one, 4 * 3 * one)
    assert communicators(with_groups()) == Interval()


def test_groups_add_up() -> None:
    first, second = ("all_reduce", 8), ("reduce_scatter_tensor", 2)
    both, *each = (
        communicators(with_groups(**groups)) for groups in ({"a": first, "b": second}, {"a": first}, {"b": second})
    )
    assert both.high is not None
    assert both == Interval(*(x + y for x, y in zip(*each, strict=True)))


def test_users_report_half_a_gigabyte_to_0_7_of_a_group_that_all_reduces() -> None:
    """Oracle: reports of 0.5 to 0.7 GB a group where a switch joins the devices."""
    for ranks in (2, 4, 8):
        found = communicators(with_groups(group=("all_reduce", ranks)))
        assert 0.45e9 < found.likely < 0.7e9
        assert found.high is not None
        assert found.low < found.likely < found.high
