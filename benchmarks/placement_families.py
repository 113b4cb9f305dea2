"""Placements that the default search finds on drawn problems, which no option was chosen by, beside long searches.

    python benchmarks/placement_families.py [--write] [--smallest] [FAMILY ...]

Nets with blocks (inception, residual, dense, U-nets, several towers) are drawn from seeds, as are clusters of two to
eight GPUs: one bus, a bus for each sender, or a link for each pair; a quarter have GPUs of half the speed. *ample*:
memory for everything on one device; *limited*: 1.15 to 1.8 times what is needed in all; *pipeline*: 10 batches, 4 in
flight. "excess" is the mean share by which a search's time is over the best known of a problem, which is that of all
searches here and of one of 20,000 proposals. "behind": problems on which any other algorithm, with the same budget and
seed, is better than `best`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import harness
import numpy as np

from tensortide.placements import ACCURATE, COMPAT, Cluster, Net, NetProblem, Settings
from tensortide.placements.search import COMPARED, SearchResult, algorithm
from tensortide.timing.clusters.device_graphs import DeviceGraph, GraphChannel, GraphDevice, Neighbour, as_cluster
from tensortide.timing.paleo.layers import Entry

BUDGETS = (200, 2_000)
LONG = 20_000
SEEDS = 3
PROBLEMS = 8
"""Problems of each family."""
HELD_OUT = 1000
"""First seed of the problems; smaller seeds are free for choosing options by."""


@dataclass
class Layers:
    """A net under construction; sizes of filters follow from the channels of what a layer reads."""

    rng: np.random.Generator
    entries: dict[str, Entry] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, parents: list[str], channels: int, **keys: object) -> str:
        name = f"{kind.lower()}{len(self.entries)}"
        self.entries[name] = Entry(type=kind, parents=tuple(parents), **keys)  # type: ignore[arg-type]
        self.channels[name] = channels
        return name

    def image(self) -> str:
        size = int(self.rng.choice([112, 160, 224]))
        return self.add("Input", [], 3, tensor=(64, size, size, 3))

    def conv(self, parent: str, channels: int, size: int = 3, stride: int = 1) -> str:
        shape = (size, size, self.channels[parent], channels)
        return self.add("Convolution", [parent], channels, filter=shape, strides=(1, stride, stride, 1))

    def pool(self, parent: str) -> str:
        return self.add("Pooling", [parent], self.channels[parent], ksize=(1, 2, 2, 1), strides=(1, 2, 2, 1))

    def join(self, parents: list[str]) -> str:
        return self.add("Concatenate", parents, sum(self.channels[one] for one in parents))

    def plus(self, one: str, two: str) -> str:
        return self.add("Elementwise", [one, two], self.channels[one])

    def head(self, parent: str) -> None:
        hidden = self.add("InnerProduct", [parent], 0, num_outputs=int(self.rng.integers(2, 9)) * 256)
        last = self.add("InnerProduct", [hidden], 0, num_outputs=1000)
        self.add("Softmax", [last], 0)

    def width(self, low: int = 2, high: int = 9) -> int:
        return 16 * int(self.rng.integers(low, high))


def inception(net: Layers) -> None:
    x = net.pool(net.conv(net.image(), 64, 7, 2))
    for block in range(int(net.rng.integers(4, 9))):
        ends = []
        for _ in range(int(net.rng.integers(2, 5))):
            end = net.conv(x, net.width(), 1)
            for _ in range(int(net.rng.integers(0, 3))):
                end = net.conv(end, net.width(), int(net.rng.choice([3, 3, 5])))
            ends.append(end)
        x = net.join(ends)
        x = net.pool(x) if block % 3 == 2 else x
    net.head(net.pool(x))


def residual(net: Layers) -> None:
    x = net.pool(net.conv(net.image(), 64, 7, 2))
    width = 64
    for stage in range(4):
        for block in range(int(net.rng.integers(1, 6))):
            stride = 2 if stage and not block else 1
            end = net.conv(net.conv(net.conv(x, width, 1, stride), width), 2 * width, 1)
            side = x if net.channels[x] == 2 * width and stride == 1 else net.conv(x, 2 * width, 1, stride)
            x = net.plus(end, side)
        width *= 2
    net.head(net.pool(x))


def dense(net: Layers) -> None:
    x = net.pool(net.conv(net.image(), 64, 7, 2))
    for _ in range(int(net.rng.integers(2, 5))):
        before = [x]
        for _ in range(int(net.rng.integers(3, 8))):
            joined = net.join(before) if len(before) > 1 else x
            before.append(net.conv(net.conv(joined, 128, 1), 32))
        joined = net.join(before)
        x = net.pool(net.conv(joined, net.channels[joined] // 2, 1))
    net.head(x)


def unet(net: Layers) -> None:
    x, width, sides = net.image(), 32, list[str]()
    depth = int(net.rng.integers(3, 5))
    for _ in range(depth):
        x = net.conv(net.conv(x, width), width)
        sides.append(x)
        x, width = net.pool(x), 2 * width
    x = net.conv(net.conv(x, width), width)
    for side in reversed(sides):
        width //= 2
        up = net.add("UpSampling2D", [net.conv(x, width, 1)], width, ksize=(1, 2, 2, 1))
        x = net.conv(net.conv(net.join([up, side]), width), width)
    net.conv(x, 4, 1)


def towers(net: Layers) -> None:
    ends = []
    for _ in range(int(net.rng.integers(2, 5))):
        x = net.conv(net.add("Input", [], 3, tensor=(64, 96, 96, 3)), 64, 5, 2)
        for _ in range(int(net.rng.integers(3, 9))):
            x = net.conv(x, net.width(4, 13))
        ends.append(net.pool(x))
    net.head(net.conv(net.join(ends), net.width(), 1, 2))


NETS: tuple[Callable[[Layers], None], ...] = (inception, residual, dense, unet, towers)


def drawn_net(seed: int) -> Net:
    """The net of ``seed``; kinds take turns."""
    layers = Layers(np.random.default_rng(seed))
    kind = NETS[seed % len(NETS)]
    kind(layers)
    return Net(f"{kind.__name__}{seed}", layers.entries)


def drawn_cluster(rng: np.random.Generator, memory_gb: float) -> Cluster:
    """Two to eight GPUs; a slow CPU is device 0."""
    gpus, layout = int(rng.integers(2, 9)), str(rng.choice(["bus", "senders", "pairs"]))
    count, slow = gpus + 1, bool(rng.random() < 0.25)
    rate = float(rng.choice([32, 128, 256]))
    factors = {"bus": (0, 0), "senders": (1, 0), "pairs": (count, 1)}[layout]
    channels = tuple(GraphChannel(bandwidth=rate) for _ in range(count * count))
    devices = []
    for one in range(count):
        speed = 0.1 if not one else 0.5 if slow and one % 2 else 1.0
        links = tuple(Neighbour(two, factors[0] * one + factors[1] * two) for two in range(count) if two != one)
        devices.append(
            GraphDevice(
                model=f"device {one}",
                clock=1500.0,
                peak_gflops=14_000 * speed,
                mem_bandwidth=900 * speed,
                memory=memory_gb if one else 512.0,
                type="gpu" if one else "cpu",
                neighbours=links,
            )
        )
    return as_cluster(DeviceGraph(channels, tuple(devices)), f"{layout}{gpus}")


def drawn_problem(family: str, seed: int) -> NetProblem:
    """The problem of ``seed``: half of them by the published model."""
    rng, net = np.random.default_rng([seed, 1]), drawn_net(seed)
    batches, in_flight = (10, 4) if "pipeline" in family else (1, 1)
    settings = Settings(
        batch_size=64,
        batches=batches,
        pipeline_batches=in_flight,
        comp_penalization=0.9,
        comm_penalization=0.5,
        memory_penalization_factor=1.0,
        mode=COMPAT if seed % 2 else ACCURATE,
    )
    state = rng.bit_generator.state
    cluster = drawn_cluster(rng, 512.0)
    problem = NetProblem(net, cluster, settings)
    if "limited" in family:
        needed = float((problem.memory + (in_flight - 1) * problem.activations).sum())
        share = needed / (len(cluster.devices) - 1) * rng.uniform(1.15, 1.8)
        rng.bit_generator.state = state
        problem = NetProblem(net, drawn_cluster(rng, share / 1e9), settings)
    return problem


FAMILIES = {name: name for name in ("ample", "limited", "pipeline", "limited pipeline")}


def score_at(found: SearchResult, proposals: int) -> float:
    """The best score after so many proposals, ms."""
    return min(one.score_ms for one in found.history if one.proposals <= proposals)


def measure(run: harness.Run) -> None:
    table = run.table(
        {
            "family": "{family}",
            "budget": "{budget:,}",
            "problems": "{problems}",
            "mean excess": "{mean:.2%}",
            "of the worst seed": "{worst:.2%}",
            "largest": "{largest:.2%}",
            "behind": "{behind}",
            "median gap to the bound": "{gap:.1%}",
        },
        key=("family", "budget"),
    )
    for name, family in run.cases(FAMILIES).items():
        for row in _rows(family, run.smallest):
            table.add({"family": name, **row})


def _rows(family: str, smallest: bool) -> list[harness.Row]:
    budgets, problems, seeds = ((200,), 1, 1) if smallest else (BUDGETS, PROBLEMS, SEEDS)
    excesses: dict[int, list[list[float]]] = {budget: [] for budget in budgets}
    behind, gaps = dict.fromkeys(budgets, 0), []
    for number in range(problems):
        problem = drawn_problem(family, HELD_OUT + number)
        found = [algorithm("best").search(problem, budgets[-1], seed) for seed in range(seeds)]
        others = {budget: _others(problem, budget) for budget in budgets}
        long = [] if smallest else [algorithm("best").search(problem, LONG, seeds).score_ms]
        known = min(*(one.score_ms for one in found), *others.values(), *long)
        gaps.append(known / found[0].bound_ms - 1)
        for budget in budgets:
            scores = [score_at(one, budget) for one in found]
            excesses[budget].append([score / known - 1 for score in scores])
            behind[budget] += others[budget] < scores[0] * (1 - 1e-9)
    return [_row(budget, excesses[budget], behind[budget], statistics.median(gaps)) for budget in budgets]


def _others(problem: NetProblem, budget: int) -> float:
    """The best score of all other algorithms."""
    return min(algorithm(name).search(problem, budget, 0).score_ms for name in COMPARED if name != "best")


def _row(budget: int, excesses: list[list[float]], behind: int, gap: float) -> Mapping[str, object]:
    worst = [max(row) for row in excesses]
    means = [statistics.mean(row) for row in excesses]
    return {
        "budget": budget,
        "problems": len(excesses),
        "mean": statistics.mean(means),
        "worst": statistics.mean(worst),
        "largest": max(worst),
        "behind": behind,
        "gap": gap,
    }


if __name__ == "__main__":
    harness.main(__doc__, measure)
