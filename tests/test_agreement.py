"""Rooms agree: whatever states the peak, the persistent bytes or the sum of storages of a step states the same number.

Each of them starts from the Graph alone and takes its own way: the series of a timeline, the ordering problem, a
trivial Plan replayed, a policy simulated without a budget, planned checkpoints that recompute nothing, liveness, and
the report.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from hypothesis import given

from tensortide.graph import Graph
from tensortide.plans import in_order
from tensortide.plans.checkpointing.segments import no_recompute
from tensortide.plans.checkpointing.stages import to_plan
from tensortide.plans.checkpointing.static import static_graph
from tensortide.plans.order.minimal import footprint
from tensortide.plans.order.problem import problem
from tensortide.plans.remat.schedule import recorded
from tensortide.replays import replay
from tensortide.replays.remat import Simulator
from tensortide.reports import report
from tensortide.timelines import idleness, timeline
from tests.examples.tiny import OTHER_SIZES, TINY
from tests.graphs import graphs, path_of, stored

QUICK = ("mlp", "lstm", "gpt2")
ALIKE = {
    *("resnet", "resnet50", "vgg", "alexnet", "inception_v3"),
    *("encoder_lm", "vector_transformer", "unrolled_rnn", "inception_v4", "similarity_treelstm"),
    *("densenet", "resnet18_cifar", "hf_gpt2", "hf_bert", "hf_vit", "hf_llama", "mixtral", "word_lm", "char_lm"),
}
"""Examples whose ops and storages are those of another example, more of them or in another order."""
EXAMPLES = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in TINY
    if name not in ALIKE | OTHER_SIZES
]


def assert_agreement(graph: Graph) -> None:
    """All functions agree on ``graph``, on its main device, which is the default of each."""
    count, order = len(graph), range(len(graph))
    durations = [1] * count
    eager, last_use = timeline(graph), timeline(graph, lifetimes="last_use")
    smallest = footprint(graph, work_limit=0)
    stated = problem(graph, eager.device)
    played = replay(graph, in_order(graph, order, eager.device))
    simulator = Simulator(recorded(graph, durations))
    simulated = simulator.run("lru", compiled=False)
    nodes = static_graph(graph, durations)
    planned = to_plan(no_recompute(nodes), nodes, graph)
    checkpointed = replay(graph, planned)
    idle = idleness(graph, durations)
    cost = report(graph)["cost"]
    keys = ("peak_bytes", "last_use_peak_bytes", "persistent_bytes", "footprint_bytes")
    reported: Any = {key: cost.fact(key) for key in keys}

    defaults = [smallest.device, simulator.schedule.device, planned.lanes[0].device, idle.device]
    assert {*defaults, last_use.device, graph.index.main_device} == {eager.device}

    totals = [line.footprint_bytes for line in (last_use, played, smallest, checkpointed)]
    totals += [stated.footprint, sum(life.nbytes for life in idle.lives), graph.index.devices.get(eager.device, 0)]
    totals.append(reported["footprint_bytes"])
    assert set(totals) == {eager.footprint_bytes}

    persistent = [line.persistent_bytes for line in (last_use, played, smallest, checkpointed)]
    persistent += [
        stated.base,
        sum(life.nbytes for life in idle.lives if life.persistent),
        reported["persistent_bytes"],
    ]
    assert set(persistent) == {eager.persistent_bytes}

    assert [simulated.peak_bytes, reported["peak_bytes"]] == [eager.peak_bytes] * 2
    assert simulated.timeline().resident.tolist() == eager.resident.tolist()

    short = last_use.resident.tolist()
    assert played.resident.tolist() == stated.levels(order) == idle.live.tolist() == short
    assert {smallest.captured_peak_bytes, reported["last_use_peak_bytes"], played.peak_bytes} == {last_use.peak_bytes}
    assert checkpointed.resident.tolist() == stated.levels(planned.order)
    assert last_use.peak_bytes <= eager.peak_bytes


@given(graphs(devices=("cpu", "cuda:0")))
def test_on_random_graphs(graph: Graph) -> None:
    assert_agreement(graph)


@pytest.mark.parametrize("name", EXAMPLES)
def test_on_examples(name: str) -> None:
    if path_of(name).exists():
        assert_agreement(stored(name))
        return
    for package in ("torch", "transformers") if name.startswith("hf_") else ("torch",):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    from tensortide import capture

    assert_agreement(capture(name, hyperparameters=TINY[name]))


def test_on_a_step_without_optimizer() -> None:
    """Gradients that nothing but the caller is going to use stay to the end of the step, under every function."""
    torch = pytest.importorskip("torch")
    from tensortide import capture

    def workload() -> object:
        model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
        x, y = torch.randn(32, 256), torch.randint(0, 512, (32,))

        def step() -> object:
            model.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return step

    graph = capture(workload)
    assert_agreement(graph)
    gradients = sum(s.nbytes for s in graph.storages if s.role == "gradient" and s.birth is not None)
    line = timeline(graph, lifetimes="last_use")
    assert line.end_bytes == line.persistent_bytes + gradients + 4, "and the loss"
    assert line.footprint_bytes > line.end_bytes + gradients, "those of the step before count too"
