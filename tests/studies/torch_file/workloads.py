"""Small workloads with what makes recomputation hard, and the run of one in a process of its own.

    python workloads.py NAME SETTINGS [FILE]

prints as JSON the most bytes that PyTorch's allocator had handed out in the second step, and digests of all gradients,
of the state of all models and of the random generator afterwards. NAME is one of this file, or a built-in example.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import random
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

WIDTH = 64
Step = Callable[[], Any]


def training(model: nn.Module, forward: Callable[[], Tensor], others: tuple[nn.Module, ...] = ()) -> Step:
    parameters = [p for each in (model, *others) for p in each.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def step() -> None:
        forward().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


class Odd(nn.Module):
    """Takes keywords, returns a tuple with a view, normalises by the batch, draws random numbers; ``scale`` is
    frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = (
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.BatchNorm1d(4 * WIDTH),
            nn.Linear(4 * WIDTH, WIDTH),
        )
        self.scale = nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(False)

    def forward(self, x: Tensor, *, shift: Tensor, gain: float = 1.0) -> tuple[Tensor, Tensor]:
        hidden = F.dropout(F.gelu(self.norm(self.up(self.scale(x)))), 0.2)
        y = x + gain * self.down(torch.tanh(hidden)) + shift
        return y, y.view(-1)[:WIDTH]


class Oddities(nn.Module):
    """Odd blocks, of which one is called twice and one stands under two names."""

    def __init__(self, blocks: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Odd() for _ in range(blocks))
        self.twice = Odd()
        self.blocks.append(self.blocks[1])
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        shift, total = torch.ones(WIDTH), x.new_zeros(())
        for block in (self.twice, *self.blocks, self.twice):
            x, part = block(x, shift=shift, gain=0.5)
            total = total + part.sum()
        found: Tensor = self.head(x).logsumexp(1).mean() + 0.001 * total
        return found


def oddities(batch: int = 512, blocks: int = 4) -> Step:
    model, x = Oddities(blocks), torch.randn(batch, WIDTH)
    return training(model, lambda: model(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.down(F.dropout(F.gelu(self.up(self.norm(x))), 0.1))
        return found


class Tower(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x).square().mean()  # type: ignore[no-any-return]


def mixed(batch: int = 512, layers: int = 4) -> Step:
    """Automatic mixed precision."""
    model, x = Tower(layers), torch.randn(batch, WIDTH)

    def forward() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)  # type: ignore[no-any-return]

    return training(model, forward)


def mixed_shared(batch: int = 512, times: int = 4) -> Step:
    """One block several times under autocast, which casts its parameters once in a forward pass."""
    block, act, x = Block(), nn.Tanh(), torch.randn(batch, WIDTH)
    model = nn.ModuleList([block, act])

    def forward() -> Tensor:
        value = x
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(times):
                value = act(block(value))
        return value.float().square().mean()

    return training(model, forward)


def two_models(batch: int = 512, layers: int = 3) -> Step:
    """Two models, each reached by the name of its variable."""
    first, second, x = Tower(layers), Tower(layers), torch.randn(batch, WIDTH)
    return training(first, lambda: first(x) + second(second.blocks(x)), (second,))


def tower(batch: int = 512, layers: int = 4) -> Step:
    model, x = Tower(layers), torch.randn(batch, WIDTH)
    return training(model, lambda: model(x))


class Own(Block):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.up(x))
        mask = torch.empty_like(hidden).bernoulli_(0.9, generator=self.generator)
        return x + self.down(hidden * mask)  # type: ignore[no-any-return]


class Counting(Block):
    """Computes with how often it has run, a number that Python keeps."""

    runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return x + self.down(F.gelu(self.up(self.norm(x))) * (1 + 0.1 * self.runs))  # type: ignore[no-any-return]


class Drawing(Block):
    """Scales its branch at random, with Python's generator."""

    def forward(self, x: Tensor) -> Tensor:
        scale = random.random()
        return x + self.down(F.gelu(self.up(self.norm(x))) * scale)  # type: ignore[no-any-return]


def row(kind: type[Block], batch: int = 512, layers: int = 4) -> Step:
    model, x = nn.Sequential(*(kind() for _ in range(layers))), torch.randn(batch, WIDTH)
    return training(model, lambda: model(x).square().mean())


own = functools.partial(row, Own)
counting = functools.partial(row, Counting)
drawing = functools.partial(row, Drawing)


def shared(batch: int = 512, times: int = 5) -> Step:
    """One block several times in a row."""
    block, x = Block(), torch.randn(batch, WIDTH)
    model = nn.Sequential(*[block] * times)
    return training(model, lambda: model(x).square().mean())


class Twofold:
    """Holder of a class of the name that PyTorch's has, whose forward pass is another."""

    class Sequential(nn.Sequential):
        def forward(self, value: Tensor) -> Tensor:
            for module in reversed(self):
                value = module(value)
            return value


def perceptron(batch: int = 512, layers: int = 5, kind: type[nn.Sequential] = nn.Sequential) -> Step:
    """A row of layers without blocks, one of them in place."""
    row = [layer for _ in range(layers) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True), nn.Dropout(0.1))]
    model, x = kind(*row), torch.randn(batch, WIDTH)
    return training(model, lambda: model(x).square().mean())


renamed = functools.partial(perceptron, layers=3, kind=Twofold.Sequential)


