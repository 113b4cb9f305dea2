"""The backend of torch.compile: results of eager steps bit for bit, in the bytes that the plan says."""

from __future__ import annotations

import contextlib
import gc
import inspect
import threading
import traceback
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tensortide import BudgetInfeasible, RunError, RunWarning
from tensortide.graph.effects import draws_random
from tensortide.graph.model import Graph
from tensortide.graph.validate import validate
from tensortide.plans import validate as validate_plan
from tensortide.run.generated.aot import Backend
from tests.run.generated.models import (
    MODELS,
    UNLIMITED,
    WRAPPED,
    Deep,
    Gpt,
    Residual,
    allocated_peak,
    assert_same,
    backend,
    fresh,
    trained,
)

Compiled = Any
TIGHT = {"deep": 0.5, "resnet": 0.9, "gpt2": 0.6, "lstm": 0.6}
"""Shares of what a step needs, by model."""
AGAIN = "a graph runs again before its backward pass"


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    """Nothing is compiled before."""
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", r"The \.grad attribute of a Tensor that is not a leaf")  # Dynamo asks for it
        yield
    torch._dynamo.reset()


def compiled(model: Any, made: Backend, **options: Any) -> Compiled:
    return torch.compile(model, backend=made, fullgraph=True, **options)


def budget_at(share: float, found: Backend) -> int:
    """The budget that leaves a share of what the step needs beside what it is given."""
    (graph,) = found.graphs
    return int(graph.given_bytes + share * (graph.peak_bytes - graph.given_bytes))


@pytest.mark.parametrize(
    ("name", "share"),
    [("mlp", 0.6), *(pytest.param(*case, marks=pytest.mark.slow) for case in TIGHT.items())],
)
def test_a_step_has_the_results_of_an_eager_one_in_the_bytes_of_its_plan(name: str, share: float) -> None:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    plain = fresh(model)
    wanted = trained(plain, plain, inputs)
    free = backend()
    first = fresh(model)
    assert_same(trained(first, compiled(first, free), inputs), wanted)
    torch._dynamo.reset()
    made, own = backend(budget_at(share, free)), fresh(model)
    function = compiled(own, made)
    assert_same(trained(own, function, inputs), wanted)
    (graph,) = made.graphs
    validate(graph.graph)
    assert graph.planned.plan is not None
    validate_plan(graph.planned.plan, graph.graph)
    assert graph.peak_bytes <= made.budget_bytes
    assert len(graph.planned.plan.lanes[0].steps) > len(graph.graph)
    own.zero_grad()
    measured = allocated_peak(lambda: function(*inputs).backward())
    assert abs(measured - (graph.peak_bytes - graph.given_bytes)) <= WRAPPED
    assert max(p.grad is None for p in own.parameters()) is False


@pytest.mark.slow
def test_recomputed_dropout_draws_the_same_numbers_and_its_states_are_planned() -> None:
    torch.manual_seed(0)
    model, ids = Gpt(layers=1), torch.randint(0, 64, (4, 32))
    plain = fresh(model)
    wanted = trained(plain, plain, [ids])
    free = backend()
    compiled(fresh(model), free)(ids)
    torch._dynamo.reset()
    made, own = backend(budget_at(0.7, free)), fresh(model)
    assert_same(trained(own, compiled(own, made), [ids]), wanted)
    (graph,) = made.graphs
    assert graph.halves.states > 0
    assert graph.peak_bytes > (graph.planned.peak_bytes or 0)
    torch._dynamo.reset()
    kept = backend(made.budget_bytes, keep_random=True)
    own = fresh(model)
    assert_same(trained(own, compiled(own, kept), [ids]), wanted)
    assert kept.graphs[0].halves.states == 0
    assert [op for op in kept.graphs[0].graph.ops if draws_random(kept.graphs[0].graph.calls[op.call])]


def test_statistics_are_updated_once_and_inference_is_planned_too() -> None:
    torch.manual_seed(0)
    model, x = Residual(blocks=1), torch.randn(2, 3, 8, 8)
    own, made = fresh(model), backend()
    function = compiled(own, made)
    for _ in range(2):
        trained(model, model, [x])
        trained(own, function, [x])
    assert_same([*own.buffers()], [*model.buffers()])
    model.eval()
    own.eval()
    with torch.no_grad():
        assert_same([function(x)], [model(x)])
    assert len(made.graphs) == 2
    assert made.graphs[1].halves.backward is None


