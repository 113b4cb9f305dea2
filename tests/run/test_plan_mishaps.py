"""Plans that move storages under programs that do not behave: errors of the user's, edited plans, other threads."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tensortide.errors import PlanError, PlanLeft
from tensortide.plans import Copy, Evict, Fetch, Lane, Offload, Plan
from tensortide.plans.model import Step
from tensortide.run.budget import Budget
from tests.marks import some_slow
from tests.run.follow_steps import built, tower
from tests.run.same import UNLIMITED, identical
from tests.run.test_tiers import offloading, run_graph, short


def edited(plan: Plan, edit: Callable[[list[Step]], None], home: dict[int, str] | None = None) -> Plan:
    steps = list(plan.lanes[0].steps)
    edit(steps)
    return Plan(plan.graph, (Lane("cpu", tuple(steps)),), plan.home if home is None else home)


def first(steps: list[Step], kind: type) -> int:
    return next(at for at, step in enumerate(steps) if isinstance(step, kind))


def without_fetch(steps: list[Step]) -> None:
    del steps[first(steps, Fetch)]


def dropped_too_early(steps: list[Step]) -> None:
    at = first(steps, Offload)
    moved = steps[at]
    assert isinstance(moved, Offload)
    steps[at] = Evict(moved.storage)


def no_such_storage(steps: list[Step]) -> None:
    steps.insert(5, Copy(10_000, "host"))


def fetched_twice(steps: list[Step]) -> None:
    at = first(steps, Fetch)
    steps.insert(at, steps[at])


def unknown_link(steps: list[Step]) -> None:
    for at, step in enumerate(steps):
        if isinstance(step, Offload | Fetch):
            steps[at] = type(step)(step.storage, "hsot")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (without_fetch, r"step \d+ computes op \d+ \(.*\), which needs storage \d+; it is not resident"),
        (dropped_too_early, r"step \d+ fetches storage \d+, of which host has no copy"),
        (no_such_storage, r"step 5 is Copy\(storage=10000, link='host'\): there are \d+ storages"),
        (fetched_twice, r"step \d+ fetches storage \d+ from host, which is resident"),
        (unknown_link, r"over 'hsot': a live run has the links 'host' and 'ssd'"),
    ],
)
def test_an_edited_plan_is_refused_before_the_step(edit: Callable[[list[Step]], None], message: str) -> None:
    graph = run_graph(tower)
    with pytest.raises(PlanError, match=message):
        Budget(UNLIMITED, edited(offloading(graph), edit), graph=graph).__enter__()
    with Budget(UNLIMITED):
        pass


def test_a_plan_of_another_graph_is_refused() -> None:
    with pytest.raises(PlanError, match="made for another graph"):
        Budget(UNLIMITED, offloading(run_graph(tower)), graph=run_graph(short))


def test_a_home_of_what_has_none_is_refused() -> None:
    graph = run_graph(tower)
    activation = next(i for i, storage in enumerate(graph.storages) if storage.birth is not None)
    with pytest.raises(PlanError, match=rf"storage {activation} has no home: it is not persistent"):
        Budget(UNLIMITED, edited(offloading(graph), lambda steps: None, {activation: "host"}), graph=graph)


# -- programs that do something else ----------------------------------------------------------------


def parts(step: Callable[[], Any]) -> tuple[nn.Module, torch.optim.Optimizer]:
    cells: list[Any] = [cell.cell_contents for cell in step.__closure__ or ()]
    model = next(cell for cell in cells if isinstance(cell, nn.Module))
    return model, next(cell for cell in cells if isinstance(cell, torch.optim.Optimizer))


def run_both(act: Callable[[nn.Module, torch.optim.Optimizer, Callable[[], Any]], None]) -> int:
    """Let ``act`` train a tower, with and without a plan that moves storages: parameters and momenta are the same.
    Returns how many steps followed the plan."""
    graph = run_graph(tower)
    found = []
    followed = 0
    for plan in (offloading(graph, ("host", "ssd"), given=True), None):
        step = built(tower)
        model, update = parts(step)
        if plan is None:
            act(model, update, step)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PlanLeft)
                with Budget(UNLIMITED, plan, graph=graph, workspace=False) as budget:
                    act(model, update, step)
            followed = budget.usage.followed_steps
        momenta = [t for held in update.state.values() for t in held.values() if isinstance(t, torch.Tensor)]
        found.append([*(p.detach() for p in model.parameters()), *momenta])
    assert all(map(identical, *found))
    return followed


def test_an_error_of_the_program_in_the_middle_of_a_step() -> None:
    def act(model: nn.Module, update: torch.optim.Optimizer, step: Callable[[], Any]) -> None:
        step()

        def failing(*_: Any) -> None:
            raise ZeroDivisionError

        hook = model[4].register_full_backward_hook(failing)  # type: ignore[index]
        with pytest.raises(ZeroDivisionError):
            step()
        hook.remove()
        update.zero_grad()
        step()
        step()

    assert run_both(act) >= 2


def test_hooks_of_parameters_read_what_has_moved() -> None:
    seen: list[float] = []

    def act(model: nn.Module, update: torch.optim.Optimizer, step: Callable[[], Any]) -> None:
        for parameter in model.parameters():
            parameter.register_hook(lambda grad, p=parameter: seen.append(float(p.detach().sum())))
        step()
        step()

    run_both(act)
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def test_gradients_that_are_zeroed_in_place_and_accumulated() -> None:
    def act(model: nn.Module, update: torch.optim.Optimizer, step: Callable[[], Any]) -> None:
        step()
        update.zero_grad(set_to_none=False)
        step()
        x = torch.linspace(0, 1, 64).reshape(8, 8)
        for _ in range(3):  # accumulation
            model(x).square().mean().backward()
        update.step()
        update.zero_grad()
        step()

    assert run_both(act) >= 2


def test_a_model_that_is_moved_between_steps() -> None:
    def act(model: nn.Module, update: torch.optim.Optimizer, step: Callable[[], Any]) -> None:
        step()
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()  # elsewhere
        step()
        model.double()
        model.float()
        step()
        step()

    assert run_both(act) >= 2


def test_parameters_read_between_steps_are_there() -> None:
    values: list[torch.Tensor] = []

    def act(model: nn.Module, update: torch.optim.Optimizer, step: Callable[[], Any]) -> None:
        for _ in range(2):
            step()
            values.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
            values.append(torch.from_numpy(model[0].weight.detach().numpy().copy()))  # type: ignore[index]
            values.append(next(iter(model.state_dict().values())).clone())

    run_both(act)
    half = len(values) // 2
    assert all(map(identical, values[:half], values[half:]))


@pytest.mark.parametrize("reads", some_slow([False, True], [False]))
def test_other_threads_run_other_models_meanwhile(reads: bool) -> None:
    """``reads``: the parameters that move, too."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def act(model: nn.Module, update: torch.optim.Optimizer, step: Callable[[], Any]) -> None:
        stop.clear()

        def work() -> None:
            other = nn.Linear(16, 16)
            try:
                while not stop.wait(0.001):
                    other(torch.ones(4, 16)).sum().backward()
                    if reads:
                        float(model[0].weight.detach().sum())  # type: ignore[index]
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        state = torch.get_rng_state()
        thread = threading.Thread(target=work)
        thread.start()
        while not hasattr(thread, "ident"):
            pass
        threading.Event().wait(0.05)
        torch.set_rng_state(state)  # the other model's weights are drawn
        try:
            for _ in range(3):
                step()
        finally:
            stop.set()
            thread.join()

    followed = run_both(act)
    assert [repr(error) for error in errors] == []
    assert followed == 3
