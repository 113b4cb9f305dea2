"""Classes of evicted storages, compiled: union-find whose members can be listed."""

from __future__ import annotations

from numba import njit

from tensortide.replay.remat.fast.costs import root, span
from tensortide.replay.remat.fast.pool import cheaper
from tensortide.replay.remat.fast.state import EXHAUSTIVE, NODES, World


@njit(cache=True)
def join(w: World, storage: int) -> None:
    """``storage`` left memory: it and the classes next to it become one."""
    node = w.reg[NODES]
    w.reg[NODES] += 1
    w.storages[storage].node = node
    w.nodes[node].member = storage
    w.nodes[node].above = w.nodes[node].following = node
    w.nodes[node].value = w.nodes[node].floor = w.storages[storage].work
    for upwards in (True, False):
        near = w.up if upwards else w.down
        start, end = span(w, storage, upwards)
        for edge in range(start, end):
            other = near[edge]
            if w.storages[other].material or w.storages[other].dead:
                continue
            top = root(w, other)
            if top == node:
                continue
            w.nodes[top].above = node
            w.nodes[node].value += w.nodes[top].value
            w.nodes[node].floor += w.nodes[top].floor
            following = w.nodes[top].following
            w.nodes[top].following = w.nodes[node].following
            w.nodes[node].following = following


@njit(cache=True)
def leave_class(w: World, storage: int) -> None:
    """``storage`` is resident again, or gone for good: its work leaves its class, and what is next to it may be cheaper
    to evict.

    What is next to the rest of the class counts on its floor. Only when that gives way is it told; as the new floor is
    an eighth lower than the class, a good part of the class has to leave before that happens again.
    """
    top = root(w, storage)
    w.nodes[top].value -= w.storages[storage].work
    if w.nodes[top].value < 0 and w.nodes[top].following != top:
        w.reg[EXHAUSTIVE] = 1
    w.storages[storage].node = -1
    _relax(w, storage)
    value = w.nodes[top].value
    if value >= w.nodes[top].floor:
        return
    w.nodes[top].floor = value - (max(value, 0) >> 3)
    before = top
    while True:
        node = w.nodes[before].following
        member = w.nodes[node].member
        if w.storages[member].node == node:
            _relax(w, member)
        elif node != top:
            w.nodes[before].following = w.nodes[node].following
            continue
        if node == top:
            return
        before = node


@njit(cache=True)
def _relax(w: World, storage: int) -> None:
    for upwards in (True, False):
        near = w.up if upwards else w.down
        start, end = span(w, storage, upwards)
        for edge in range(start, end):
            other = near[edge]
            if w.storages[other].material:
                cheaper(w, other, w.storages[other].work)
