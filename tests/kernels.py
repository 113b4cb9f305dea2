"""Have the kernels of simulator, planner and placements compiled: ``python -m tests.kernels``."""

from __future__ import annotations

import numpy as np

from tensortide.placements import Channel, Device, DeviceGraph, Neighbour, Net, NetProblem, Settings, simulate
from tensortide.replays.remat import Simulator
from tensortide.studies.planning.warm import warm_up
from tensortide.studies.remat.linear import linear_network
from tensortide.timing.paleo.layers import Entry


def compile_all() -> None:
    """Call each of them once."""
    Simulator(linear_network(8)).run("dtr-eq", 5, compiled=True)
    warm_up(moves=False)
    warm_up(moves=True)
    ends = (1, 0)
    devices = tuple(Device(model="", clock=1, peak_gflops=1, memory=1, neighbours=(Neighbour(end, 0),)) for end in ends)
    graph = DeviceGraph("", (Channel(bandwidth=1),), devices)
    net = Net("", {"data": Entry(type="Input", tensor=(1, 1))})
    NetProblem(net, graph, Settings()).evaluate(np.zeros((1, 1), np.int64))
    simulate(net, graph, [0])


if __name__ == "__main__":
    compile_all()
