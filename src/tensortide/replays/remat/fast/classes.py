"""Classes of evicted storages, compiled: union-find whose members can be listed."""

from __future__ import annotations

from tensortide.compiled import compiled
from tensortide.replays.remat.fast.costs import root, span
from tensortide.replays.remat.fast.pool import cheaper
from tensortide.replays.remat.fast.state import FEW_NODES, World


@compiled
def join(w: World, storage: int) -> None:
    """``storage`` left memory: it and the classes next to it become one."""
    _room(w, storage)
    node = _node(w, storage, w.storages[storage].work)
    for upwards in (True, False):
        start, end = span(w, storage, upwards)
        for edge in range(start, end):
            other = w.near[edge]
            if w.storages[other].resident or w.storages[other].dead:
                continue
            top = root(w, other)
            if top < 0:
                top = _node(w, other, 0)
            if top == node:
                continue
            w.nodes[top].above = node
            w.nodes[node].value += w.nodes[top].value
            w.nodes[node].floor += w.nodes[top].floor
            following = w.nodes[top].following
            w.nodes[top].following = w.nodes[node].following
            w.nodes[node].following = following


@compiled
def leave_class(w: World, storage: int) -> None:
    """``storage`` is resident again, or gone for good: its work leaves its class, and what is next to it may be cheaper
    to evict.

    What is next to the rest of the class counts on its floor. Only when that gives way is it told; as the new floor is
    an eighth lower than the class, a good part of the class has to leave before that happens again.
    """
    _relax(w, storage)
    top = root(w, storage)
    if top < 0:
        return
    w.nodes[top].value -= w.storages[storage].work
    if w.nodes[top].value < 0 and w.nodes[top].following != top:
        w.reg[0].exhaustive = 1
    w.storages[storage].place = -1
    value = w.nodes[top].value
    if value >= w.nodes[top].floor:
        return
    w.nodes[top].floor = value - (max(value, 0) >> 3)
    before = top
    while True:
        node = w.nodes[before].following
        if _in_class(w, node):
            _relax(w, w.nodes[node].member)
        elif node != top:
            w.nodes[before].following = w.nodes[node].following
            continue
        if node == top:
            return
        before = node


@compiled
def _relax(w: World, storage: int) -> None:
    for upwards in (True, False):
        start, end = span(w, storage, upwards)
        for edge in range(start, end):
            other = w.near[edge]
            if w.storages[other].resident:
                cheaper(w, other)


@compiled
def _node(w: World, storage: int, work: int) -> int:
    """``storage``, which is not resident, is a class of its own."""
    node = w.reg[0].nodes
    w.reg[0].nodes += 1
    w.storages[storage].place = node
    w.nodes[node].member = storage
    w.nodes[node].stamp = 0
    w.nodes[node].above = w.nodes[node].following = node
    w.nodes[node].value = w.nodes[node].floor = work
    return int(node)


@compiled
def _in_class(w: World, node: int) -> bool:
    """Return whether ``node`` still represents its storage."""
    storage = w.nodes[node].member
    return not w.storages[storage].resident and w.storages[storage].place == node


@compiled
def _room(w: World, storage: int) -> None:
    """See to it that ``storage`` and all that is next to it can get nodes."""
    reg = w.reg[0]
    record = w.storages[storage]
    wanted = 1 + record.up_end - record.up + record.down_end - record.down
    if reg.nodes + wanted > reg.node_limit:
        _tidy(w)
        reg.node_limit = min(reg.nodes + reg.nodes // 4 + wanted + FEW_NODES, len(w.nodes))


@compiled
def _tidy(w: World) -> None:
    """Forget nodes that stand for no storage any more. A class whose top is such a one gets another."""
    count = w.reg[0].nodes
    for node in range(count):
        if not _in_class(w, node):
            continue
        top = root(w, w.nodes[node].member)
        if not _in_class(w, top):
            w.nodes[node].value, w.nodes[node].floor = w.nodes[top].value, w.nodes[top].floor
            w.nodes[node].above = w.nodes[top].above = node
    kept = 0
    for node in range(count):
        if _in_class(w, node):
            w.nodes[node].above = w.nodes[w.nodes[node].above].member
    for node in range(count):
        if _in_class(w, node):
            w.storages[w.nodes[node].member].place = kept
            w.nodes[kept] = w.nodes[node]
            w.nodes[kept].following = kept
            kept += 1
    for node in range(kept):
        top = w.storages[w.nodes[node].above].place
        w.nodes[node].above = top
        if node != top:
            w.nodes[node].following = w.nodes[top].following
            w.nodes[top].following = node
    w.reg[0].nodes = kept
