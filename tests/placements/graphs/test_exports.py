"""Device maps and split points, taken by the tools that they are for."""

from __future__ import annotations

import functools
import json
import math
from typing import Any
from unittest import mock

import pytest
import torch
from accelerate import dispatch_model  # type: ignore[import-untyped]
from accelerate.utils import check_device_map  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import tensortide
from tensortide.errors import PlanError
from tensortide.parallelism.shards import Shard
from tensortide.placements.graphs import Grouping, PlacedStep, PlaceOptions, Ready, exports, placed, ready
from tensortide.placements.graphs.exports import (
    device_map,
    map_notes,
    split_points,
)
from tensortide.placements.graphs.placeable import placeable
from tensortide.run.placed.processes import run_ranks
from tensortide.timing.catalogue import Device, device
from tensortide.timing.clusters import joined
from tests.graphs import stored
from tests.placements.graphs import exported_model
from tests.placements.graphs.steps import GPU, captured, cluster


def halves(first: tuple[str, ...], second: tuple[str, ...]) -> PlacedStep:
    """GPT-2 with its units named in ``second`` on the second device, and back on the first after that."""
    prepared = ready(captured("gpt2"), cluster(2), PlaceOptions(Grouping(depth=2)))
    assert {*first, *second} <= {*prepared.problem.names}
    return placed(prepared, [int(name in second) for name in prepared.problem.names])


def test_a_device_map_has_the_outermost_modules() -> None:
    found = halves(("blocks.0", "norm"), ("blocks.1",))
    expected = {"blocks.0": 0, "blocks.1": 1, "norm": 0, "positions": 0, "tokens": 0}
    assert device_map(found.simulated) == expected
    whole = halves(("norm",), ("blocks.0", "blocks.1"))
    assert device_map(whole.simulated) == {"blocks": 1, "norm": 0, "positions": 0, "tokens": 0}
    assert device_map(halves((), ()).simulated) == {"": 0}


class Tied(nn.Module):
    """A language model whose head has the weight of its embedding, and a layer that no step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.body = nn.Embedding(12, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head, self.unused = nn.Linear(8, 12, bias=False), nn.Linear(8, 2)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(self.embedding(ids)))
        return result


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_accelerate_takes_a_device_map_of_tied_weights(micro_batches: int) -> None:
    model, ids = Tied(), torch.arange(6)
    graph = tensortide.capture(model, ids, loss="sum", optimizer="sgd", real=True)
    prepared = ready(graph, cluster(2), PlaceOptions(Grouping(), micro_batches=micro_batches, schedule="1f1b"))
    found = placed(prepared, [int(name == "body.2") for name in prepared.problem.names])
    devices = device_map(found.simulated)
    assert devices["embedding"] == devices["head"] == 0
    assert devices["body.2"] == 1
    expected = model(ids)
    moved = dispatch_model(model, dict.fromkeys(devices, "cpu"), main_device="cpu", force_hooks=True)
    assert torch.equal(moved(ids), expected)


def tied(**options: Any) -> Ready:
    graph = tensortide.capture(Tied(), torch.arange(6), loss="sum", optimizer="sgd", real=True)
    return ready(graph, cluster(2), PlaceOptions(Grouping(**options)))


def elsewhere(prepared: Ready, *second: str) -> PlacedStep:
    """Units named in ``second``, and those that begin so, on the second device."""
    return placed(prepared, [int(name.startswith(second)) for name in prepared.problem.names])


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_a_tied_head_that_the_map_runs_elsewhere_is_named_with_its_device_and_runs_there_in_accelerate() -> None:
    found = elsewhere(tied(), "body.2", "head", "(outside)")
    note, *_ = map_notes(found)
    assert note.startswith(
        "Under the device map accelerate runs on another device than the Plan: "
        "'head' on gpu0, not gpu1 (its weight is that of 'embedding'). "
    )
    ran: dict[str, torch.device] = {}
    with FakeTensorMode(), torch.no_grad(), mock.patch("accelerate.hooks.set_module_tensor_to_device", put):
        model = Tied()
        for name, module in model.named_modules():
            module.register_forward_hook(lambda _, __, out, name=name: ran.update({name: out.device}))
        named = {module: f"cuda:{number}" for module, number in device_map(found.simulated).items()}
        dispatch_model(model, named, force_hooks=True)(torch.arange(6))
    assert {name: ran[name].index for name in ("embedding", "body.2", "head")} == {
        "embedding": 0,
        "body.2": 1,
        "head": 0,
    }


def test_the_head_of_gpt2_has_the_device_of_its_embedding_in_the_map() -> None:
    prepared = ready(placeable(stored("hf_gpt2")), cluster(2), PlaceOptions(Grouping(depth=3)))
    found = elsewhere(prepared, "transformer.h.1", "transformer.ln_f", "lm_head", "(outside)")
    devices = device_map(found.simulated)
    assert devices["lm_head"] == devices["transformer.wte"] == 0
    assert "'lm_head' on gpu0, not gpu1 (its weight is that of 'transformer.wte')" in " ".join(map_notes(found))


def test_a_map_that_says_all_of_the_plan_has_no_notes() -> None:
    prepared = ready(captured("gpt2"), cluster(2), PlaceOptions(Grouping(depth=2), priority="recorded"))
    assert [*map_notes(placed(prepared, [0] * len(prepared.problem.names)))] == []


def test_what_else_a_map_cannot_say_is_said() -> None:
    graph = captured("gpt2")

    def notes(*second: str, devices: int = 2, **options: Any) -> list[str]:
        prepared = ready(graph, cluster(devices), PlaceOptions(Grouping(depth=2), **options))
        return [note.partition(":")[0] for note in map_notes(elsewhere(prepared, *second))]

    assert notes("blocks.1") == ["A device map has no order of ops"]
    assert notes("blocks.1", micro_batches=2, schedule="1f1b") == ["A device map has no micro-batches"]
    assert notes("none", devices=4, priority="recorded", data=2) == ["The device map is of group 0"]
    backward = map_notes(elsewhere(tied(free_backward=True), "body.1 2"))
    assert next(backward).endswith("autograd runs ops where their forward ops ran, 1 of them not as planned.")


def test_a_weight_that_another_module_computes_with_is_where_its_module_is() -> None:
    """The example's last product takes the weight of ``tokens`` without a module of its own."""
    message = r"module '\(root\)' itself computes with results of 'norm' on gpu1 and a weight of 'tokens' on gpu0"
    with pytest.raises(PlanError, match=message):
        device_map(halves(("blocks.0",), ("blocks.1", "norm")).simulated)


