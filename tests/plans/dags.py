"""Ordering problems that are harder than captured steps, and slow answers to them that share no code with ours."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import msgspec
from ortools.sat.python import cp_model

from tensortide.errors import PlanError
from tensortide.graph import Graph, Role
from tensortide.plans import in_order, validate
from tensortide.plans.order.problem import START, Problem
from tensortide.replays import replay
from tests.graphs import Builder


def released(builder: Builder) -> Graph:
    """The graph of ``builder``, each storage that it allocates, and each temporary, released after its last use."""
    graph = builder.graph()
    last = [0 if s.birth is None else s.birth for s in graph.storages]
    for index, op in enumerate(graph.ops):
        for tensor in (*op.inputs, *op.outputs):
            last[graph.tensors[tensor].storage] = index
    storages = tuple(
        s if s.birth is None and s.role is not Role.TEMPORARY else msgspec.structs.replace(s, death=used + 1)
        for s, used in zip(graph.storages, last, strict=True)
    )
    return msgspec.structs.replace(graph, storages=storages)


def random_dag(seed: int, ops: int, sources: float = 0.2, fan: int = 3, barrier: int = 10**9, given: int = 0) -> Graph:
    """``ops`` ops that read up to ``fan`` results from anywhere before; a part of them reads nothing.

    Every ``barrier``-th reads all there is, and what comes later reads nothing from before it. So many storages as
    ``given`` exist before the step, and are released in it.
    """
    chance, builder = random.Random(seed), Builder()
    made = [builder.storage(chance.randint(1, 1000)) for _ in range(given)]
    for index in range(ops):
        count = 0 if chance.random() < sources else min(chance.randint(1, fan), len(made))
        inputs = chance.sample(made, count)
        if index % barrier == barrier - 1:
            inputs, made = made, []
        if made and inputs and chance.random() < 0.1:
            builder.op(inputs, inputs[:1], mutated=(0,))
            continue
        outputs = [builder.storage(chance.randint(1, 1000), birth=index) for _ in range(chance.choice((1, 1, 1, 2)))]
        builder.op(inputs, outputs)
        made += outputs
    return released(builder)


def joined_chains(count: int, length: int, seed: int = 0) -> Graph:
    """Chains of ops that do not know of each other, joined two by two: a tree, wide and with many equal choices."""
    chance, builder = random.Random(seed), Builder()
    ends = []
    for _ in range(count):
        end: list[int] = []
        for _ in range(length):
            output = builder.storage(chance.randint(1, 1000), birth=len(builder.ops))
            builder.op(end, [output])
            end = [output]
        ends += end
    while len(ends) > 1:
        output = builder.storage(chance.randint(1, 300), birth=len(builder.ops))
        builder.op(ends[:2], [output])
        ends = [*ends[2:], output]
    return released(builder)


def all_peaks(graph: Graph, device: str) -> Iterator[int]:
    """The peak of every order: permutations that execute the graph, played."""
    for order in itertools.permutations(range(len(graph))):
        plan = in_order(graph, order, device)
        try:
            validate(plan, graph)
        except PlanError:
            continue
        yield replay(graph, plan).peak_bytes


def smallest_peak(stated: Problem) -> int:
    """The smallest peak over all orders, by the set of ops done: every set that can be reached, one op at a time."""
    peaks = {frozenset[int](): stated.start}
    for _ in range(len(stated)):
        larger: dict[frozenset[int], int] = {}
        for done, peak in peaks.items():
            held = stated.base + sum(
                stated.nbytes[b]
                for b, birth in enumerate(stated.birth)
                if (birth == START or birth in done) and not done.issuperset(stated.users[b])
            )
            for op in range(len(stated)):
                if op not in done and done.issuperset(stated.before[op]):
                    level = max(peak, held + stated.needs[op])
                    after = done | {op}
                    larger[after] = min(level, larger.get(after, level))
        peaks = larger
    return peaks[frozenset(range(len(stated)))]


def by_constraints(stated: Problem) -> int | None:
    """The smallest peak by a constraint solver: a position for each op, an interval for each storage. None if it gives
    up."""
    count, model = len(stated), cp_model.CpModel()
    at = [model.new_int_var(0, count - 1, "") for _ in range(count)]
    model.add_all_different(at)
    for op, needed in enumerate(stated.before):
        for earlier in needed:
            model.add(at[earlier] < at[op])
    lives, sizes = [], []
    for block, users in enumerate(stated.users):
        end, length = model.new_int_var(0, count, ""), model.new_int_var(1, count, "")
        if users[-1] == count:
            model.add(end == count)
        else:
            model.add_max_equality(end, [at[user] + 1 for user in users])
        birth = stated.birth[block]
        lives.append(model.new_interval_var(0 if birth == START else at[birth], length, end, ""))
        sizes.append(stated.nbytes[block])
    peak = model.new_int_var(0, sum(sizes), "")
    model.add_cumulative(lives, sizes, peak)
    model.minimize(peak)
    search = cp_model.CpSolver()
    search.parameters.num_workers = 1
    search.parameters.max_deterministic_time = 20
    return stated.base + round(search.objective_value) if search.solve(model) == cp_model.OPTIMAL else None
