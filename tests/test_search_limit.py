"""Limits of searches, and solvers that are attended while they run."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from tensortide.plans import linear_program
from tensortide.search_limit import SearchLimit, attended, interruptible
from tests.clocks import on_a_loaded_machine


class Enough(Exception):
    """The listener has had enough."""


def test_what_is_spent_of_a_part_is_spent_of_the_whole() -> None:
    whole = SearchLimit(work=100)
    whole.spend(20)
    part = whole.part(0.5)
    assert (part.work_left, whole.work_left) == (40, 80)
    part.spend(50)
    assert (part.work_left, whole.work_left) == (0, 30)
    assert part.spent
    assert not whole.spent
    whole.spend(30)
    assert whole.part(1.0).spent


def test_a_part_is_over_when_the_whole_is() -> None:
    whole = SearchLimit(work=10)
    part = whole.part(0.5)
    whole.spend(10)
    assert part.spent


def test_a_part_has_the_clock_of_the_whole() -> None:
    now = [100.0]
    whole = SearchLimit(seconds=10, clock=lambda: now[0])
    part = whole.part(0.5)
    now[0] += 4
    assert (part.seconds_left, whole.seconds_left) == (1, 6)
    now[0] += 2
    assert part.spent
    assert not whole.spent


def test_of_work_alone_no_clock_is_read() -> None:
    limit = on_a_loaded_machine(lambda: SearchLimit.given(None, 10, otherwise_s=60))
    assert not on_a_loaded_machine(lambda: limit.part(0.5).spent)
    assert limit.seconds_left == float("inf")


def test_without_a_limit_what_others_do_meanwhile_ends_no_search() -> None:
    limit, by_the_wall = SearchLimit.given(None, None, otherwise_s=0.2), SearchLimit.given(0.2, None, otherwise_s=60)
    time.sleep(0.25)  # as while others have the processor
    assert not limit.part(0.5).spent
    assert by_the_wall.spent


@pytest.mark.parametrize("given", [(60.0, None), (None, None), (60.0, 10)])
def test_seconds_that_are_over_end_a_search(given: tuple[float | None, float | None]) -> None:
    assert on_a_loaded_machine(lambda: SearchLimit.given(*given, otherwise_s=60).spent)
    assert not SearchLimit.given(*given, otherwise_s=60).spent


def test_what_attended_work_returns_or_raises_comes_through() -> None:
    assert attended(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        attended(lambda: 1 // 0)


def test_a_listener_that_has_had_enough_stops_the_work_and_waits_for_its_end() -> None:
    stop, ended = threading.Event(), threading.Event()

    def work() -> None:
        stop.wait(60)
        ended.set()

    def look() -> None:
        raise Enough

    with pytest.raises(Enough):
        attended(work, look, stop.set)
    assert ended.is_set()


def test_code_that_looks_at_nothing_ends_when_the_listener_has_had_enough() -> None:
    closed: list[bool] = []

    def work() -> None:
        try:
            while True:
                with contextlib.suppress(Exception):
                    sum(range(100))
        finally:
            closed.append(True)

    def look() -> None:
        raise Enough

    with pytest.raises(Enough):
        interruptible(work, look)
    assert closed == [True]
    assert interruptible(lambda: 7) == 7


def test_what_ends_python_code_within_a_finalizer_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    closing = threading.Event()

    class Slow:
        def __del__(self) -> None:
            closing.set()
            while True:  # only what is raised in here ends it, and goes no further
                time.sleep(0.01)

    def work() -> None:
        for _ in range(2):
            Slow()
            raised.append(True)
        while True:
            time.sleep(0.01)

    def look() -> None:
        if closing.is_set():
            raise Enough

    raised: list[bool] = []
    with pytest.raises(Enough):
        interruptible(work, look)
    assert raised
    assert not shown


def program(rows: int, columns: int) -> dict[str, Any]:
    from scipy.sparse import random_array

    draw = np.random.default_rng(0)
    matrix: Any = random_array((rows, columns), density=0.02, rng=draw, format="csc")
    return {"A_ub": matrix, "b_ub": matrix @ draw.random(columns) + 0.1, "bounds": (0, 1)}


def test_a_program_that_is_solved_in_a_process_of_its_own_has_the_same_optimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cost, stated = -np.ones(60), program(30, 60)
    here = linear_program.solved(cost, limit=SearchLimit(), iteration=1, **stated)
    assert linear_program.solved(cost, limit=SearchLimit(work=1), iteration=2, **stated) is None
    monkeypatch.setattr(linear_program, "_SMALL", 0)
    limit = SearchLimit(work=1_000)
    there = linear_program.solved(cost, limit=limit, iteration=2, **stated)
    assert here is not None
    assert there is not None
    assert there.x.tolist() == here.x.tolist()
    assert there.ineqlin.marginals.tolist() == here.ineqlin.marginals.tolist()
    assert limit.work_left == 1_000 - 2 * here.nit
    assert linear_program.solved(cost, limit=SearchLimit(work=3), iteration=2, **stated) is None


def test_a_program_that_takes_long_ends_with_its_listener() -> None:
    """Without a trace: a thread that HiGHS runs in would abort the program at its end."""
    cost, stated, began = -np.ones(6_000), program(3_000, 6_000), time.monotonic()

    def look() -> None:
        if time.monotonic() - began > 0.2:
            raise Enough

    threads = threading.active_count()
    with pytest.raises(Enough):
        linear_program.solved(cost, limit=SearchLimit(seconds=300), iteration=1, look=look, **stated)
    assert time.monotonic() - began < 20
    assert threading.active_count() == threads


def test_seconds_that_do_not_count_end_no_search() -> None:
    began = time.monotonic()
    limit = SearchLimit.given(0.1, None, otherwise_s=60, apart_s=lambda: time.monotonic() - began)
    time.sleep(0.15)
    assert not limit.spent
