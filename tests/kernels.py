"""Have the kernels of simulator, planner and placements compiled: ``python -m tests.kernels``."""

from __future__ import annotations

import numpy as np

from tensortide.placements import Channel, Device, DeviceGraph, Neighbour, Net, NetProblem, Settings, simulate
from tensortide.placements.graphs import PlaceOptions, ready
from tensortide.placements.search.best import Best
from tensortide.replays.remat import Simulator
from tensortide.studies.planning.warm import warm_up
from tensortide.studies.remat.linear import linear_network
from tensortide.timing.paleo.layers import Entry
from tests.placements.graphs.steps import cluster, pipeline


def compile_all() -> None:
    """Call each of them once."""
    Simulator(linear_network(8)).run("dtr-eq", 5, compiled=True)
    warm_up(moves=False)
    warm_up(moves=True)
    place()


def place() -> None:
    """Call those of placements: of a net, and of a captured step."""
    ends = (1, 0)
    devices = tuple(Device(model="", clock=1, peak_gflops=1, memory=1, neighbours=(Neighbour(end, 0),)) for end in ends)
    graph = DeviceGraph("", (Channel(bandwidth=1),), devices)
    layers = {
        f"fc{i}": Entry(type="InnerProduct", parents=(f"fc{i - 1}" if i else "data",), num_outputs=2) for i in range(9)
    }
    net = Net("", {"data": Entry(type="Input", tensor=(1, 1)), **layers})
    Best().search(NetProblem(net, graph, Settings()), 60)
    simulate(net, graph, [0] * 10)
    step = ready(pipeline(6), cluster(3), PlaceOptions())
    found = Best().search(step.problem, 60)
    step.problem.simulator.run(np.array(found.placement))


if __name__ == "__main__":
    compile_all()
