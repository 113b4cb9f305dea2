"""What holds of every plan that is played: time and bytes add up, nothing is slower for having more, contents are
right."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tensortide.errors import PlanError
from tensortide.plans import Compute, Copy, Drop, Evict, Fetch, Offload
from tensortide.plans.events import Change, Played, engine_name, play, steady_ns
from tensortide.plans.instance import DEVICE, Instance, InstanceOp, InstanceStorage
from tensortide.plans.model import Step
from tensortide.timing.links import Link
from tests.plans.events.drawn import random_instance, random_plan

replace = msgspec.structs.replace


class Case:
    """A random plan that is legal, and a budget that it keeps: the least, one that makes it wait, or none."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.instance = random_instance(chance, blind=chance.random() < 0.3)
        self.steps, self.home = random_plan(chance, self.instance)
        self.budget: int | None = None
        try:
            serial, free = self.play(serial=True), self.play()
        except PlanError:
            assume(False)
        least, most = serial.peak_bytes, max(serial.peak_bytes, free.peak_bytes)
        self.budget = chance.choice((None, least, chance.randint(least, most)))
        self.chance = chance

    def play(self, instance: Instance | None = None, steps: Sequence[Step] | None = None, **options: Any) -> Played:
        options = {"home": self.home, "budget_bytes": self.budget, **options}
        return play(instance or self.instance, self.steps if steps is None else steps, **options)


CASES = st.integers(0, 10**6).map(Case)


@given(CASES, st.booleans())
def test_time_is_that_of_ops_of_stalls_with_their_causes_and_of_a_tail(case: Case, serial: bool) -> None:
    played = case.play(serial=serial)
    ops = {i: case.instance.ops[step.op] for i, step in enumerate(played.steps) if isinstance(step, Compute)}
    runs = [*ops]
    assert played.base_ns + played.recompute_ns == sum(op.ns for op in ops.values())
    assert played.makespan_ns == played.base_ns + played.recompute_ns + played.stall_ns + played.tail_ns
    waited = {i: [stall for stall in played.stalls if stall.step == i] for i in runs}
    for before, run in itertools.pairwise([-1, *runs]):
        end = 0 if before < 0 else played.end_ns[before]
        edges = [end, *(stall.end_ns for stall in waited[run])]
        assert [stall.start_ns for stall in waited[run]] == edges[:-1]
        assert edges[-1] == played.start_ns[run]
    for stall in played.stalls:
        assert stall.start_ns < stall.end_ns == played.end_ns[stall.by]
        kind = {"fetch": Fetch, "copy": Copy}.get(stall.cause)
        assert kind is None or isinstance(played.steps[stall.by], kind)


@given(CASES, st.booleans())
def test_bytes_allocated_are_bytes_released_and_bytes_that_stay(case: Case, serial: bool) -> None:
    played = case.play(serial=serial)
    where = {**case.instance.home, **case.home}
    there = {(where.get(s, DEVICE), s) for s, storage in enumerate(case.instance.storages) if storage.given}
    for step in played.steps:
        match step:
            case Compute(op):
                there |= {(DEVICE, s) for s in case.instance.ops[op].makes}
            case Evict(s):
                there.remove((DEVICE, s))
            case Fetch(s, _):
                there.add((DEVICE, s))
            case Copy(s, link):
                there.add((link, s))
            case Drop(s, link):
                there.remove((link, s))
    for place, changes in played.changes.items():
        stay = sum(case.instance.storages[s].nbytes for name, s in there if name == place)
        assert played.before_bytes[place] + sum(change.nbytes for change in changes) == stay


@given(CASES, st.booleans())
def test_engines_move_one_storage_at_a_time_and_places_hold_what_they_can(case: Case, serial: bool) -> None:
    played = case.play(serial=serial)
    for engine, busy in played.busy_ns.items():
        spans = sorted(
            (start, end)
            for name, start, end in zip(played.engine, played.start_ns, played.end_ns, strict=True)
            if name == engine
        )
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert busy == sum(end - start for start, end in spans) <= played.makespan_ns
    capacities = {DEVICE: case.budget, **{link.name: link.capacity_bytes for link in case.instance.links}}
    peaks = {DEVICE: played.peak_bytes, **played.tier_peak_bytes}
    for place, changes in played.changes.items():
        levels = [_level(played, place, change) for change in changes if change.nbytes > 0]
        assert max([played.before_bytes[place], *levels]) == peaks[place]
        capacity = capacities[place]
        assert capacity is None or peaks[place] <= capacity


def _level(played: Played, place: str, at: Change) -> int:
    """Bytes held right after the step of ``at`` allocated: less what was released by then by the steps before it."""
    level = played.before_bytes[place]
    for change in played.changes[place]:
        if change.nbytes > 0:
            level += change.nbytes if change.step <= at.step else 0
        elif change.step < at.step and change.time_ns <= at.time_ns:
            level += change.nbytes
    return level


