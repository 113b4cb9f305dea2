"""Growth of the simulator with the length of a step.

    python benchmarks/remat_growth.py [--write] [chain] [residual] [recurrent]

A chain, a residual network and an unrolled recurrent network, forward and backward, from 1,000 to 1,000,000 ops, at
0.7, 0.5 and 0.3 of the peak without a budget: h_DTR_eq, our rules, limit 3. Each run has a process of its own; CPU
seconds are those of one run, without preparing the arrays, and *growth* is their exponent against the line above. Bytes
per op of the step: *graph*: the arrays of the Schedule that the simulator is given; *shared*: arrays prepared from it
once for all runs; *in all*: what the process grew by at most while they were prepared and the step was played without a
budget and then under this one, trace included, graph apart (pages in memory; of short steps mostly what does not depend
on their length).
"""

from __future__ import annotations

import ctypes
import math
import random
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import harness
import numpy as np

from tensortide.graph import Call, Graph, Op, Phase, Role, Storage, Tensor
from tensortide.plans.remat.policies import policy
from tensortide.plans.remat.schedule import Schedule, recorded, schedule
from tensortide.replays.remat.fast.state import prepared
from tensortide.replays.remat.fast.state import run as play
from tensortide.replays.remat.simulation import UNLIMITED, Rules
from tensortide.timelines.events import Kind

LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
RATIOS = (0.7, 0.5, 0.3)
LIMIT = 3.0
SECONDS = 900
COLUMNS = {
    "step": "{step}",
    "budget": "{ratio:.1f}",
    "ops": "{ops:,}",
    "status": "{status}",
    "overhead": "{overhead:.3f}",
    "ops recomputed": "{recomputed:,}",
    "candidates": "{evaluations:,}",
    "CPU s": "{seconds:.3f}",
    "ops/s": "{rate:,.0f}",
    "graph B/op": "{graph:.0f}",
    "shared B/op": "{shared:.0f}",
    "in all B/op": "{all:.0f}",
    "growth": "{growth:.2f}",
}


