"""Whole steps as generated programs: what they leave behind is what ordinary steps do, bit for bit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tensortide import BudgetInfeasible, RunError, capture, compile_step
from tensortide.plans import Compute, Copy, Evict, Lane, Plan, save_plan
from tensortide.plans.model import Step
from tensortide.run.generated.step import StepProgram
from tensortide.timelines import timeline
from tests.run.generated.models import MODELS, UNLIMITED, WRAPPED, Deep, allocated_peak, assert_same
from tests.run.same import state

TIGHT = {"deep": 0.5, "resnet": 0.9, "gpt2": 0.7, "lstm": 0.6}
"""Shares of what a step needs, by model."""
Runs = Callable[[], Any]


def training(name: str, **optimizer: Any) -> tuple[nn.Module, Runs]:
    """A model and its step with momentum, twice the same."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    opt: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    opt = torch.optim.AdamW(model.parameters(), **optimizer) if optimizer else opt

    def step() -> Tensor:
        opt.zero_grad()
        loss: Tensor = model(*inputs)
        loss.backward()
        opt.step()
        return loss.detach()

    step()
    return model, step


def program(step: Runs, budget: int = UNLIMITED, **options: Any) -> StepProgram:
    return compile_step(step, f"{budget}B", **{"effort": 0.2, **options})


def least_peak(step: Runs, share: float) -> int:
    """A share of what the step needs beside what it is given."""
    graph = capture(step)
    line = timeline(graph, lifetimes="last_use")
    return int(line.start_bytes + share * (line.peak_bytes - line.start_bytes))


@pytest.mark.parametrize(
    ("name", "share"),
    [("mlp", 0.6), *(pytest.param(*case, marks=pytest.mark.slow) for case in TIGHT.items())],
)
def test_steps_leave_behind_what_ordinary_ones_do_in_the_bytes_of_the_plan(name: str, share: float) -> None:
    (_, ordinary), (_, step) = training(name), training(name)
    compiled = program(step, least_peak(step, share))
    results = []
    for run, owner in ((ordinary, ordinary), (compiled, step)):
        torch.manual_seed(1)
        losses = [run(), run()]
        results.append([*losses, *left(owner), torch.get_rng_state()])
    assert_same(results[1], results[0])
    planned = compiled.planned
    assert planned is not None
    assert compiled.peak_bytes <= least_peak(step, share)
    assert planned.step_ns != planned.base_ns
    given = timeline(compiled.graph, lifetimes="last_use").start_bytes
    measured = allocated_peak(compiled)
    assert abs(measured - (compiled.peak_bytes - given)) <= WRAPPED


def left(step: Runs) -> list[Tensor]:
    """What the step reaches, without gradients that the next step drops."""
    for cell in inspect.getclosurevars(step).nonlocals.values():
        if isinstance(cell, nn.Module):
            cell.zero_grad()
    return [*state(step)]


def test_a_plan_is_followed_from_a_file(tmp_path: Path) -> None:
    (_, ordinary), (_, step) = training("mlp"), training("mlp")
    graph = capture(step)
    op = next(i for i, view in enumerate(graph) if "tanh" in view.name)
    (storage,) = graph.index.allocated[op]
    user = next(i for i in graph.index.users[storage] if "backward" in graph[i].phase.value)
    steps: list[Step] = [Compute(i) for i in range(len(graph))]
    steps[user:user] = [Evict(storage), Compute(op)]
    path = save_plan(Plan(graph.index.digest, (Lane("cpu", tuple(steps)),)), tmp_path / "plan.json")
    compiled = compile_step(step, plan=path, graph=graph)
    assert inspect.getsource(compiled.function).count("_tanh_") > sum("tanh" in view.name for view in graph) - 1
    assert_same([compiled(), *left(step)], [ordinary(), *left(ordinary)])


def test_new_data_are_copied_in_and_gradients_accumulate() -> None:
    torch.manual_seed(0)
    one, other = Deep(layers=2), Deep(layers=2)
    other.load_state_dict(one.state_dict())
    x = torch.randn(4, 16)
    steps = [lambda model=model: model(x).backward() for model in (one, other)]
    steps[0]()
    steps[1]()
    compiled = program(steps[1])
    for _ in range(3):
        x.copy_(torch.randn(4, 16))
        steps[0]()
        compiled()
        assert_same([p.grad for p in other.parameters()], [p.grad for p in one.parameters()])  # type: ignore[misc]
    other.zero_grad()
    with pytest.raises(RunError, match="accumulates into"):
        compiled()


