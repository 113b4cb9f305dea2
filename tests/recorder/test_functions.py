"""Custom autograd functions and ops are placed as their plain twins are: same modules, same phases, same FLOPs."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tensortide import capture, count
from tensortide.graph import Graph, Phase

Product = Callable[[Tensor, Tensor], Tensor]
Placed = Counter[tuple[str, Phase, bool]]


def plain(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight.t()


class Function(torch.autograd.Function):
    """The product with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return gradient @ weight, (x.t() @ gradient).t()


class LateContext(torch.autograd.Function):
    """The same in the other form: its forward is not given the context."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return x @ weight.t()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        del output
        ctx.save_for_backward(*inputs)

    backward = staticmethod(Function.backward)


class Prepared(torch.autograd.Function):
    """One that computes where it is given the context: autograd records neither."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return x @ weight.t()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight = inputs
        ctx.save_for_backward(x, weight, x @ weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, _ = ctx.saved_tensors
        return gradient @ weight, (x.t() @ gradient).t()


class Nested(torch.autograd.Function):
    """A function whose forward and backward call another one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return bound(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return bound(gradient, weight.t()), bound(x.t(), gradient.t()).t()


bound: Product = Function.apply  # as many programs keep it: before anybody looks


def called(x: Tensor, weight: Tensor) -> Tensor:
    result: Tensor = Function.apply(x, weight)
    return result


class Failing(Function):
    """A function that cannot be called."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        raise ArithmeticError


def after_a_failure(x: Tensor, weight: Tensor) -> Tensor:
    with contextlib.suppress(ArithmeticError):
        Failing.apply(x, weight)
    return called(x, weight)


PRODUCTS: dict[str, Product] = {
    "function": called,
    "bound": bound,
    "late-context": LateContext.apply,
    "nested": Nested.apply,
}


class Linear(nn.Module):
    """A linear layer by way of ``product``."""

    def __init__(self, product: Product, before: bool = False, uses: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))
        self.product, self.before, self.uses = product, before, uses

    def forward(self, x: Tensor) -> Tensor:
        if self.before:
            x = x.relu()
        for _ in range(self.uses):
            x = self.product(x, self.weight)
        return x


class Block(nn.Module):
    """Layers in a module that computes something itself."""

    def __init__(self, product: Product) -> None:
        super().__init__()
        self.first, self.second = Linear(product), Linear(product, before=True, uses=2)
        self.scale = nn.Parameter(torch.randn(16, 16))
        self.product = product

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.second(self.product(self.first(x), self.scale))
        return result


class Checkpointed(Block):
    """Its layers are recomputed. The op at the end needs all of them: without it a checkpoint stops early."""

    def __init__(self, product: Product, reentrant: bool) -> None:
        super().__init__(product)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        def layers(x: Tensor) -> Tensor:
            with torch.no_grad():
                self.product(x, self.scale)
            result: Tensor = super(Checkpointed, self).forward(x)
            return result.sin()

        result: Tensor = checkpoint(layers, x, use_reentrant=self.reentrant)
        return result


def hooked(product: Product) -> nn.Module:
    block = Block(product)
    block.first.register_full_backward_hook(lambda module, given, found: None)
    block.second.register_forward_hook(lambda module, args, result: result.sin())
    block.second.register_forward_pre_hook(lambda module, args: (args[0].cos(),))
    return block


MODELS: dict[str, Callable[[Product], nn.Module]] = {
    "linear": Linear,
    "twice": lambda product: (lambda layer: nn.Sequential(layer, nn.ReLU(), layer))(Linear(product)),
    "sequence": lambda product: nn.Sequential(Linear(product), Linear(product), Block(product)),
    "block": Block,
    "checkpoint": lambda product: Checkpointed(product, reentrant=False),
    "checkpoint-reentrant": lambda product: Checkpointed(product, reentrant=True),
    "hooks": hooked,
}


def step_of(model: nn.Module) -> Callable[[], Callable[[], Any]]:
    def workload() -> Callable[[], Any]:
        x = torch.randn(4, 16, requires_grad=True)

        def step() -> Any:
            loss = model(x).sum()
            loss.backward()
            model.zero_grad()
            x.grad = None
            return loss

        return step

    return workload


def flops(graph: Graph) -> Placed:
    """FLOPs of matrix products by module, phase and recomputation."""
    found: Placed = Counter()
    for op, cost in zip(graph, count(graph).costs, strict=True):
        if op.name.startswith("aten.mm"):
            assert cost.cost is not None
            assert isinstance(cost.cost.flops, int)
            found[op.module, op.phase, op.op.recompute] += cost.cost.flops
    return found


@pytest.mark.parametrize(
    ("model", "product"),
    [(model, [*PRODUCTS][(i + j) % 4]) for i, model in enumerate(MODELS) for j in (0, 1)],
)
def test_a_function_costs_what_its_plain_twin_does_where_that_does(model: str, product: str) -> None:
    expected = flops(capture(step_of(MODELS[model](plain))))
    assert expected
    assert flops(capture(step_of(MODELS[model](PRODUCTS[product])))) == expected


def outside(product: Product, learning: bool) -> Callable[[], Callable[[], Any]]:
    def workload() -> Callable[[], Any]:
        x = torch.randn(16, 16, requires_grad=True)

        def step() -> Any:
            with torch.set_grad_enabled(learning):
                y = product(x, x)
            loss = (x * y).sum()
            loss.backward()
            x.grad = None
            return loss

        return step

    return workload