def test_shards_on_several_devices_are_refused_and_on_one_are_one_module() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    graph = tensortide.capture(model, torch.ones(4, 8), loss="sum", optimizer="sgd", real=True)
    for along in ("output", "batch"):
        prepared = ready(graph, cluster(2), PlaceOptions(shards=(Shard.parse(f"2={along}:2"),)))
        exports.check_whole(placed(prepared, [0] * len(prepared.problem.names)))
        with pytest.raises(PlanError, match=r"module '2' is in shards on 2 devices, .* leave out its --shard, or pin"):
            exports.check_whole(elsewhere(prepared, "2.shard1"))


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_split_points_are_the_modules_that_begin_a_stage(micro_batches: int) -> None:
    options = PlaceOptions(Grouping(depth=2), micro_batches=micro_batches, schedule="1f1b")
    prepared = ready(captured("resnet18_cifar"), cluster(3), options)
    where = {"stem": 0, "groups.0": 0, "groups.1": 1, "groups.2": 2, "groups.3": 2, "pool": 2, "classifier": 2}
    found = placed(prepared, [where.get(name, 2) for name in prepared.problem.names])
    assert split_points(found.simulated) == {"groups.1": "BEGINNING", "groups.2": "BEGINNING"}
    with pytest.raises(PlanError, match="a device has several stages"):
        split_points(halves(("blocks.0",), ("blocks.1",)).simulated)


def test_devices_are_those_that_accelerate_knows() -> None:
    """Numbers of GPUs, a CPU alone; a CPU beside GPUs only stores weights there."""
    host = device("Intel i9-13900K")
    link = cluster(2).channels[0].link
    cases: list[tuple[list[Device], tuple[int, int], dict[str, int | str]]] = [
        ([host, GPU, GPU], (1, 2), {"blocks.0": 0, "blocks.1": 1}),
        ([host, host], (0, 0), {"": "cpu"}),
    ]
    for rows, gpus, wanted in cases:
        prepared = ready(captured("gpt2"), joined(rows, link), PlaceOptions(Grouping(depth=2)))
        late = [name == "blocks.1" for name in prepared.problem.names]
        found = device_map(placed(prepared, [gpus[number] for number in late]).simulated)
        assert wanted.items() <= found.items()
        hosted = placed(prepared, [number * (len(rows) - 1) for number in late])
        with pytest.raises(PlanError, match=r"modules are on cpu.* and on other devices, and accelerate runs those"):
            device_map(hosted.simulated)