def test_an_optimizer_with_its_numbers_in_tensors_is_compiled_and_any_other_refused() -> None:
    (_, ordinary), (_, step) = training("mlp", fused=True), training("mlp", fused=True)
    compiled = program(step)
    assert_same([compiled(), compiled(), *left(step)], [ordinary(), ordinary(), *left(ordinary)])
    _, reading = training("mlp", lr=1e-3)
    read = r"aten\._local_scalar_dense\.default at .*:\d+ reads the value of a tensor.*capturable=True or fused=True"
    with pytest.raises(RunError, match=read):
        program(reading)


def test_a_value_that_is_the_same_in_every_step_may_be_read() -> None:
    """Positions are compared with themselves before attention, in models of transformers: nothing given is read."""

    def positioned() -> Runs:
        torch.manual_seed(0)
        model, x = nn.Linear(8, 8), torch.randn(4, 8)

        def step() -> Tensor:
            model.zero_grad()
            positions = torch.arange(4)
            scale = 2.0 if bool((positions.diff() == 1).all()) else 1.0
            loss: Tensor = model(x * scale).square().mean()
            loss.backward()
            return loss.detach()

        return step

    compiled, ordinary = program(positioned()), positioned()
    assert_same([compiled()], [ordinary()])


def test_integers_select_without_a_value_read_and_a_mask_does_not() -> None:
    torch.manual_seed(0)
    model, x, ids = nn.Linear(8, 8), torch.randn(4, 6, 8), torch.randint(0, 9, (4, 6))

    def step() -> Tensor:
        model.zero_grad()
        loss: Tensor = model(x[torch.arange(4), ids.argmax(-1)]).sum()
        loss.backward()
        return loss.detach()

    def masks() -> None:
        model(x[x.sum(-1) > 0]).sum().backward()

    def results(run: Runs) -> list[Tensor]:
        loss: Tensor = run()
        return [loss, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]

    expected = results(step)
    found = results(program(step))
    assert_same(found, expected)
    assert len(found) == 3
    with pytest.raises(RunError, match=r"aten\.index\.Tensor at .*test_step.py:\d+ reads .* indices that are integers"):
        StepProgram(masks, capture(masks, real=True), Plan("", ()))


def test_a_learning_rate_that_changes_is_told() -> None:
    _, step = training("mlp")
    compiled = program(step)
    compiled()
    inspect.getclosurevars(step).nonlocals["opt"].param_groups[0]["lr"] = 0.2
    with pytest.raises(RunError, match=r"\['lr'\] is 0.2 and was 0.1"):
        compiled()


def test_what_a_program_cannot_do_is_one_line() -> None:
    model, kept, x = Deep(layers=2), [torch.zeros(())], torch.randn(4, 16)

    def leaves() -> None:
        kept[0] = model(x).detach()

    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def never_ran() -> None:
        model(x).backward()
        opt.step()

    def reads() -> float:
        return float(model(x))

    with pytest.raises(RunError, match="leaves a tensor behind that is neither returned nor a gradient"):
        program(leaves)
    with pytest.raises(RunError, match="run one step before"):
        program(never_ran)
    with pytest.raises(RunError, match="reads the value of a tensor"):
        program(reads)
    with pytest.raises(RunError, match="give either a budget or a plan"):
        compile_step(reads)
    with pytest.raises(BudgetInfeasible, match=r"no plan fits a budget of 1\.00 KiB"):
        program(lambda: model(x).backward(), 1024)


def test_a_plan_that_moves_storages_is_refused() -> None:
    _, step = training("mlp")
    graph = capture(step)
    steps: tuple[Step, ...] = (Compute(0), Copy(0, "host"), *map(Compute, range(1, len(graph))))
    with pytest.raises(RunError, match="plans that move nothing"):
        compile_step(step, plan=Plan(graph.index.digest, (Lane("cpu", steps),)), graph=graph)