@given(CASES)
def test_a_plan_fits_from_the_peak_of_its_serial_replay_on(case: Case) -> None:
    least = case.play(serial=True, budget_bytes=None).peak_bytes
    assert case.play(budget_bytes=least).peak_bytes <= least
    if least:
        with pytest.raises(PlanError):
            case.play(budget_bytes=least - 1)


@given(CASES)
def test_less_work_or_more_of_a_resource_takes_no_longer(case: Case) -> None:
    chance, instance, budget = case.chance, case.instance, case.budget
    before = case.play()
    for _ in range(chance.randint(1, 3)):
        match chance.randrange(4):
            case 0:
                op = chance.randrange(len(instance.ops))
                less = replace(instance.ops[op], ns=instance.ops[op].ns // 2)
                instance = replace(instance, ops=_put(instance.ops, op, less))
            case 1 if instance.storages:
                s = chance.randrange(len(instance.storages))
                smaller = replace(instance.storages[s], nbytes=instance.storages[s].nbytes // 2)
                instance = replace(instance, storages=_put(instance.storages, s, smaller))
            case 2 if instance.links:
                at = chance.randrange(len(instance.links))
                better = _faster(chance, instance.links[at])
                instance = replace(instance, links=_put(instance.links, at, better))
            case _:
                budget = None if budget is None else budget + chance.randint(0, 5)
    assert case.play(instance, budget_bytes=budget).makespan_ns <= before.makespan_ns


def _put(items: tuple[Any, ...], at: int, item: Any) -> tuple[Any, ...]:
    return (*items[:at], item, *items[at + 1 :])


def _faster(chance: random.Random, link: Link) -> Link:
    rates = [rate * chance.randint(1, 2) for rate in (link.bytes_per_s, link.in_bytes_per_s or link.bytes_per_s)]
    capacity = None if link.capacity_bytes is None else link.capacity_bytes + chance.randint(0, 5)
    latency = chance.randint(0, link.latency_ns)
    return Link(link.name, rates[0], latency, in_bytes_per_s=rates[1], capacity_bytes=capacity)


@given(CASES)
def test_any_schedule_listed_by_its_start_times_plays_no_slower(case: Case) -> None:
    slow = replace(
        case.instance, ops=tuple(replace(op, ns=op.ns + case.chance.randint(0, 9)) for op in case.instance.ops)
    )
    schedule = case.play(slow, serial=case.chance.random() < 0.5)
    at: list[int] = []
    touched: dict[int, int] = {}
    for step, start in zip(schedule.steps, schedule.start_ns, strict=True):
        if isinstance(step, Evict | Drop):
            touched[step.storage] = max(start, touched.get(step.storage, 0))
            at.append(touched[step.storage])
            continue
        for s in case.instance.ops[step.op].touches if isinstance(step, Compute) else (step.storage,):
            assume(start >= touched.get(s, 0))  # one residence of a storage after the other
            touched[s] = start
        at.append(start)
    order = sorted(range(len(at)), key=lambda i: (at[i], i))
    listed = case.play(slow, [schedule.steps[i] for i in order])
    assert listed.makespan_ns <= schedule.makespan_ns
    assert case.play(steps=[schedule.steps[i] for i in order]).makespan_ns <= schedule.makespan_ns


@given(CASES)
def test_every_op_finds_the_contents_that_it_had_in_the_recorded_step(case: Case) -> None:
    instance = case.instance
    recorded = _contents(instance, [Compute(op) for op in range(len(instance.ops))], {})
    first = dict(recorded)
    for op, found in _contents(instance, case.play().steps, {**instance.home, **case.home}):
        assert found == first[op]


def _contents(instance: Instance, steps: Sequence[Step], home: Mapping[int, str]) -> list[tuple[int, Any]]:
    """Each op that runs, with the contents that its outputs depend on: tokens of what made them."""
    device: dict[int, Any] = {}
    tiers: dict[tuple[int, str], Any] = {}
    for s, storage in enumerate(instance.storages):
        if storage.given and home.get(s, DEVICE) == DEVICE:
            device[s] = ("before", s)
        elif storage.given:
            tiers[s, home[s]] = ("before", s)
    ran: set[int] = set()
    found = []
    for step in steps:
        match step:
            case Compute(number):
                op = instance.ops[number]
                seen = {s: device[s] for s in {*op.reads, *op.writes} - {*op.blind}}
                token = (number, hash(tuple(sorted(seen.items(), key=str))))
                found.append((number, token))
                changed = {*op.writes} - ({*op.blind} if number in ran else set())
                device.update({s: (*token, s) for s in changed | {m for m in op.makes if m not in device}})
                ran.add(number)
            case Evict(s):
                del device[s]
            case Copy(s, link):
                tiers[s, link] = device[s]
            case Fetch(s, link):
                device[s] = tiers[s, link]
            case Drop(s, link):
                del tiers[s, link]
            case _:
                raise AssertionError(step)
    return found


def chain(ns: int, nbytes: int, rate: int) -> Instance:
    """Op 0 makes storage 0, op 1 takes ``ns``, op 2 reads storage 0."""
    ops = (
        InstanceOp("make", 10, makes=(0,)),
        InstanceOp("work", ns, makes=(1,)),
        InstanceOp("use", 10, reads=(0, 1)),
    )
    link = Link("host", Fraction(rate), 0)
    return Instance(ops, (InstanceStorage(nbytes), InstanceStorage(1)), (link,))


def test_a_rerun_leaves_blind_updates_alone() -> None:
    storages = (InstanceStorage(4, given=True, persistent=True, pinned=True), InstanceStorage(2), InstanceStorage(1))
    ops = (InstanceOp("norm", 5, writes=(0,), makes=(1,), blind=(0,)), InstanceOp("use", 5, reads=(1,), makes=(2,)))
    instance = Instance(ops, storages)
    steps: list[Step] = [Compute(0), Evict(1), Compute(0), Compute(1)]
    assert play(instance, steps).recompute_ns == 5
    seen = replace(instance, ops=(replace(ops[0], blind=()), ops[1]))
    with pytest.raises(PlanError, match=r"needs storage 0 as written before the step; .* by op 0 \(norm\)") as caught:
        play(seen, steps)
    error = caught.value
    assert (error.step, error.storage, error.expected, error.found) == (2, 0, -1, 0)


def test_the_first_run_of_an_op_follows_those_that_make_its_views() -> None:
    storage = InstanceStorage(4, given=True, persistent=True)
    instance = Instance((InstanceOp("view", 0, reads=(0,)), InstanceOp("use", 1, reads=(0,), after=(0,))), (storage,))
    play(instance, [Compute(0), Compute(1)])
    with pytest.raises(PlanError, match=r"step 0 computes op 1 \(use\) before op 0 \(view\)"):
        play(instance, [Compute(1), Compute(0)])


def test_stalls_say_what_was_waited_for() -> None:
    late = play(chain(30, 100, 10**9), [Compute(0), Offload(0, "host"), Fetch(0, "host"), Compute(1), Compute(2)])
    assert [(s.cause, s.by, s.storage, s.start_ns, s.end_ns) for s in late.stalls] == [("fetch", 3, 0, 40, 210)]
    steps: list[Step] = [Compute(0), Offload(0, "host"), Compute(1), Fetch(0, "host"), Compute(2)]
    tight = play(chain(30, 100, 10**9), steps, budget_bytes=101)
    causes = [(s.cause, s.asks, s.by, s.storage, s.start_ns, s.end_ns) for s in tight.stalls]
    assert causes == [("room", 4, 1, 0, 40, 110), ("fetch", 6, 4, 0, 110, 210)]
    synchronous = play(chain(30, 100, 10**9), steps, serial=True)
    causes = [(s.cause, s.asks, s.by, s.storage, s.start_ns, s.end_ns) for s in synchronous.stalls]
    assert causes == [("serial", 2, 1, -1, 10, 110), ("serial", 5, 4, -1, 140, 240)]


def test_what_lacks_room_says_how_much() -> None:
    with pytest.raises(PlanError, match=r"op 1 .* needs 1 bytes of the device, of whose 100 100 are held") as caught:
        play(chain(30, 100, 10**9), [Compute(0), Compute(1), Compute(2)], budget_bytes=100)
    assert (caught.value.step, caught.value.short_bytes) == (1, 1)


def test_the_steady_period_counts_what_a_step_leaves_to_the_next() -> None:
    """A copy that outlasts the step delays the next one's only where its engine or its bytes are needed."""
    ops = (InstanceOp("read", 10, reads=(0,), makes=(1,)), InstanceOp("update", 10, reads=(1,), writes=(0,)))
    storages = (InstanceStorage(40, given=True, persistent=True), InstanceStorage(1))
    instance = Instance(ops, storages, (Link("host", Fraction(10**9), 0),))
    steps: list[Step] = [Fetch(0, "host"), Compute(0), Compute(1), Offload(0, "host")]
    home = {0: "host"}
    assert play(instance, steps, home=home).makespan_ns == 40 + 20 + 40
    assert steady_ns(instance, steps, home=home) == 100
    assert steady_ns(instance, [Compute(0), Compute(1)]) == 20


@given(CASES)
def test_the_steady_period_of_a_plan_without_transfers_is_its_time(case: Case) -> None:
    assume(not any(isinstance(step, Copy | Offload | Fetch) for step in case.steps))
    period = steady_ns(case.instance, case.steps, home=case.home, budget_bytes=case.budget)
    assert period == case.play().makespan_ns


def test_bytes_change_at_known_times() -> None:
    played = play(chain(30, 100, 10**9), [Compute(0), Compute(1), Compute(2)])
    assert played.changes[DEVICE] == (
        Change(0, 100, 0, 0),
        Change(10, 1, 1, 1),
        Change(50, -100, 0, 3),
        Change(50, -1, 1, 4),
    )
    assert engine_name("host", inwards=True) == "host in"