@functools.cache
def small_gpt() -> Ready:
    model, ids = exported_model.built()
    step = tensortide.capture(model, ids, loss="sum", optimizer="sgd", real=True)
    return ready(step, cluster(2), PlaceOptions(Grouping()))


@functools.cache
def modules() -> tuple[str, ...]:
    """Modules of the small GPT that have parameters of their own."""
    model, _ = exported_model.built()
    return tuple(name for name, module in model.named_modules() if [*module.parameters(recurse=False)])


def placed_by(devices: dict[str, int]) -> PlacedStep:
    """The small GPT with each module on its device; ops of containers on the device of their last module before."""
    prepared = small_gpt()
    place: list[int] = []
    for name in prepared.problem.names:
        place.append(devices.get(name.partition(" ")[0], place[-1] if place else 0))
    return placed(prepared, place)


def put(module: nn.Module, name: str, device: Any, *_args: object, **_options: object) -> None:
    """Put a parameter on its device: accelerate's own function cannot do that with fake ones."""
    path, _, last = name.rpartition(".")
    parameters = module.get_submodule(path)._parameters
    held = parameters[last]
    assert held is not None
    parameters[last] = nn.Parameter(held.detach().to(device), requires_grad=False)


def runs_in_accelerate(devices: dict[str, int | str]) -> bool:
    """Dispatch the small GPT by ``devices`` on pretended GPUs, and tell whether its forward pass finds its operands on
    one device each."""
    from torch._subclasses.fake_tensor import FakeTensorDeviceMismatchError

    with FakeTensorMode(), torch.no_grad(), mock.patch("accelerate.hooks.set_module_tensor_to_device", put):
        model, ids = exported_model.built()
        check_device_map(model, devices)
        named = {module: f"cuda:{number}" for module, number in devices.items()}  # numbers need a GPU
        try:
            dispatch_model(model, named, force_hooks=True)(ids)
        except FakeTensorDeviceMismatchError:
            return False
    return True


@pytest.mark.slow
@settings(max_examples=50)  # each builds a model
@given(st.data())
def test_accelerate_runs_each_map_that_is_not_refused(data: st.DataObject) -> None:
    """Half of the placements are of runs of modules, most of which fit."""
    names = modules()
    if data.draw(st.booleans()):
        cut = data.draw(st.integers(0, len(names)))
        devices = {name: int(number >= cut) for number, name in enumerate(names)}
    else:
        devices = {name: data.draw(st.integers(0, 1)) for name in names}
    found = placed_by(devices).simulated
    with mock.patch.object(exports, "_devices_by"):
        every = device_map(found)
    if runs_in_accelerate(every):
        assert json.loads(json.dumps(device_map(found))) == every
        return
    with pytest.raises(PlanError, match="itself computes with "):
        device_map(found)


def test_whole_blocks_run_and_divided_ones_do_not() -> None:
    names = modules()
    whole = placed_by({name: int(name > "blocks.1") for name in names}).simulated
    assert device_map(whole) == {"blocks.0": 0, "blocks.1": 1, "blocks.2": 1, "head": 1, "tokens": 1}
    assert runs_in_accelerate(device_map(whole))
    divided = placed_by({name: int(".mlp." in name) for name in names}).simulated
    with pytest.raises(
        PlanError, match=r"module 'blocks\.0' itself computes with results of .* unit \(--depth 2, or --prefix"
    ):
        device_map(divided)


@pytest.mark.slow
def test_a_pipeline_that_is_split_so_runs_on_two_ranks() -> None:
    names = modules()
    stages = placed_by({name: int(name >= "blocks.2") if name != "tokens" else 0 for name in names})
    spec = json.loads(json.dumps(split_points(stages.simulated)))
    assert spec == {"blocks.2": "BEGINNING"}
    (first,), (*losses, second) = run_ranks(functools.partial(exported_model.pipelined, spec), 2)
    model, ids = exported_model.built()
    alone = [exported_model.loss_of(model(part), part) for part in ids.chunk(2)]
    (sum(alone[1:], alone[0]) / 2).backward()
    assert losses == pytest.approx([float(loss.detach()) for loss in alone])
    norms = torch.stack([parameter.grad.norm() for parameter in model.parameters() if parameter.grad is not None])
    assert math.hypot(first, second) == pytest.approx(float(norms.norm()))
