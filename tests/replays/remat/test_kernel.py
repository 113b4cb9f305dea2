"""Parts of the compiled engine that stand for Python's own: division, dice, and the room that a run gets."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tensortide.compiled import entry
from tensortide.plans.remat.policies import Heuristic, Random, policy
from tensortide.plans.remat.schedule import recorded, schedule
from tensortide.replays.remat.fast import state as running
from tensortide.replays.remat.fast.costs import ratio
from tensortide.replays.remat.fast.kernel import play
from tensortide.replays.remat.fast.pool import below
from tensortide.replays.remat.fast.state import FULL, REGISTERS, World, prepared, with_room, words_of
from tensortide.replays.remat.simulation import Rules
from tests.replays.remat.steps import random_graph


def heuristic(name: str) -> Heuristic:
    found = policy(name)
    assert isinstance(found, Heuristic)
    return found


BIG = st.integers(1, 2**53 - 1) | st.integers(0, 52).map(lambda bits: 1 << bits) | st.integers(1, 1000)


@given(work=st.just(0) | BIG, nbytes=BIG, time=BIG)
def test_quotients_are_rounded_as_python_rounds_them(work: int, nbytes: int, time: int) -> None:
    exact, right = Fraction(work, nbytes * time), work / (nbytes * time)
    digit = Fraction(math.ulp(right))
    halfway = abs(abs(exact - Fraction(right)) - digit / 2) < digit / 2**50
    for found in (ratio(work, nbytes, time), -ratio(-work, nbytes, time)):
        assert found == right or (halfway and abs(found - right) <= digit)


@entry
def quotient(work: int, nbytes: int, time: int) -> float:
    return ratio(work, nbytes, time)  # type: ignore[no-any-return]


def test_compiled_quotients_are_rounded_so_too() -> None:
    chance = random.Random(1)
    for _ in range(20_000):
        work, nbytes, time = (chance.getrandbits(chance.randint(1, 53)) or 1 for _ in range(3))
        assert quotient(work, nbytes, time) == work / (nbytes * time)


def drawing(seed: int, words: int) -> World:
    """A state in which the dice of ``seed`` are all that there is."""
    none = np.zeros(0, np.int32)
    reg = np.zeros(1, REGISTERS).view(np.recarray)
    parts: dict[str, Any] = dict.fromkeys(World._fields, none) | {"reg": reg, "words": words_of(Random(seed), words)}
    return World(**parts)


@given(seed=st.integers(0, 2**64), counts=st.lists(st.integers(1, 2**31), min_size=1, max_size=1500))
def test_dice_fall_as_those_of_python(seed: int, counts: list[int]) -> None:
    dice, world = random.Random(seed), drawing(seed, 64 * len(counts))
    assert [below(world, count) for count in counts] == [dice.randrange(count) for count in counts]


def test_dice_that_run_out_end_the_run_to_be_repeated_with_more() -> None:
    world = drawing(1, 3)._replace(trace=np.zeros(5, np.int32))
    assert [below(world, 1 << 31) for _ in range(8)].count(0) >= 5
    assert world.reg["traced"] == 5


def test_stamps_start_anew_when_their_numbers_run_out() -> None:
    graph = random_graph(random.Random(5), 80, in_place=0.0, kept=0.02)
    made = schedule(recorded(graph, [10] * len(graph)))
    ready = prepared(made)
    for name in ("dtr", "dtr-eq", "dtr-unopt"):
        peak = running.run(made, heuristic(name), Rules(), ready).peak_bytes
        traces = []
        for used in (0, np.iinfo(np.int32).max - 9):
            step, state = with_room(ready, 10_000, words_of(heuristic(name), 0))
            running._set(state, heuristic(name), Rules(budget_bytes=int(peak * 0.7)))
            state.reg["token"] = used
            play(step, state)
            assert used == 0 or state.reg["token"] < used
            traces.append(state.trace[: state.reg["traced"][0]].tolist())
        assert traces[0] == traces[1]


def test_a_run_that_needs_more_room_gets_it() -> None:
    graph = random_graph(random.Random(5), 80, in_place=0.0, kept=0.02)
    made = schedule(recorded(graph, [10] * len(graph)))
    ready = prepared(made)
    rules = Rules(budget_bytes=int(running.run(made, heuristic("dtr-eq"), Rules(), ready).peak_bytes * 0.7))
    whole = running.run(made, heuristic("dtr-eq"), rules, ready)
    room, rooms = 1, []
    while True:
        step, state = with_room(ready, room, words_of(heuristic("dtr-eq"), 0))
        running._set(state, heuristic("dtr-eq"), rules)
        status = play(step, state)
        rooms.append(status)
        if status != FULL:
            break
        room += 7
    found = running._outcome(state.reg[0], state.trace, status, rules)
    assert len(rooms) > 10
    assert (found.status, found.clock_ns, found.peak_bytes) == (whole.status, whole.clock_ns, whole.peak_bytes)
    assert np.array_equal(found.kinds, whole.kinds)
    assert np.array_equal(found.indexes, whole.indexes)