class Net:
    """Forward ops on values; value 0 is the only one that is given."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.inputs: list[list[int]] = [[]]
        self.sizes = [1 << 16]
        self.costs = [0]

    def op(self, *inputs: int, scale: int = 1) -> int:
        self.inputs.append(list(inputs))
        self.sizes.append(scale * self.chance.randrange(1 << 12, 1 << 14))
        self.costs.append(self.chance.randrange(10_000, 100_000))
        return len(self.inputs) - 1


def chain(ops: int) -> Net:
    net, at = Net(1), 0
    for _ in range(ops // 2):
        at = net.op(at)
    return net


def residual(ops: int) -> Net:
    net, at = Net(2), 0
    for _ in range(ops // 14):
        branch = at
        for _ in range(5):
            branch = net.op(branch)
        at = net.op(at, branch)
    return net


def recurrent(ops: int) -> Net:
    net = Net(3)
    state, cell = net.op(0), net.op(0)
    for _ in range(ops // 21):
        gates = net.op(state, 0, scale=4)
        i, f, o, g = (net.op(gates) for _ in range(4))
        cell = net.op(net.op(f, cell), net.op(i, g))
        state = net.op(o, cell)
    return net


NETS = {"chain": chain, "residual": residual, "recurrent": recurrent}


def training(net: Net) -> Schedule:
    """The step of ``net``: forward, then backward op by op from the end."""
    ins, outs = net.inputs[1:], [[v] for v in range(1, len(net.inputs))]
    sizes, costs = list(net.sizes), net.costs[1:]

    def made(inputs: list[int], results: list[int], cost: int) -> list[int]:
        fresh = list(range(len(sizes), len(sizes) + len(results)))
        sizes.extend(results)
        ins.append(inputs)
        outs.append(fresh)
        costs.append(cost)
        return fresh

    gradient: dict[int, int] = {}
    for value in range(len(net.inputs) - 1, 0, -1):
        above = [gradient.pop(value)] if value in gradient else []
        wanted = list(dict.fromkeys(net.inputs[value]))
        results = made([*above, *net.inputs[value], value], [net.sizes[i] for i in wanted], 2 * net.costs[value])
        for source, fresh in zip(wanted, results, strict=True):
            if source in gradient:
                both, cost = [gradient[source], fresh], net.chance.randrange(5_000, 20_000)
                gradient[source] = made(both, [net.sizes[source]], cost)[0]
            else:
                gradient[source] = fresh
    return schedule(recorded(graph_of(ins, outs, sizes), costs))


def graph_of(ins: list[list[int]], outs: list[list[int]], sizes: list[int]) -> Graph:
    """A Graph in which each value has a storage of its own, released after its last use."""
    birth, last = [-1] * len(sizes), [0] * len(sizes)
    for index, (inputs, outputs) in enumerate(zip(ins, outs, strict=True)):
        for value in outputs:
            birth[value] = index
        for value in (*inputs, *outputs):
            last[value] = index
    storages = [Storage(sizes[0], "cpu", Role.INPUT, None, last[0] + 1)]
    storages += [Storage(sizes[v], "cpu", Role.ACTIVATION, birth[v], last[v] + 1) for v in range(1, len(sizes))]
    return Graph(
        tuple(Op(0, tuple(i), tuple(o), Phase.FORWARD) for i, o in zip(ins, outs, strict=True)),
        (Call("made.up.default"),),
        tuple(Tensor(value, "uint8", (size,), (1,)) for value, size in enumerate(sizes)),
        tuple(storages),
    )


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def most_resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def cell(net: str, ops: int, ratio: float) -> harness.Row:
    """Time and memory of one run; in a process of its own."""
    small = training(NETS[net](200))
    for warm in (Rules(), Rules(budget_bytes=1 << 18)):
        play(small, policy("dtr-eq"), warm, prepared(small))
    step = training(NETS[net](ops))
    made = len(step.cost_ns)
    ctypes.CDLL(None).malloc_trim(0)  # what making the step has freed is not there to be used again,
    Path("/proc/self/clear_refs").write_text("5")  # nor is the most memory that it took
    before = resident()
    ready = prepared(step)
    peak = play(step, policy("dtr-eq"), Rules(), ready).peak_bytes
    rules = Rules(int(peak * ratio) if ratio < 1 else UNLIMITED, int(step.model_ns * (LIMIT - 1)))
    start = time.process_time()
    outcome = play(step, policy("dtr-eq"), rules, ready)
    seconds = time.process_time() - start
    ran, recomputed = (int((outcome.kinds == kind).sum()) for kind in (Kind.RUN, Kind.RECOMPUTE))
    return {
        "step": net,
        "ratio": ratio,
        "asked": ops,
        "ops": made,
        "status": outcome.status,
        "overhead": outcome.clock_ns / step.model_ns,
        "recomputed": recomputed,
        "evaluations": outcome.evaluations,
        "seconds": seconds,
        "rate": (ran + recomputed) / max(seconds, 1e-9),
        "graph": sum(array.nbytes for array in arrays(step)) / made,
        "shared": sum(array.nbytes for array in ready[1:]) / made,
        "all": max(0, most_resident() - before) / made,
    }


def arrays(step: Schedule) -> list[Any]:
    found = (getattr(step, field.name) for field in fields(step))
    return list({id(array): array for array in found if isinstance(array, np.ndarray)}.values())


def measure(run: harness.Run) -> None:
    table = run.table(COLUMNS, ("step", "ratio", "asked"))
    for net in run.cases(NETS):
        for ratio in RATIOS[-1:] if run.smallest else RATIOS:
            before: harness.Row | None = None
            for length in LENGTHS[:1] if run.smallest else LENGTHS:
                try:
                    row = run.child(cell, net, length, ratio, timeout_s=SECONDS)
                except harness.ChildFailed as failed:
                    table.add({"step": net, "ratio": ratio, "asked": length, "ops": length, "status": str(failed)})
                    break
                if before and before["seconds"] > 0.005:
                    more = math.log(row["seconds"] / before["seconds"])
                    row["growth"] = more / math.log(row["ops"] / before["ops"])
                before = table.add(row)


if __name__ == "__main__":
    harness.main(__doc__, measure)