def test_the_source_is_straight_line_code_with_frees() -> None:
    made = backend()
    model = Deep(layers=2)
    compiled(model, made)(torch.randn(4, 16)).backward()
    source = inspect.getsource(made.graphs[0].halves.backward)  # type: ignore[arg-type]
    assert source in made.graphs[0].source
    lines = [line.strip() for line in source.splitlines()]
    assert lines[0] == "def backward(given):"
    assert any(line.endswith("= None") for line in lines)
    assert not any(line.startswith(("if", "for", "while")) for line in lines)
    assert any("models.py:" in line for line in lines)


class Views(nn.Module):
    """Returns its input, a view of its input, a view of a result twice, and a detached one."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        self.count += 1
        y = (x @ self.weight).sin()
        return x, x.view(-1), y.t(), y.view(-1), y.detach(), self.count, y.sum()


@pytest.mark.filterwarnings("ignore:a graph runs again")
def test_views_aliases_and_written_buffers_are_returned_as_they_are() -> None:
    torch.manual_seed(0)
    model = Views()
    own, x = fresh(model), torch.randn(4, 4, requires_grad=True)
    function = compiled(own, backend())
    for _ in range(2):
        wanted, found = model(x), function(x)
        assert_same([each.detach() for each in found], [each.detach() for each in wanted])
        assert found[0] is x
        assert found[1].data_ptr() == x.data_ptr()
        assert found[2].untyped_storage().data_ptr() == found[3].untyped_storage().data_ptr()
        gradients = [torch.autograd.grad(out[6] + out[3].sum(), [x], retain_graph=True)[0] for out in (wanted, found)]
        assert_same(gradients[:1], gradients[1:])


@pytest.mark.slow
def test_several_calls_may_come_before_a_backward_pass() -> None:
    torch.manual_seed(0)
    model, batches = Gpt(layers=1), [torch.randint(0, 64, (2, 32)) for _ in range(2)]
    free, own = backend(), fresh(model)
    compiled(fresh(model), free)(batches[0])
    torch._dynamo.reset()
    function = compiled(own, backend(budget_at(0.7, free)))
    grads = []
    for net, call in ((model, model), (own, function)):
        torch.manual_seed(1)
        with pytest.warns(RunWarning, match=AGAIN) if call is function else contextlib.nullcontext():
            losses = [call(batch) for batch in batches]
        for loss in losses:
            loss.backward()
        grads.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
    assert_same(grads[1], grads[0])


def test_a_graph_may_be_kept_and_not_differentiated_twice() -> None:
    own = Deep(layers=2)
    function = compiled(own, backend())
    loss = function(torch.randn(4, 16))
    loss.backward(retain_graph=True)
    first = [p.grad.clone() for p in own.parameters() if p.grad is not None]
    loss.backward()
    assert_same([p.grad for p in own.parameters() if p.grad is not None], [2 * each for each in first])
    (gradient,) = torch.autograd.grad(function(torch.randn(4, 16)), [*own.parameters()][:1], create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.sum().backward()


@pytest.mark.filterwarnings("ignore:a graph runs again")
def test_threads_may_run_it_at_once() -> None:
    own, batches = Deep(layers=2), [torch.randn(64, 16) for _ in range(3)]
    function = compiled(own, backend())
    wanted = [trained_inputs(own, batch) for batch in batches]
    function(batches[0])
    found: list[Any] = [None] * 3

    def work(number: int) -> None:
        for _ in range(2):
            found[number] = trained_inputs(function, batches[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(found, wanted)


def trained_inputs(function: Any, batch: Tensor) -> Tensor:
    x = batch.clone().requires_grad_()
    gradient: Tensor = torch.autograd.grad(function(x), [x])[0]
    return gradient


class Indexed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 1 << 12)

    def forward(self, ids: Tensor, hook: Tensor) -> Tensor:
        large = (hook * 2).sin()
        result: Tensor = large.cos().sum() + self.table(ids).sum()
        return result


def test_an_error_inside_shows_the_line_and_leaves_nothing_behind() -> None:
    function = compiled(Indexed(), backend())
    function(torch.tensor([1]), torch.randn(1 << 12, requires_grad=True))
    hook = torch.randn(1 << 12, requires_grad=True)
    alive = weakref.ref(hook)
    with pytest.raises(IndexError) as caught:
        function(torch.tensor([9]), hook)
    shown = "".join(traceback.format_tb(caught.value.__traceback__))
    assert "= _embedding_" in shown
    assert "<tensortide forward" in shown
    del caught, hook
    gc.collect()
    assert alive() is None


def test_each_shape_has_a_program_of_its_own() -> None:
    torch.manual_seed(0)
    model = Deep(layers=1)
    own, made = fresh(model), backend()
    function = torch.compile(own, backend=made)
    for rows in (4, 6, 8, 6):
        x = torch.randn(rows, 16)
        assert_same(trained(own, function, [x]), trained(model, model, [x]))
    assert len(made.graphs) == 3


@pytest.mark.slow
def test_a_budget_that_is_too_small_is_one_error_that_names_the_least() -> None:
    made, x = backend(1 << 14), torch.randn(64, 16)
    function = compiled(Deep(), made)
    with pytest.raises(BudgetInfeasible, match="the least budget for which one was found is") as caught:
        function(x)
    assert "\n" not in str(caught.value)
    least = caught.value.least_bytes
    assert least is not None
    torch._dynamo.reset()
    enough = backend(least)
    compiled(Deep(), enough)(x).backward()
    assert enough.graphs[0].peak_bytes <= least


class Broken(nn.Module):
    """Two graphs: something that cannot be traced stands between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Deep(), Deep()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first(x)
        torch._dynamo.graph_break()
        result: Tensor = self.second(x)
        return result


