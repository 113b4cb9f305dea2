"""Policies on random traces: bytes are conserved, nothing beats the ideal, and what fits is not moved."""

from __future__ import annotations

import numpy as np
import pytest

from tensortide.errors import PlanError
from tensortide.replays.g10 import POLICIES, G10Machine, chosen
from tensortide.replays.g10.flashneuron import Pages
from tensortide.replays.g10.machine import GIB, PAGE, Trace
from tensortide.replays.g10.overlap import overlap_ns
from tensortide.replays.g10.planner import Period, estimate, periods, preallocations
from tests.replays.g10.traces import random_trace

SEEDS = range(4)


def live_bytes(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Bytes of live tensors during each kernel, counted one by one."""
    found = np.zeros(len(trace), np.int64)
    for kernel in range(len(trace)):
        for tensor, (uses, death) in enumerate(zip(trace.uses, trace.deaths, strict=True)):
            if uses and (trace.lasts[tensor] or uses[0] <= kernel < death):
                found[kernel] += int(trace.pages[tensor]) * PAGE
    return found


def tight(trace: Trace, part: float = 0.6) -> G10Machine:
    return G10Machine(device_bytes=int(live_bytes(trace).max() * part) // PAGE * PAGE)


@pytest.mark.parametrize("name", list(POLICIES))
def test_each_policy_has_a_title_and_is_never_faster_than_the_ideal(name: str) -> None:
    row = POLICIES[name]
    assert row.title
    assert row.about
    for seed in SEEDS:
        trace = random_trace(seed)
        equal = G10Machine(device_bytes=tight(trace).device_bytes, wire=10**9, drive=10**9)
        for machine in (G10Machine(), tight(trace), tight(trace, 0.4), equal):
            found = row.play(trace, machine)
            assert found.policy == name
            assert (found.step_ns is None) == bool(found.reason)
            if found.step_ns is not None:
                assert found.step_ns >= found.ideal_ns == int(trace.ns.sum())
                assert 0 <= found.overlap_ns <= found.ideal_ns


@pytest.mark.parametrize("name", list(POLICIES))
def test_nothing_moves_in_a_step_that_fits(name: str) -> None:
    for seed in SEEDS:
        trace = random_trace(seed)
        found = POLICIES[name].play(trace, G10Machine())
        assert found.traffic.total == 0
        assert found.step_ns == trace.ideal_ns


@pytest.mark.parametrize("name", ["uvm-lru", "deepum"])
def test_pages_that_come_in_have_left_before(name: str) -> None:
    """In a steady step without dead pages to drop as many come in as go out; with them no more."""
    for seed in SEEDS:
        trace = random_trace(seed)
        traffic = POLICIES[name].play(trace, tight(trace)).traffic
        assert traffic.host_in > 0
        if name == "uvm-lru":
            assert traffic.host_in + traffic.ssd_in == traffic.host_out + traffic.ssd_out


def test_pages_on_demand_fault_as_a_queue_of_pages_says() -> None:
    """Each page counted on its own: the page that arrived first leaves first, dead or not."""
    for seed in SEEDS[:2]:
        trace = random_trace(seed, layers=5)
        machine = tight(trace)
        pages = {t: [(t, page) for page in range(int(n))] for t, n in enumerate(trace.pages)}
        resident: dict[tuple[int, int], None] = {}
        faults = []
        for _ in range(2):
            count = 0
            for kernel in range(len(trace)):
                for tensor in sorted(trace.operands(kernel)):
                    absent = [page for page in pages[tensor] if page not in resident]
                    count += len(absent)
                    resident.update(dict.fromkeys(absent))
                    while len(resident) > machine.device_bytes // PAGE:
                        del resident[next(iter(resident))]
            faults.append(count)
        found = POLICIES["uvm-lru"].play(trace, machine).traffic
        assert found.host_in / PAGE == pytest.approx(faults[1], rel=0.02)


def test_the_estimate_knows_the_lifetimes_of_all_tensors_where_none_fits() -> None:
    """But for tensor 0, which it counts twice, and memory that is requested before it is used."""
    for seed in SEEDS:
        trace = random_trace(seed)
        early = [uses[0] if uses else -1 for uses in trace.uses]
        level, known = estimate(trace, early, 0)
        assert len(known) == sum(not lasts for lasts in trace.lasts)
        assert trace.lasts[0]
        assert (level == live_bytes(trace) + int(trace.pages[0]) * PAGE).all()
        assert all(asked <= uses[0] for asked, uses in zip(preallocations(trace), trace.uses, strict=True) if uses)


def test_periods_are_those_between_uses_and_around_the_step() -> None:
    trace = random_trace(1, layers=4)
    found = periods(trace)
    assert [x.ns * x.nbytes for x in found] == sorted((x.ns * x.nbytes for x in found), reverse=True)
    for period in found:
        kernels = _kernels(period, len(trace))
        assert kernels
        assert not kernels & {*trace.uses[period.tensor]}
        assert period.ns == sum(int(trace.ns[kernel]) for kernel in kernels)
    wraps = {period.tensor for period in found if period.wraps or not period.begin}
    assert wraps <= {tensor for tensor in range(len(trace.pages)) if trace.lasts[tensor]}


def _kernels(period: Period, count: int) -> set[int]:
    if period.wraps:
        return {*range(period.begin, count), *range(period.end)}
    return {*range(period.begin, period.end)}


def test_tensors_are_placed_first_fit_from_both_ends() -> None:
    room = Pages(10)
    assert room.take(1, 3)
    assert room.take(2, 2, right=True)
    assert room.take(3, 4)
    assert room.places == {1: (0, 3), 2: (8, 10), 3: (3, 7)}
    assert room.free == 1
    assert not room.take(4, 2)
    room.give(1)
    assert room.take(4, 2)
    assert room.places[4] == (0, 2)
    room.give(3)
    room.give(4)
    room.give(2)
    assert room.gaps == [(0, 10)]


def test_overlap_counts_each_moment_once() -> None:
    assert overlap_ns([(0, 10), (20, 30)], [(5, 25), (6, 8), (29, 40)]) == 5 + 5 + 1
    assert overlap_ns([(0, 10)], []) == 0


def test_flashneuron_says_that_it_cannot_run_a_step_whose_rest_does_not_fit() -> None:
    trace = random_trace(0)
    found = POLICIES["flashneuron"].play(trace, G10Machine(device_bytes=int(trace.pages[trace.lasts].sum()) * PAGE))
    assert found.step_ns is None
    assert found.reason == "what cannot be offloaded does not fit"


def test_four_times_the_memory_never_slows_the_tensor_granular_policies() -> None:
    for seed in SEEDS:
        trace = random_trace(seed)
        for name in ("g10-gds", "g10-host"):
            plain, compat = (POLICIES[name].play(trace, tight(trace, 0.7), compat=on) for on in (False, True))
            assert compat.step_ns is not None
            assert plain.step_ns is None or compat.step_ns <= plain.step_ns


def test_names_of_policies_are_read_and_others_refused() -> None:
    assert chosen("all") == tuple(POLICIES)
    assert chosen("g10, deepum,g10") == ("g10", "deepum")
    with pytest.raises(PlanError, match="there is no policy 'lru': it is all, or some of ideal"):
        chosen("deepum,lru")


def test_the_batches_of_the_authors_machine_are_those_of_its_logs() -> None:
    machine = G10Machine()
    assert machine.batch_ns * 12 // 10 in (15_598, 15_599)  # cycles at 1.2 GHz
    assert machine.drive_pages == 10
    assert machine.device_bytes == 40 * GIB
    assert {way: sum(link.bytes_per_s for link in links) for way, links in machine.links().items()} == {
        "host": 15_754_000_000,
        "host and drive": 15_754_000_000,
    }
    assert tuple(G10Machine(wire=3_000_000_000).links()) == ("host", "drive")