class Residual(nn.Module):
    """Convolutions, normalizations and one activation in place, which runs twice, beside what the block is given."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.bn1, self.bn2 = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x
        return self.relu(out)  # type: ignore[no-any-return]


def residual(blocks: int = 2, size: int = 16, by_hand: bool = False) -> Step:
    """A residual network, each block of it under a checkpoint if ``by_hand``."""
    model, x = nn.Sequential(*(Residual() for _ in range(blocks))), torch.randn(16, 8, size, size)
    for block in model if by_hand else ():
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    return training(model, lambda: model(x).square().mean())


class Listed(nn.Module):
    """Modules of a list, called by a loop."""

    def __init__(self, layers: int, keeps: bool = False) -> None:
        super().__init__()
        self.keeps = keeps
        self.layers = nn.ModuleList(layer for _ in range(layers) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh()))

    def forward(self, value: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            value = layer(value)
            if self.keeps and number == 1:
                self.seen = value
        return value.square().mean()


def listed(layers: int = 6, keeps: bool = False) -> Step:
    """A model of a list of modules, which ``keeps`` the result of the second."""
    model, x = Listed(layers, keeps), torch.randn(512, WIDTH)
    return training(model, lambda: model(x))


class Remembering(Block):
    """Appends what it is given to a cache, as models that generate do."""

    def forward(self, x: Tensor, past: list[Tensor] | None = None) -> Tensor:
        assert past is not None
        past.append(self.norm(x))
        last = past[0] if len(past) == 1 else torch.cat(past)[-len(x) :]
        return x + self.down(F.gelu(self.up(last)))  # type: ignore[no-any-return]


def remembering(layers: int = 2) -> Step:
    """Each block with a cache of its own, empty before each step."""
    model, x = nn.Sequential(*(Remembering() for _ in range(layers))), torch.randn(256, WIDTH)
    return training(
        model, lambda: functools.reduce(lambda hidden, block: block(hidden, past=[]), model, x).square().mean()
    )


def compiled(layers: int = 4) -> Step:
    """Blocks that torch.compile has compiled."""
    blocks: list[Any] = [torch.compile(Block(), backend="eager") for _ in range(layers)]
    model, x = nn.Sequential(*blocks), torch.randn(256, WIDTH)
    return training(model, lambda: model(x).square().mean())


def two_losses(batch: int = 512, layers: int = 3) -> Step:
    """A model with two heads, each with a backward pass of its own through it."""
    body, one, other = (nn.Sequential(*(Block() for _ in range(count))) for count in (layers, 1, 1))
    optimizer = torch.optim.AdamW([*body.parameters(), *one.parameters(), *other.parameters()])
    x = torch.randn(batch, WIDTH)

    def step() -> None:
        hidden = body(x)
        first, second = one(hidden).square().mean(), other(hidden).abs().mean()
        first.backward(retain_graph=True)
        second.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def functions(batch: int = 64) -> Step:
    """No module at all."""
    weight, x = torch.randn(WIDTH, WIDTH, requires_grad=True), torch.randn(batch, WIDTH)

    def step() -> None:
        torch.tanh(torch.tanh(x @ weight) @ weight).sum().backward()
        weight.grad = None

    return step


def inference(batch: int = 64) -> Step:
    model, x = Tower(2), torch.randn(batch, WIDTH)

    def step() -> Any:
        with torch.no_grad():
            return model(x)

    return step


def models_of(step: Any) -> dict[str, nn.Module]:
    """The models in the variables of a step, and of functions in them."""
    found: dict[str, nn.Module] = {}
    for name, cell in zip(step.__code__.co_freevars, step.__closure__ or (), strict=True):
        value = cell.cell_contents
        if isinstance(value, nn.Module):
            found[name] = value
        elif hasattr(value, "__code__"):
            found |= models_of(value)
    return {name: model for name, model in found.items() if next(model.parameters(), None) is not None}


def run(name: str, settings: dict[str, Any], path: str | None) -> dict[str, Any]:
    torch.manual_seed(0)
    gradients = hashlib.sha256()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step = workload(name)(**settings)
        models, pool = models_of(step), 0
        if path is not None:
            pool = apply(path, models)
        for model in models.values():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(
                        lambda p: gradients.update(p.grad.flatten().view(torch.uint8).numpy().tobytes())
                    )
        torch.manual_seed(1)
        step()
        with record_function("second step"):
            step()
    state = hashlib.sha256()
    for model in models.values():
        for value in model.state_dict().values():
            state.update(value.numpy().tobytes())
    return {
        "peak": peak_of(record) - pool,
        "gradients": gradients.hexdigest(),
        "state": state.hexdigest(),
        "random": hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest(),
    }


def workload(name: str) -> Callable[..., Step]:
    if name in globals():
        return globals()[name]  # type: ignore[no-any-return]
    from tensortide.examples import find

    return find(name).load()


def apply(path: str, models: dict[str, nn.Module]) -> int:
    """Apply the file at ``path`` as its text says. Returns the bytes of its pool."""
    spec = importlib.util.spec_from_file_location("plan_torch", path)
    assert spec is not None
    assert spec.loader is not None
    file = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(file)
    said = (file.__doc__ or "").splitlines()
    for line in (line.strip() for line in said if line.startswith("    apply(")):
        name = line.removeprefix("apply(").partition(",")[0].rstrip(")")
        model = models[name] if name in models else next(iter(models.values()))
        exec(line.replace(f"({name}", "(model", 1), {"apply": file.apply, "model": model})
    assert "tensortide" not in vars(file)
    return int(getattr(file, "POOL_BYTES", 0))


def peak_of(record: profile) -> int:
    """Most bytes that the allocator had handed out during the second step."""
    profiler: Any = record.profiler
    events = profiler.kineto_results.events()
    window = next(event for event in events if event.name() == "second step")
    start, end = window.start_ns(), window.start_ns() + window.duration_ns()
    level = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        if event.start_ns() > end:
            break
        level += event.nbytes()
        peak = level if event.start_ns() < start else max(peak, level)
    return peak


if __name__ == "__main__":
    found = run(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
    sys.stdout.write(json.dumps(found) + "\n")
