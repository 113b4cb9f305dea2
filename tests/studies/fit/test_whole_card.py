"""The memory of the whole card: rows that add up, and a verdict that counts what lies beside the pool."""

from __future__ import annotations

from fractions import Fraction

from tensortide import capture, timeline
from tensortide.graph import Graph
from tensortide.memory import reserve
from tensortide.memory.communicators import Interval, communicators
from tensortide.studies.fit import verdict
from tensortide.studies.fit.margins import EXACT, Margin
from tensortide.studies.fit.whole_card import CONTEXT, CardRow, whole_card
from tensortide.timing.cards import of_bytes
from tests.recorder.test_ranks import RANKS, sharded

ENDS = ("low_bytes", "likely_bytes", "high_bytes")
BESIDE = ("CUDA context", "communicators of NCCL")


def rows_of(graph: Graph, margin: Margin = EXACT) -> tuple[CardRow, ...]:
    return whole_card(graph, timeline(graph), reserve(graph).peak_reserved, margin)


def test_rows_add_up_to_the_card_and_those_of_the_pool_to_what_the_allocator_reserves() -> None:
    graph = capture("mlp", machine="H100-SXM-80GB")
    line, reserved = timeline(graph), reserve(graph).peak_reserved
    for margin in (EXACT, Margin(Fraction(8, 9), Fraction(9, 8)), Margin(above=None)):
        *parts, whole = rows_of(graph, margin)
        least, most = margin.pool(line.peak_bytes, reserved)
        for end, pool in zip(ENDS, (least, reserved, most), strict=True):
            known = [getattr(row, end) for row in parts]
            assert getattr(whole, end) == (None if None in known else sum(known))
            if pool is not None:
                assert sum(getattr(row, end) for row in parts if row.what not in BESIDE) == pool
        assert [row.what for row in parts if row.what in BESIDE] == ["CUDA context"]


def test_the_pool_has_what_communicators_leave_of_a_device() -> None:
    margin = Margin(beside=Interval(1, 2, 3))
    assert (margin.pool_bytes(10), margin.pool_bytes(2)) == (7, 0)
    assert margin.sure_bytes(10) == 7
    assert (margin.least_bytes(5), margin.most_bytes(5)) == (6, 8)


def test_a_published_context_lies_in_the_interval() -> None:
    """Oracle: 256 MiB (RTX 3090), 426 MiB (RTX 6000 Ada), 300 to 400 MB (others, CUDA 11.7 and later)."""
    assert CONTEXT.high is not None
    for nbytes in (256 * 2**20, 426 * 2**20, 300e6, 400e6):
        assert CONTEXT.low <= nbytes <= CONTEXT.high


def test_communicators_decide_whether_a_rank_fits() -> None:
    graph = capture(sharded, ranks=RANKS, machine="H100-SXM-80GB")
    beside, reserved = communicators(graph), reserve(graph).peak_reserved
    assert beside.high
    found = verdict(graph, timed=False)
    for nbytes, fits in (
        (reserved, "too large"),
        (reserved + beside.low, "unsure"),
        (reserved + beside.high * 2, "fits"),
    ):
        found = verdict(graph, card=of_bytes(nbytes), timed=False)
        assert found.asked is not None
        assert found.asked.fits == fits
    assert [row.what for row in found.whole_card][-2:] == ["communicators of NCCL", "whole card"]
    assert capture(sharded, ranks=1, machine="H100-SXM-80GB").meta.groups != graph.meta.groups


def test_a_step_of_a_cpu_has_no_card() -> None:
    assert not rows_of(capture("mlp"))
