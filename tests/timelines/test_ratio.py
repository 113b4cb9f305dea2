"""The ratio of two machines' steps: what both share cancels, and the interval holds what it says."""

from __future__ import annotations

import math
import random

import pytest

from tensortide.graph import Graph
from tensortide.timelines.machines import MachineStep, step_on
from tensortide.timelines.ratio import work_ratio
from tensortide.timing.collectives.nodes import nodes_called
from tests.graphs import Builder

NORMAL = 1.2816
"""Standard deviations in which 80 % of a normal distribution lie."""


def chain(ops: int, nbytes: int) -> Graph:
    """Pointwise ops one after the other."""
    builder = Builder()
    last = builder.storage(nbytes, device="cuda:0")
    for birth in range(ops):
        after = builder.storage(nbytes, birth=birth, device="cuda:0")
        builder.op([last], [after], name="aten.relu.default")
        last = after
    return builder.graph()


TINY, LARGE, MIXED = chain(40, 4096), chain(12, 2**28), chain(20, 2**22)


def on(graph: Graph, *names: str) -> list[MachineStep]:
    return [step_on(graph, nodes_called(name)) for name in names]


def test_the_error_of_the_host_that_both_wait_for_cancels() -> None:
    a, b = on(TINY, "h100-sxm", "t4")
    found = work_ratio(a, b)
    assert a.step_time.high_ns / a.step_time.low_ns > 1.5  # hosts differ by a factor of 1.5 on both sides
    assert found.high / found.low < 1.1


def test_errors_of_the_ops_of_one_device_cancel_and_those_of_two_do_not() -> None:
    (one, other), (ten,) = on(LARGE, "h100-sxm", "a100-sxm-80gb"), on(LARGE, "4xh100-sxm")
    same = work_ratio(ten, one)
    assert same.same_device
    assert same.value == pytest.approx(4, rel=0.01)
    assert same.high / same.low < 1.01
    assert work_ratio(one, other).high / work_ratio(one, other).low > 1.2


@pytest.mark.parametrize("graph", [TINY, LARGE, MIXED], ids=["tiny", "large", "mixed"])
def test_the_interval_holds_eight_of_ten_draws_of_hosts_and_devices(graph: Graph) -> None:
    a, b = on(graph, "h100-sxm", "t4")
    found, draw = work_ratio(a, b), random.Random(1)

    def of_ops(one: MachineStep) -> float:
        ops, normal = one.line.ops, draw.gauss(0, 1)
        end = ops.high_ns if normal > 0 else ops.low_ns
        return math.exp(abs(math.log(end / ops.time_ns)) * normal / NORMAL)

    inside = 0
    for _ in range(2000):
        host = math.exp(math.log(1.5) * draw.gauss(0, 1) / NORMAL)
        ratio = b.line.end_ns(device=of_ops(b), host=host) / a.line.end_ns(device=of_ops(a), host=host)
        inside += found.low <= ratio <= found.high
    assert 0.75 <= inside / 2000 <= 0.93
