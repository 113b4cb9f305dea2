"""Have the kernels of simulator, planner and placements compiled: ``python -m tests.kernels``.

Machine code is kept in the user's cache, which every clone shares; where that of the same sources is there, nothing is
done.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from pathlib import Path

import numpy as np

import tensortide
from tensortide.placements import Net, NetProblem, Settings, simulate
from tensortide.placements.graphs import PlaceOptions, ready
from tensortide.placements.search.best import Best
from tensortide.replays.remat import Simulator
from tensortide.studies.planning.warm import warm_up
from tensortide.studies.remat.linear import linear_network
from tensortide.timing.clusters.device_graphs import DeviceGraph, GraphChannel, GraphDevice, Neighbour, as_cluster
from tensortide.timing.paleo.layers import Entry
from tensortide.user_cache import cache_folder
from tests.placements.graphs.steps import cluster, pipeline


def compile_missing() -> None:
    """Call each kernel once, in a process for each half of them, unless that was done with the same sources."""
    done = cache_folder() / f"compiled-{_digest()}"
    if done.exists() and all(Path(folder).is_dir() for folder in done.read_text("utf-8").splitlines()):
        return
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=half) for half in (compile_plans, compile_placements)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise SystemExit(process.exitcode)
    for other in cache_folder().glob("compiled-*"):
        other.unlink()
    done.write_text("\n".join(map(str, sorted(cache_folder().glob("kernels-*")))), "utf-8")


def _digest() -> str:
    """Digest of all sources that kernels are compiled from: those of each folder with a kernel, and this file."""
    files = sorted(Path(tensortide.__file__).parent.rglob("*.py"))
    folders = {path.parent for path in files if "tensortide.compiled" in path.read_text("utf-8")}
    sources = [path.read_bytes() for path in files if path.parent in folders]
    sources.append(Path(__file__).read_bytes())
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:16]


def compile_plans() -> None:
    """Call those of simulator and planner."""
    Simulator(linear_network(8)).run("dtr-eq", 5, compiled=True)
    warm_up(moves=False)
    warm_up(moves=True)


def compile_placements() -> None:
    """Call those of placements: of a net, and of a captured step."""
    ends = (1, 0)
    devices = tuple(
        GraphDevice(model="", clock=1, peak_gflops=1, memory=1, neighbours=(Neighbour(end, 0),)) for end in ends
    )
    graph = as_cluster(DeviceGraph((GraphChannel(bandwidth=1),), devices), "")
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
    compile_missing()
