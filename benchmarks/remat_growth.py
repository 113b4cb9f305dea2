"""How simulated time and memory grow with the length of a step: h_DTR_eq on made-up training steps.

    python benchmarks/remat_growth.py [--quick] [--write]

A chain, a residual network and an unrolled recurrent network, forward and backward, from 1,000 to 1,000,000 ops, at
0.7, 0.5 and 0.3 of the peak without a budget. Each cell runs in a process of its own. Bytes per op of the model:
*graph*, the arrays of the Schedule that the simulator is given; *shared*, the arrays that are prepared from it once;
*in all*, what the process grew by at most from before they were prepared to the end of the second run, the graph apart.
The last counts pages in memory: what is prepared, a whole run without a budget, and one under a budget with its trace.
``--write`` stores the table in ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import platform
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from tensortide.graph import Graph
from tensortide.plans.remat.policies import policy
from tensortide.plans.remat.recording import Event
from tensortide.plans.remat.schedule import Schedule
from tensortide.replays.remat.fast.load import kernel, prepared
from tensortide.replays.remat.fast.run import run
from tensortide.replays.remat.outcome import UNLIMITED, Rules

RESULTS = Path(__file__).parent / "results" / "remat_growth.md"
LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
RATIOS = (0.7, 0.5, 0.3)
LIMIT = 3.0
HEAD = (
    *("step", "budget", "ops", "status", "overhead", "ops run again", "candidates", "CPU s", "ops/s"),
    *("graph B/op", "shared B/op", "in all B/op", "growth"),
)
SECONDS = 900


class Net:
    """Forward ops on values; value 0 is the only constant."""

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
    """The step of ``net``: forward, backward op by op from the end, each value dropped after its last use."""
    chance = net.chance
    ins, outs = [list(i) for i in net.inputs], [[v] for v in range(len(net.inputs))]
    sizes, costs = list(net.sizes), list(net.costs)

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
        wanted = list(dict.fromkeys(i for i in net.inputs[value]))
        results = made([*above, *net.inputs[value], value], [net.sizes[i] for i in wanted], 2 * net.costs[value])
        for source, fresh in zip(wanted, results, strict=True):
            if source in gradient:
                both = [gradient[source], fresh]
                gradient[source] = made(both, [net.sizes[source]], chance.randrange(5_000, 20_000))[0]
            else:
                gradient[source] = fresh
    return _schedule(ins, outs, sizes, costs)


def _schedule(ins: list[list[int]], outs: list[list[int]], sizes: list[int], costs: list[int]) -> Schedule:
    last = list(range(len(sizes)))
    for op, inputs in enumerate(ins):
        for value in (*inputs, *outs[op]):
            last[value] = op
    dying: dict[int, list[int]] = defaultdict(list)
    for value, op in enumerate(last):
        dying[op].append(value)
    kinds, indexes = [Event.COMPUTE, Event.PIN], [0, 0]
    for op in range(len(ins)):
        if op:
            kinds.append(Event.COMPUTE)
            indexes.append(op)
        kinds.extend([Event.RELEASE] * len(dying[op]))
        indexes.extend(dying[op])
    count, ops = len(sizes), len(ins)
    each, none = np.arange(count), np.full(count, -1)
    nbytes = np.array(sizes)
    return Schedule(
        graph=Graph((), (), (), ()),
        device="cpu",
        cost_ns=np.array(costs),
        extra_bytes=np.zeros(ops, np.int64),
        origin=np.arange(ops),
        inputs=np.array([value for inputs in ins for value in inputs]),
        input_ends=np.cumsum([0, *map(len, ins)]),
        output_ends=np.cumsum([0, *map(len, outs)]),
        storage=each,
        nbytes=nbytes,
        replaces=none,
        storage_bytes=nbytes,
        root=each,
        storage_origin=each,
        fixed=(each == 0).astype(np.int64),
        kinds=np.array(kinds, np.int64),
        indexes=np.array(indexes, np.int64),
    )


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def most_resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def cell(net: str, ops: int, ratio: float) -> dict[str, Any]:
    """Time and memory of one run; in a process of its own."""
    kernel()
    small = training(NETS[net](200))
    for warm in (Rules(), Rules(budget_bytes=1 << 18)):
        run(small, policy("dtr-eq"), warm, prepared(small))
    schedule = training(NETS[net](ops))
    made = len(schedule.cost_ns)
    arrays = sum(value.nbytes for value in vars_of(schedule))
    ctypes.CDLL(None).malloc_trim(0)  # what making the step has freed is not there to be used again,
    Path("/proc/self/clear_refs").write_text("5")  # nor is the most memory that it took
    start, before = time.process_time(), resident()
    ready = prepared(schedule)
    preparing = time.process_time() - start
    peak = run(schedule, policy("dtr-eq"), Rules(), ready).peak_bytes
    rules = Rules(int(peak * ratio) if ratio < 1 else UNLIMITED, int(schedule.model_ns * (LIMIT - 1)))
    start = time.process_time()
    outcome = run(schedule, policy("dtr-eq"), rules, ready)
    seconds = time.process_time() - start
    again = int((outcome.kinds == 1).sum())
    return {
        "ops": made,
        "status": outcome.status,
        "overhead": outcome.clock_ns / schedule.model_ns,
        "again": again,
        "evictions": int((outcome.kinds == 2).sum()),
        "evaluations": outcome.evaluations,
        "preparing": preparing,
        "seconds": seconds,
        "rate": (int((outcome.kinds == 0).sum()) + again) / max(seconds, 1e-9),
        "schedule": arrays / made,
        "shared": ready.nbytes / made,
        "state": max(0, most_resident() - before) / made,
    }


def vars_of(schedule: Schedule) -> list[Any]:
    names = [name for name in Schedule.__slots__ if name not in ("graph", "device")]
    return list({id(getattr(schedule, n)): getattr(schedule, n) for n in names}.values())


def measured(net: str, ops: int, ratio: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--cell", net, str(ops), str(ratio)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"status": f"> {SECONDS} s"}
    return dict(json.loads(done.stdout))


def table(lengths: tuple[int, ...]) -> list[str]:
    lines = [
        f"| {' | '.join(HEAD)} |",
        "|---" * len(HEAD) + "|",
    ]
    for net in NETS:
        for ratio in RATIOS:
            before: dict[str, Any] = {}
            for length in lengths:
                got = measured(net, length, ratio)
                if "ops" not in got:
                    lines.append(f"| {net} | {ratio} | {length:,} | {got['status']} |" + " |" * 9)
                    break
                growth = ""
                if before and before["seconds"] > 0.005:
                    power = math.log(got["seconds"] / before["seconds"]) / math.log(got["ops"] / before["ops"])
                    growth = f"{power:.2f}"
                lines.append(
                    f"| {net} | {ratio} | {got['ops']:,} | {got['status']} | {got['overhead']:.3f} | "
                    f"{got['again']:,} | {got['evaluations']:,} | {got['seconds']:.3f} | {got['rate']:,.0f} | "
                    f"{got['schedule']:.0f} | {got['shared']:.0f} | {got['state']:.0f} | {growth} |"
                )
                print(lines[-1], flush=True)
                before = got
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 100,000 ops")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        net, ops, ratio = given.cell
        print(json.dumps(cell(net, int(ops), float(ratio))))
        return
    lines = table(LENGTHS[:-1] if given.quick else LENGTHS)
    if given.write:
        RESULTS.write_text(
            f"# Growth of the simulator with the length of a step\n\n"
            f"`python benchmarks/remat_growth.py --write`, Python {platform.python_version()}, {platform.machine()}, "
            f"one process at a time on a shared machine. h_DTR_eq, our rules, limit {LIMIT:g}. CPU seconds are those "
            "of one run, without preparing the arrays; *growth* is the exponent against the line above. Bytes by op of "
            "the model: *graph*: arrays of the step that the simulator is given; *shared*: arrays prepared once "
            "for all runs; *in all*: what the process grew by at most while they were prepared and the step was played "
            "without a budget and then under this one, trace included, graph apart (pages in memory; of short steps "
            "mostly what does not depend on their length).\n\n" + "\n".join([*lines, ""])
        )


if __name__ == "__main__":
    main()
