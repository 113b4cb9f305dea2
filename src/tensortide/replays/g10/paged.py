"""A policy that moves pages, played for two steps from cold; the faster one counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tensortide.replays.g10 import pages
from tensortide.replays.g10.machine import ALLOCATION_NS, BATCH_PAGES, PAGE, G10Machine, Ints, Trace
from tensortide.replays.g10.outcome import G10Outcome, Traffic
from tensortide.search_limit import Look, attended, no_look

_SECOND = 10**9
STEPS = 2
"""Steps that are played, the first one from cold."""


@dataclass(frozen=True, slots=True)
class Request:
    """Request of a policy when ``kernel`` starts: ``kind`` is one of those of ``pages``."""

    kernel: int
    tensor: int
    kind: int


def paged(
    policy: str,
    trace: Trace,
    machine: G10Machine,
    requests: Sequence[Request],
    *,
    ahead: int = 0,
    lazy: bool = False,
    look: Look = no_look,
) -> G10Outcome:
    """Play ``requests``, tensors at first on the drive if they last and else absent. ``look`` is called now and then;
    it may raise."""
    steps, rules = _steps(trace, requests), _rules(machine, ahead, lazy)
    world = _world(trace, machine, len(requests))
    found: list[Ints] = []

    def stop() -> None:
        world.registers[pages.STOP] = 1

    for _ in range(STEPS):
        counts = np.zeros(pages.COUNTS, np.int64)
        attended(partial(pages.play, steps, rules, world, counts), look, stop)
        if counts[pages.STUCK]:
            kernel = int(counts[pages.STUCK]) - 1
            return G10Outcome(
                policy=policy, ideal_ns=trace.ideal_ns, reason=f"kernel {kernel} finds no room for its operands"
            )
        found.append(counts)
    best = min(found, key=lambda counts: int(counts[pages.TIME]))
    moved = [int(best[count]) * PAGE for count in (pages.HOST_IN, pages.HOST_OUT, pages.DRIVE_IN, pages.DRIVE_OUT)]
    return G10Outcome(
        policy=policy,
        ideal_ns=trace.ideal_ns,
        step_ns=int(best[pages.TIME]),
        overlap_ns=int(best[pages.OVERLAP]),
        traffic=Traffic(*moved),
    )


def _rules(machine: G10Machine, ahead: int, lazy: bool) -> pages.Rules:
    return pages.Rules(
        batch_ns=machine.batch_ns,
        batch=BATCH_PAGES,
        drive=machine.drive_pages,
        allocated=max(1, int(machine.batch_ns / (PAGE * ALLOCATION_NS))),
        wire_rate=machine.wire / PAGE / _SECOND,
        beside_rate=machine.beside / PAGE / _SECOND,
        drive_rate=machine.drive / PAGE / _SECOND,
        fault_share=machine.host_latency_ns / max(1, machine.drive_latency_ns),
        ahead=ahead,
        lazy=lazy,
    )


def _steps(trace: Trace, requests: Sequence[Request]) -> pages.Steps:
    operands = [sorted(trace.operands(kernel)) for kernel in range(len(trace))]
    asked: list[list[Request]] = [[] for _ in operands]
    for request in requests:
        asked[request.kernel].append(request)
    flat = [request for row in asked for request in row]
    inputs = [frozenset(row) for row in trace.inputs]
    return pages.Steps(
        ns=trace.ns,
        rate_in=_rates(trace, trace.inputs, trace.all_absent_ns - trace.outputs_absent_ns),
        rate_out=_rates(trace, trace.outputs, trace.outputs_absent_ns - trace.ns),
        operands=np.array([tensor for row in operands for tensor in row], np.int64),
        read=np.array([tensor in inputs[kernel] for kernel, row in enumerate(operands) for tensor in row], np.bool_),
        ends=_ends(operands),
        requests=np.array([request.tensor for request in flat], np.int64),
        kinds=np.array([request.kind for request in flat], np.int64),
        request_ends=_ends(asked),
        pages=trace.pages,
        death=np.array([-1 if lasts else death for lasts, death in zip(trace.lasts, trace.deaths, strict=True)]),
    )


def _rates(
    trace: Trace, tensors: Sequence[Sequence[int]], late_ns: Ints
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Pages per nanosecond at which faults are handled: those of all ``tensors`` in the time that the kernel takes
    longer when they are absent. It counts in whole seconds, as in the original's logs; below one there is no limit.
    """
    return np.array(
        [
            sum(int(trace.pages[tensor]) for tensor in row) / (late // _SECOND * _SECOND)
            if late >= _SECOND
            else math.inf
            for row, late in zip(tensors, late_ns.tolist(), strict=True)
        ]
    )


def _ends(rows: Sequence[Sequence[object]]) -> Ints:
    return np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)


def _world(trace: Trace, machine: G10Machine, requests: int) -> pages.World:
    count = len(trace.pages)
    registers = np.zeros(pages.REGISTERS, np.int64)
    registers[pages.FREE] = machine.device_bytes // PAGE
    registers[pages.AT_HOST] = machine.host_bytes // PAGE
    registers[pages.NEWEST] = registers[pages.OLDEST] = -1
    registers[pages.TICK] = 1

    def column(value: int = 0, length: int = count) -> Ints:
        return np.full(length, value, np.int64)

    return pages.World(
        device=column(),
        host=column(),
        drive=np.where(trace.lasts, trace.pages, 0),
        older=column(-2),
        newer=column(-2),
        used=column(-1),
        until=column(-1),
        due=column(),
        asked=column(),
        queue=column(length=STEPS * requests + 1),
        leaving=column(length=STEPS * requests + 1),
        to_drive=column(length=STEPS * requests + 1),
        registers=registers,
    )
