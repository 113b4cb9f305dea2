"""Calls of a trace within each other: callers, self times, and the forward call of each node of the backward pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tensortide.timing.kineto import HostOp


def callers(ops: Sequence[HostOp]) -> list[int]:
    """For each of ``ops`` (in the order of a Trace) the innermost one around it on its thread; -1 if there is none."""
    open_calls: defaultdict[object, list[int]] = defaultdict(list)
    found: list[int] = []
    for index, op in enumerate(ops):
        stack = open_calls[op.thread]
        while stack and ops[stack[-1]].end_ns <= op.start_ns:
            stack.pop()
        found.append(stack[-1] if stack else -1)
        stack.append(index)
    return found


def self_ns(ops: Sequence[HostOp], caller: Sequence[int]) -> list[int]:
    """For each call its time without that of the calls directly within it."""
    found = [op.end_ns - op.start_ns for op in ops]
    for op, outer in zip(ops, caller, strict=True):
        if outer >= 0:
            found[outer] -= op.end_ns - op.start_ns
    return found


def forward_calls(ops: Sequence[HostOp]) -> list[int]:
    """For each node of the backward pass the forward call that made it: the last of equal sequence number; else -1."""
    made = {op.sequence: i for i, op in enumerate(ops) if op.sequence is not None and not op.forward_thread}
    return [made.get(op.sequence, -1) if op.forward_thread and op.sequence is not None else -1 for op in ops]


def in_backward(ops: Sequence[HostOp], caller: Sequence[int]) -> list[bool]:
    """For each call whether it is a node of the backward pass or runs within one."""
    found: list[bool] = []
    for op, outer in zip(ops, caller, strict=True):  # a caller stands before what it calls
        found.append(op.forward_thread != 0 or (outer >= 0 and found[outer]))
    return found
