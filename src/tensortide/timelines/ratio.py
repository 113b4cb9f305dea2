"""Ratio of the steps of two machines: errors that both share cancel in it."""

from __future__ import annotations

import math
from typing import NamedTuple

from tensortide.timelines.machines import MachineStep
from tensortide.timelines.step import HOST_ENDS, Side
from tensortide.timing.figures import at_least


class Ratio(NamedTuple):
    """The work of one machine over that of another in the same time, with its 80 % interval.

    ``same_device``: errors of the ops are common to both, like that of the host's time; else they are independent.
    ``no_slower``: single devices, of which the first, which does more, is as good in every figure; the interval then
    begins at 1 or above.
    """

    value: float
    low: float
    high: float
    same_device: bool
    no_slower: bool


def work_ratio(a: MachineStep, b: MachineStep) -> Ratio:
    """The work of ``a`` over that of ``b``, each of whose devices takes a step.

    Both are taken to have the same host, and their exchanges of gradients to be missed independently.
    """
    value = _time(b) / _time(a) * a.nodes.size / b.nodes.size
    same = a.nodes.device == b.nodes.device and a.graph is b.graph
    halves: dict[Side, float] = {}
    others: tuple[tuple[Side, Side], ...] = (("below", "above"), ("above", "below"))
    for side, other in others:
        host = [_shift(b, host=end) - _shift(a, host=end) for end in HOST_ENDS.values()]
        if same:
            shifts = [_shift(b, device=end) - _shift(a, device=end) for end in _ends(a)]
            ops = [_towards(side, shifts)]
        else:
            ops = [_own(a, other), _own(b, side)]
        halves[side] = math.hypot(_towards(side, host), *ops, _exchange(a, other), _exchange(b, side))
    alone = a.nodes.size == b.nodes.size == 1
    no_slower = value >= 1 and alone and at_least(a.nodes.device, b.nodes.device)
    low, high = value * math.exp(-halves["below"]), value * math.exp(halves["above"])
    return Ratio(value, max(1.0, low) if no_slower else low, high, same, no_slower)


def _time(one: MachineStep) -> float:
    return max(1.0, one.step_time.time_ns)


def _shift(one: MachineStep, *, device: float = 1.0, host: float = 1.0) -> float:
    """Return by how much the step is longer, in natural logarithms, if ops or the host take so many times as long."""
    return math.log1p((one.line.end_ns(device=device, host=host) - one.line.end_ns()) / _time(one))


def _ends(one: MachineStep) -> tuple[float, float]:
    ops = one.line.ops
    return (ops.low_ns / ops.time_ns, ops.high_ns / ops.time_ns) if ops.time_ns else (1.0, 1.0)


def _towards(side: Side, shifts: list[float]) -> float:
    """The farthest of ``shifts`` on this side."""
    return max(0.0, *(-shift if side == "below" else shift for shift in shifts))


def _own(one: MachineStep, side: Side) -> float:
    """The half-width of a step by its ops, on a machine that shares no error of theirs."""
    return one.line.halves()[side] * one.line.end_ns() / _time(one)


def _exchange(one: MachineStep, side: Side) -> float:
    exposed = one.exchange.exposed(overlap=True)
    end = exposed.low_ns if side == "below" else exposed.high_ns
    return abs(math.log1p((end - exposed.time_ns) / _time(one)))