@pytest.mark.parametrize("learning", [True, False])
@pytest.mark.parametrize("product", [*PRODUCTS, "after-a-failure"])
def test_outside_modules_too(product: str, learning: bool) -> None:
    expected = flops(capture(outside(plain, learning)))
    assert {phase for _, phase, _ in expected} == ({Phase.FORWARD, Phase.BACKWARD} if learning else {Phase.OTHER})
    assert flops(capture(outside(PRODUCTS.get(product, after_a_failure), learning))) == expected


def test_what_prepares_the_backward_is_forward() -> None:
    found = flops(capture(outside(Prepared.apply, True)))
    once = 2 * 16**3
    assert {key[1:]: n for key, n in found.items()} == {
        (Phase.FORWARD, False): 2 * once,
        (Phase.BACKWARD, False): 2 * once,
    }


def second_order(product: Product) -> Callable[[], Callable[[], Any]]:
    def workload() -> Callable[[], Any]:
        model = nn.Sequential(Linear(product), nn.Tanh(), Linear(product))
        x = torch.randn(4, 16, requires_grad=True)

        def step() -> Any:
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            loss = (slope * slope).sum()
            loss.backward()
            model.zero_grad()
            x.grad = None
            return loss

        return step

    return workload


@pytest.mark.parametrize("product", ["function", "late-context"])
def test_the_backward_of_a_function_that_is_differentiated_is_no_recomputation(product: str) -> None:
    found = flops(capture(second_order(PRODUCTS[product])))
    assert {(module, phase) for module, phase, _ in found} == {
        (module, phase) for module in ("0", "2") for phase in (Phase.FORWARD, Phase.BACKWARD)
    }
    assert not any(recompute for _, _, recompute in found)


class Recomputing(torch.autograd.Function):
    """Saves its input and recomputes in its backward, as hand-written checkpoints do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return bound(x, weight).relu()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        saved = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        with torch.enable_grad():
            result = bound(*saved).relu()
        return torch.autograd.grad(result, saved, gradient)


def test_what_a_function_recomputes_is_recomputation() -> None:
    graph = capture(step_of(Linear(Recomputing.apply)))
    once = 2 * 4 * 16 * 16
    assert {key[1:]: found for key, found in flops(graph).items()} == {
        (Phase.FORWARD, False): once,
        (Phase.BACKWARD, True): once,
        (Phase.BACKWARD, False): 2 * once,
    }


class Silent(torch.autograd.Function):
    """A function whose forward computes nothing that is seen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.mark_dirty(x)
        return x

    backward = staticmethod(lambda ctx, gradient: (gradient @ ctx.saved_tensors[0], None))


def test_a_function_without_ops_belongs_to_the_module_that_calls_it() -> None:
    found = flops(capture(step_of(nn.Sequential(Linear(plain), Linear(Silent.apply)))))
    once = 2 * 4 * 16 * 16
    assert found == {
        ("0", Phase.FORWARD, False): once,
        ("0", Phase.BACKWARD, False): 2 * once,
        ("1", Phase.BACKWARD, False): once,
    }


def test_functions_point_at_the_line_that_calls_them() -> None:
    graph = capture(outside(called, True))
    forward, *backward = [op.source for op in graph if op.name.startswith("aten.mm")]
    assert forward is not None
    assert forward.function == "Function.forward"
    assert len(backward) == 2
    for source in backward:
        assert source is not None
        assert source.code == "result: Tensor = Function.apply(x, weight)"


@pytest.fixture
def custom_op() -> Iterator[Product]:
    with torch.library._scoped_library("tensortide_tests", "FRAGMENT"):
        op = torch.library.custom_op(
            "tensortide_tests::product",
            lambda x, weight: x @ weight.t(),
            mutates_args=(),
            schema="(Tensor x, Tensor weight) -> Tensor",
        )
        op.register_fake(lambda x, weight: x.new_empty(x.shape[0], weight.shape[0]))
        op.register_autograd(
            Function.backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
        )
        yield op


@pytest.mark.parametrize("model", MODELS)
def test_a_custom_op_has_its_backward_where_it_is_called(model: str, custom_op: Product) -> None:
    def backward(graph: Graph) -> Placed:
        return Counter({key: n for key, n in flops(graph).items() if key[1] is Phase.BACKWARD and not key[2]})

    graph = capture(step_of(MODELS[model](custom_op)))
    assert backward(graph) == backward(capture(step_of(MODELS[model](plain))))
    placed = Counter((op.module, op.phase, op.op.recompute) for op in graph if op.name.startswith("tensortide_tests"))
    twin = capture(step_of(MODELS[model](plain)))
    backwards = (Phase.BACKWARD, False)
    assert placed == Counter(
        (op.module, op.phase, op.op.recompute)
        for op in twin
        if op.name.startswith("aten.mm") and (op.phase, op.op.recompute) != backwards
    )


def test_nothing_of_the_framework_stays_changed() -> None:
    classes = (type(Function), Function, *Function.__mro__)
    before = [dict(vars(one)) for one in classes]
    capture(step_of(Linear(bound)))
    assert [dict(vars(one)) for one in classes] == before