class Twice(Broken):
    """Three graphs."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + super().forward(x)
        torch._dynamo.graph_break()
        return x.sin().sum()


@pytest.mark.slow
def test_graphs_of_a_broken_step_are_planned_with_their_shares() -> None:
    torch.manual_seed(0)
    model, x = Broken(), torch.randn(64, 16)
    wanted = trained(model, model, [x])
    own, made = fresh(model), backend()
    with pytest.warns(RunWarning, match=r"makes graph 2 of the step .* what the graphs before it leave"):
        assert_same(trained(own, torch.compile(own, backend=made), [x]), wanted)
    first, second = made.graphs
    assert second.planned.budget_bytes == UNLIMITED - first.held_bytes
    torch._dynamo.reset()
    own, made = fresh(model), backend(1 << 20, shares=(0.5, 0.25))
    function = torch.compile(own, backend=made)
    assert_same(trained(own, function, [x]), wanted)
    assert [graph.planned.budget_bytes for graph in made.graphs] == [1 << 19, 1 << 18]
    torch._dynamo.reset()
    three = torch.compile(Twice(), backend=made)
    with pytest.raises(RunError, match="2 shares: give one more"):
        three(x)


@pytest.mark.parametrize("spare", [0, 1 << 18])
def test_a_loss_outside_that_may_not_fit_is_warned_of(spare: int) -> None:
    model, x = nn.Linear(8, 128), torch.randn(64, 8)
    needed = backend()
    compiled(model, needed)(x).sum().backward()
    torch._dynamo.reset()
    tight, said = backend(needed.graphs[0].peak_bytes + spare), "returns 32.00 KiB of which code outside computes"
    with contextlib.nullcontext() if spare else pytest.warns(RunWarning, match=said):
        compiled(model, tight)(x).sum().backward()


def test_shares_add_up_to_one_at_most() -> None:
    with pytest.raises(RunError, match="add up to at most 1"):
        backend(shares=(0.7, 0.7))


@torch.library.custom_op("tensortide_tests::opaque", mutates_args=())
def opaque(x: Tensor) -> Tensor:
    return x.sin()


@opaque.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


opaque.register_autograd(lambda ctx, gradient: gradient * 2)


def test_ops_of_libraries_go_through() -> None:
    x = torch.randn(8, requires_grad=True)
    function = compiled(lambda y: opaque(y * 3).sum(), backend())
    (gradient,) = torch.autograd.grad(function(x), [x])
    assert_same([gradient], [torch.full((8,), 6.0)])


def test_functions_over_functions_run_once() -> None:
    def chosen(x: Tensor) -> Tensor:
        result: Tensor = torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))
        return result

    made, x = backend(), torch.ones(4)
    with torch.no_grad():
        assert_same([compiled(chosen, made)(x)], [x.sin()])
    graph: Graph = made.graphs[0].graph
    assert any(call.op.startswith("higher_order.cond") for call in graph.calls)


def test_a_compiled_graph_is_shown_in_a_line() -> None:
    model = Deep(layers=2)
    made = backend(UNLIMITED)
    compiled(model, made)(torch.randn(4, 16)).sum().backward()
    text = repr(made.graphs[0])
    assert len(text) < 200
    assert f"{len(made.graphs[0].graph)} ops" in text
    assert "added" in text
