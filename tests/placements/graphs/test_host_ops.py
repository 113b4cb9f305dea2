"""Ops that only the host can run: which they are, that they alone are pinned to it, and what that costs."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import TensortideError
from tensortide.graph import Graph, Phase, Role
from tensortide.placements.graphs import GraphProblem, Grouping, PlaceOptions, Ready, Units, placed, ready, units_of
from tensortide.placements.graphs.hosts import bound_to_host, host_ops
from tensortide.placements.graphs.placeable import placeable
from tensortide.placements.graphs.schedules import ScheduleName
from tensortide.placements.graphs.simulate import Simulator
from tensortide.placements.graphs.tables import step_of
from tensortide.placements.graphs.units import By, pinned
from tensortide.placements.search.simple import Exhaustive
from tensortide.reports.sections.placed_step import section
from tensortide.timing.catalogue import device
from tensortide.timing.clusters import Channel, Cluster, ClusterDevice, ClusterLink
from tensortide.timing.links import link
from tests.graphs import Builder
from tests.placements.graphs.steps import captured, cluster
from tests.reports.sections.test_placed_step import notes

CPU = device("Intel i7-5930K (6c)")
READ = "aten._local_scalar_dense.default"


def with_cpu(gpus: int) -> Cluster:
    """GPUs of which each two are joined as in ``cluster``, and then a CPU joined to each."""
    alone = cluster(gpus)
    devices = (*alone.devices, ClusterDevice("cpu", CPU))
    links = [ClusterLink(*way, len(alone.channels) + i) for i in range(gpus) for way in ((i, gpus), (gpus, i))]
    channels = (*alone.channels, *[Channel(link("pcie4"))] * gpus)
    return Cluster("with a CPU", devices, (*alone.links, *links), channels)


def reading() -> Graph:
    """Module ``a`` makes a value of which the host reads a part within ``b``; ``b`` goes on with the whole."""
    builder = Builder()
    a, b = builder.module("a"), builder.module("b")
    x = builder.storage(64, Role.INPUT)
    made = builder.storage(64, birth=0)
    out = builder.storage(64, birth=3)
    builder.op([x], [made], module=a)
    first = builder.view(made, 1)
    builder.op([made], [first], name="aten.select.int", module=a)
    builder.op([first], name=READ, tags=("data_dependent",), module=b)
    builder.op([made], [out], module=b)
    return builder.graph()


@pytest.mark.parametrize("by", ["module", "closure"])
def test_reads_by_the_host_are_pinned_alone(by: By) -> None:
    graph = reading()
    assert host_ops(graph) == (2,)
    units = units_of(graph, Grouping(by), host=True)
    assert units.names == ("a", "b host", "b")
    assert (units.of_op, units.hosts) == ((0, 0, 1, 2), (1,))
    assert pinned(units, {}, 2, ["x", "y", "cpu"]) == {1: 2}
    assert pinned(units, {"": "y"}, 2, ["x", "y", "cpu"]) == {0: 1, 1: 2, 2: 1}


@pytest.mark.parametrize("by", ["module", "closure"])
def test_without_a_cpu_a_read_stays_with_what_makes_its_value(by: By) -> None:
    units = units_of(reading(), Grouping(by))
    assert (units.of_op, units.hosts) == ((0, 0, 0, 1), ())
    assert pinned(units, {"a": "x"}, None, ["x"]) == {0: 0}


def test_pins_that_contradict_each_other_name_the_ops() -> None:
    units = units_of(reading(), host=True)
    with pytest.raises(TensortideError, match=r"only the host runs pins unit 'b host' to cpu.* 2 \(aten._local_scalar"):
        pinned(units, {"b host": "x"}, 2, ["x", "y", "cpu"])
    with pytest.raises(TensortideError, match=r"'a' is pinned to y, but '' pins unit 'a' to x"):
        pinned(units, {"": "x", "a": "y"}, None, ["x", "y"])
    with pytest.raises(TensortideError, match="no unit is called 'c'"):
        pinned(units, {"c": "x"}, None, ["x"])
    with pytest.raises(TensortideError, match="a unit is pinned to 'z'; the devices are x"):
        pinned(units, {"a": "z"}, None, ["x"])


def test_ops_that_only_make_the_host_wait_run_on_devices() -> None:
    x = torch.arange(12.0).reshape(3, 4)

    def step() -> None:
        chosen = (x > 2).nonzero()
        unique = torch.unique(x)
        masked, indexed = x[x > 3], x[torch.tensor([0, 2])]
        if torch.equal(x, x) and (chosen.sum() + unique.sum() + masked.sum() + indexed.sum()).item():
            x.add_(1)

    graph = tensortide.capture(step, real=True)
    names = [op.name for op in graph]
    for waiting in ("aten.nonzero.default", "aten._unique2.default", "aten.index.Tensor", "aten.equal.default"):
        assert waiting in names
    assert {names[op] for op in host_ops(graph)} == {READ}
    assert units_of(graph, host=True).names == ("(outside)", "(outside) host")


def offloaded() -> Graph:
    """A module on a GPU whose optimizer state is in the host's memory: the gradient is copied there, scaled and added
    to the momentum, and the parameter updated from a copy of that."""
    builder = Builder()
    module = builder.module("layer")
    weight = builder.storage(1000, Role.PARAMETER, device="cuda:0", name="layer.weight")
    momentum = builder.storage(1000, Role.OPTIMIZER_STATE, name="layer.weight.momentum")
    x = builder.storage(500, Role.INPUT, device="cuda:0")
    y = builder.storage(500, birth=0, device="cuda:0")
    gradient = builder.storage(1000, Role.GRADIENT, birth=1, device="cuda:0", name="layer.weight")
    moved = builder.storage(1000, birth=2)
    back = builder.storage(1000, birth=5, device="cuda:0")
    builder.op([x, weight], [y], module=module)
    builder.op([x, y], [gradient], module=module, phase=Phase.BACKWARD)
    for inputs, output, mutated in (
        ([gradient], moved, ()),
        ([moved], moved, (0,)),
        ([momentum, moved], momentum, (0,)),
        ([momentum], back, ()),
        ([weight, back], weight, (0,)),
    ):
        builder.op(inputs, [output], phase=Phase.OPTIMIZER, mutated=mutated)
    return builder.graph()


@pytest.mark.parametrize("by", ["module", "closure"])
def test_state_on_the_host_does_not_draw_its_parameter_there(by: By) -> None:
    graph = offloaded()
    assert host_ops(graph) == (3, 4)
    assert bound_to_host(graph) == {2, 3, 4}
    units = units_of(graph, Grouping(by), host=True)
    (host,) = units.hosts
    assert units.ops(host) == (2, 3, 4)
    homes = {held.name: units.home[storage] for storage, held in enumerate(graph.storages) if held.name}
    assert homes.pop("layer.weight.momentum") == host
    assert set(homes.values()) == {units.of_op[6]} == {units.of_op[1]}


def looped() -> tuple[Graph, list[int]]:
    """Three modules in a row, forwards and backwards, whose host reads a value of the second one and the loss; and by
    op the group that must share a device: its module, or 3 for the host."""
    builder = Builder()
    modules = [builder.module(f"m{i}") for i in range(3)]
    value, saved, groups = builder.storage(400, Role.INPUT), [], []
    for i, module in enumerate(modules):
        out = builder.storage(400, birth=len(builder.ops))
        builder.op([value], [out], module=module)
        groups.append(i)
        if i:
            small = builder.storage(1, birth=len(builder.ops))
            builder.op([out], [small], module=module)
            builder.op([small], name=READ, tags=("data_dependent",), module=module)
            groups += [i, 3]
        saved.append((module, out))
        value = out
    for i in reversed(range(3)):
        module, out = saved[i]
        gradient = builder.storage(400, birth=len(builder.ops))
        builder.op([out, value], [gradient], module=module, phase=Phase.BACKWARD)
        groups.append(i)
        value = gradient
    return builder.graph(), groups


def test_the_best_placement_is_that_of_all_in_which_reads_alone_are_on_the_cpu() -> None:
    graph, groups = looped()
    machine = with_cpu(2)
    ns = [[20_000 * (1 + (op + shift) % 3) for op in range(len(graph))] for shift in (0, 1)]
    ns.append([50_000] * len(graph))
    step = step_of(Units(graph, ("0", "1", "2", "3"), tuple(groups), _homes(graph, groups), ()), machine, ns)
    simulator = Simulator(step)
    best = min(simulator.play(np.array([*place, 2]))[0] for place in itertools.product(range(3), repeat=3))
    made = ready(graph, machine, PlaceOptions(launch="none"))
    assert made.problem.pins == {2: 2, 4: 2}
    ours = step_of(made.problem.step.units, machine, ns)
    problem = GraphProblem(ours, made.problem.schedule, made.problem.pins)
    assert Exhaustive().search(problem, 10_000).score_ms == pytest.approx(best / 1e6)


def _homes(graph: Graph, groups: list[int]) -> tuple[int, ...]:
    return tuple(groups[held.birth or 0] for held in graph.storages)


def layers() -> tuple[nn.Module, torch.Tensor, torch.optim.Optimizer]:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(3)))
    return model, torch.randn(256, 512), torch.optim.SGD(model.parameters(), lr=0.1)


def reads_its_loss() -> Callable[[], None]:
    model, x, optimizer = layers()

    def step() -> None:
        loss = model(x).sum()
        loss.backward()
        if loss.item() < 1e9:
            optimizer.step()
        optimizer.zero_grad()

    return step


def scales_its_gradients() -> Callable[[], None]:
    model, x, optimizer = layers()
    scaler = torch.amp.GradScaler(x.device.type)

    def step() -> None:
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def checks_its_norm() -> Callable[[], None]:
    model, x, optimizer = layers()

    def step() -> None:
        model(x).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        optimizer.zero_grad()

    return step


STEPS = [reads_its_loss, scales_its_gradients, checks_its_norm]


def on_gpu(workload: Callable[[], Callable[[], None]]) -> Graph:
    return tensortide.capture(workload, real=False, device="cuda")


def least(made: Ready) -> float:
    """The best score of all placements that keep the pins."""
    free = [unit for unit in range(len(made.problem.names)) if unit not in made.problem.pins]
    every = itertools.product(range(made.problem.devices), repeat=len(free))
    rows = np.zeros((made.problem.devices ** len(free), len(made.problem.names)), np.int64)
    rows[:, free] = list(every)
    for unit, at in made.problem.pins.items():
        rows[:, unit] = at
    return float(made.problem.evaluate(rows)[0].min())


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("workload", STEPS)
def test_a_cpu_in_the_cluster_never_makes_the_best_placement_worse(
    workload: Callable[[], Callable[[], None]], gpus: int
) -> None:
    graph = on_gpu(workload)
    options = PlaceOptions(Grouping(most=4), priority="recorded")  # the longest path is another with another device
    made = ready(graph, with_cpu(gpus), options)
    reads = host_ops(made.graph)
    assert reads
    assert {unit for unit, at in made.problem.pins.items() if at == gpus} == {made.problem.step.units.of_op[reads[0]]}
    assert least(made) <= least(ready(graph, cluster(gpus), options))


@pytest.mark.parametrize("workload", STEPS)
def test_one_device_has_the_same_timeline_with_a_cpu_beside_it(workload: Callable[[], Callable[[], None]]) -> None:
    graph = on_gpu(workload)
    alone = ready(graph, cluster(1))
    one = placed(alone, [0] * len(alone.problem.names)).simulated
    beside = ready(graph, with_cpu(1), PlaceOptions(priority="recorded"))
    other = beside.problem.simulator.run((0,) * len(beside.problem.names))
    assert one.makespan_ns == other.makespan_ns
    assert one.start_ns.tolist() == other.start_ns.tolist()
    assert one.peak_bytes[0] == other.peak_bytes[0]


@pytest.mark.parametrize("grouping", [Grouping(), Grouping("closure"), Grouping(depth=0), Grouping(prefixes=("1",))])
@pytest.mark.parametrize("workload", STEPS)
def test_units_of_the_host_have_its_ops_and_no_parameter(
    workload: Callable[[], Callable[[], None]], grouping: Grouping
) -> None:
    graph = placeable(on_gpu(workload))
    units, free = units_of(graph, grouping, host=True), units_of(graph, grouping)
    assert {op for unit in units.hosts for op in units.ops(unit)} == set(host_ops(graph))
    assert not {*units.home} & {*units.hosts}
    groups = [{units.ops(unit) for unit in range(len(units))} - {units.ops(unit) for unit in units.hosts}]
    reads = {*host_ops(graph)}
    groups.append({tuple(op for op in free.ops(unit) if op not in reads) for unit in range(len(free))})
    assert groups[0] == groups[1]


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved"])
def test_a_read_is_no_stage_of_a_pipeline(schedule: ScheduleName) -> None:
    graph, _ = looped()
    made = ready(graph, with_cpu(2), PlaceOptions(schedule=schedule, micro_batches=4, launch="none"))
    names = made.problem.names
    assert names == ("m0", "m1", "m1 host", "m2", "m2 host")
    assert made.problem.simulator._ordering.stages(np.array([0, 0, 2, 1, 2])) == [0, 1]
    found = placed(made, [0, 0, 2, 1, 2])
    assert len({*found.simulated.device[list(host_ops(made.graph))].tolist()}) == 1
    (stages,) = [block for block in section(found).blocks if getattr(block, "key", "") == "stages"]
    assert [list(column.values) for column in stages.columns[:2]] == [["gpu0", "gpu1"], [2, 1]]  # type: ignore[union-attr]


def test_gradients_of_micro_batches_are_added_where_they_are_made_though_the_host_reads_one_last() -> None:
    builder = Builder()
    module = builder.module("m")
    weight, x = builder.storage(100, Role.PARAMETER, name="m.weight"), builder.storage(50, Role.INPUT)
    y, gradient = builder.storage(50, birth=0), builder.storage(100, Role.GRADIENT, birth=1, name="m.weight")
    builder.op([x, weight], [y], module=module)
    builder.op([x, y], [gradient], module=module, phase=Phase.BACKWARD)
    builder.op([builder.view(gradient, 1)], name=READ, tags=("data_dependent",), phase=Phase.BACKWARD)
    builder.op([weight, gradient], [weight], mutated=(0,), phase=Phase.OPTIMIZER)
    made = ready(builder.graph(), with_cpu(1), PlaceOptions(micro_batches=3))
    units = made.problem.step.units
    (host,) = units.hosts
    assert [made.graph[op].name for op in units.ops(host)] == [READ] * 3
    assert sum(op.name.startswith("aten.add_") for op in made.graph) == 2
    assert not {*units.home} & {host}


@pytest.mark.slow
def test_experts_of_transformers_have_their_choice_beside_a_cpu() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        vocab_size=100,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
    )

    def workload() -> Callable[[], None]:
        model, ids = transformers.MixtralForCausalLM(config), torch.randint(0, 100, (2, 32))

        def step() -> None:
            model(input_ids=ids, labels=ids).loss.backward()
            model.zero_grad()

        return step

    graph = on_gpu(workload)
    assert any(op.name == "aten.index.Tensor" for op in graph)
    beside, alone = ready(graph, with_cpu(2)), ready(graph, cluster(2))
    assert beside.problem.pins == {}
    assert beside.problem.names == alone.problem.names


def test_the_report_says_why_ops_are_pinned_to_the_host() -> None:
    graph, _ = looped()
    slow = ready(graph, with_cpu(1), PlaceOptions(pins={"m1": "cpu"}))
    made = section(placed(slow, [0] * len(slow.problem.names)))
    said = notes(made, "warning")
    assert "pinned to the first CPU: 2. The hosts of other devices do not wait" in notes(made, "assumption")
    assert "Pinned to cpu: " in said
    assert "m1 host" in said
    assert "run on the host, the rest of their modules where the search puts it" in said
    free = ready(captured("mlp"), with_cpu(1), PlaceOptions(pins={"0": "cpu"}))
    said = notes(section(placed(free, [0] * len(free.problem.names))), "warning")
    assert "Pinned to cpu: " in said
    assert "read a value" not in said
