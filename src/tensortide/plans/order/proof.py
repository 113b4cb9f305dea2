"""Certificates of lower bounds, and a check of them from the graph alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import msgspec

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.plans.order.problem import START, Problem
from tensortide.plans.order.problem import stated as state


class Persistent(msgspec.Struct, frozen=True, tag="persistent"):
    """Bytes resident throughout: a bound for a step that does nothing."""


class Cut(msgspec.Struct, frozen=True, tag="cut"):
    """A flow from what op ``op`` must follow to what must follow it, through blocks and dependencies.

    ``storages`` are ``(storage, user, bytes)``: bytes flow from the op that allocates a storage, or from the start of
    the step, to one of its users, no more of them than it has; the number of ops as user is the end of the step.
    ``waits`` are ``(op, dependency, bytes)``: any number of bytes flows from an op to one that it must follow. Every op
    that need not run before or after ``op`` sends on what it receives. Take any order, and the set D of ops before
    ``op``: no dependency leads out of D, so the whole flow leaves it through storages that are allocated in D or exist
    before the step, and are used outside D: they are resident. Hence at ``op`` at least the persistent bytes, the flow,
    and what ``op`` allocates are resident together.
    """

    op: int
    storages: tuple[tuple[int, int, int], ...]
    waits: tuple[tuple[int, int, int], ...]


class Either(msgspec.Struct, frozen=True, tag="either"):
    """In any order op ``first`` runs before ``second`` or after it: a bound for each case."""

    first: int
    second: int
    before: Proof
    after: Proof


class Exhausted(msgspec.Struct, frozen=True, tag="exhausted"):
    """Every set of ops that can be reached with less than ``nbytes`` was visited, from the start of the step
    (``forward``) or from its end, and none of them led through."""

    nbytes: int
    forward: bool


Proof: TypeAlias = Persistent | Cut | Either | Exhausted


def verify(graph: Graph, proof: Proof, *, device: str, workspace: bool = True) -> int:
    """The lower bound, in bytes, on the peak of every order of ``graph`` on ``device`` that ``proof`` proves.

    Flows are added up; an exhausted search is done again, by plain enumeration (which may take long). Of a step with
    loops, ops are those of the loops written out, or units of them that stay together (``problem.Stated``).
    Raises PlanError if the proof does not hold.
    """
    return _bound(state(graph, device, workspace=workspace).problem, proof)


def _bound(stated: Problem, proof: Proof) -> int:
    if isinstance(proof, Either):
        _known(stated, proof.first, proof.second)
        if proof.first == proof.second:
            raise PlanError(f"op {proof.first} runs neither before nor after itself")
        with ordered(stated, ((proof.first, proof.second),)):
            before = _bound(stated, proof.before)
        with ordered(stated, ((proof.second, proof.first),)):
            return min(before, _bound(stated, proof.after))
    if isinstance(proof, Cut):
        return _flow(stated, proof) + stated.base + stated.needs[proof.op]
    if isinstance(proof, Exhausted):
        if _leads_through(stated, proof.nbytes - 1):
            raise PlanError(f"an order with a peak below {proof.nbytes} bytes exists")
        return proof.nbytes
    return stated.base


def _flow(stated: Problem, proof: Cut) -> int:
    """Bytes that leave what ``proof.op`` must follow. Raises PlanError if they are no flow."""
    _known(stated, proof.op, *(op for op, _, _ in proof.waits))
    block_of = {storage: block for block, storage in enumerate(stated.storage)}
    sent: dict[int, int] = {}
    excess = dict.fromkeys((START, *range(len(stated) + 1)), 0)
    for storage, user, nbytes in proof.storages:
        block = block_of.get(storage, -1)
        sent[block] = sent.get(block, 0) + nbytes
        if block < 0 or nbytes < 0 or user not in stated.users[block] or sent[block] > stated.nbytes[block]:
            raise PlanError(f"{nbytes} bytes cannot flow through storage {storage} to op {user}")
        excess[stated.birth[block]] -= nbytes
        excess[user] += nbytes
    for op, dependency, nbytes in proof.waits:
        if nbytes < 0 or dependency not in stated.before[op]:
            raise PlanError(f"{nbytes} bytes cannot flow from op {op} to op {dependency}")
        excess[op] -= nbytes
        excess[dependency] += nbytes
    first, last = {START, *stated.ancestors(proof.op)}, {proof.op, len(stated), *stated.descendants(proof.op)}
    kept = [op for op, nbytes in excess.items() if nbytes and op not in first and op not in last]
    if kept:
        raise PlanError(f"op {kept[0]} does not send on what it receives")
    return -sum(excess[op] for op in first)


def _known(stated: Problem, *ops: int) -> None:
    strange = [op for op in ops if not 0 <= op < len(stated)]
    if strange:
        raise PlanError(f"there is no op {strange[0]}: the step has {len(stated)} ops")


def _leads_through(stated: Problem, limit: int) -> bool:
    """Return whether some order stays within ``limit``, by visiting all reachable sets of ops."""
    everything = frozenset(range(len(stated)))
    seen = {frozenset[int]()}
    stack = [(frozenset[int](), stated.start)]
    while stack:
        done, held = stack.pop()
        if done == everything:
            return True
        if held > limit:
            continue
        following = []
        for op in everything - done:
            if done.issuperset(stated.before[op]) and held + stated.needs[op] <= limit:
                after = done | {op}
                freed = sum(stated.nbytes[b] for b in stated.uses[op] if after.issuperset(stated.users[b]))
                following.append((after, held + stated.born[op] - freed))
        safe = [choice for choice in following if choice[1] <= held]
        for choice in safe[:1] or following:
            if choice[0] not in seen:
                seen.add(choice[0])
                stack.append(choice)
    return False


@contextmanager
def ordered(stated: Problem, pairs: tuple[tuple[int, int], ...]) -> Iterator[None]:
    """While active, the first op of each pair must run before the second."""
    for first, second in pairs:
        stated.before[second].append(first)
        stated.after[first].append(second)
    try:
        yield
    finally:
        for first, second in reversed(pairs):
            stated.before[second].pop()
            stated.after[first].pop()
