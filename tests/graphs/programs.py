"""Steps that no built-in example has: what ``scripts/make_graphs.py`` captures beside those."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint


def perceptron(width: int, layers: int = 2) -> nn.Sequential:
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*parts)


def two_optimizers(batch: int = 8, width: int = 12) -> Callable[[], None]:
    """A generator and a discriminator, each with an optimizer of its own."""
    generator, discriminator = perceptron(width), perceptron(width)
    of_generator = torch.optim.Adam(generator.parameters())
    of_discriminator = torch.optim.SGD(discriminator.parameters(), lr=0.1, momentum=0.9)
    real = torch.randn(batch, width)

    def step() -> None:
        made = generator(torch.randn(batch, width))
        of_discriminator.zero_grad()
        (discriminator(made.detach()).mean() - discriminator(real).mean()).backward()
        of_discriminator.step()
        of_generator.zero_grad()
        (-discriminator(made).mean()).backward()
        of_generator.step()

    return step


def accumulated(batch: int = 8, width: int = 12, parts: int = 4) -> Callable[[], None]:
    """Gradients of several small batches are added up before the update."""
    model, inputs = perceptron(width), torch.randn(parts, batch, width)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        for part in inputs:
            model(part).square().mean().backward()
        optimizer.step()

    return step


def recomputed(batch: int = 8, width: int = 12, layers: int = 3) -> Callable[[], None]:
    """The program itself computes the insides of its blocks again in the backward pass."""
    blocks = nn.ModuleList(perceptron(width) for _ in range(layers))
    optimizer, x = torch.optim.SGD(blocks.parameters(), lr=0.1), torch.randn(batch, width)

    def step() -> None:
        optimizer.zero_grad()
        y = x
        for block in blocks:
            y = checkpoint(block, y, use_reentrant=False)
        y.sum().backward()
        optimizer.step()

    return step


def mixed_precision(batch: int = 8, width: int = 16) -> Callable[[], None]:
    """Products in bfloat16, parameters in float32."""
    model, x = perceptron(width), torch.randn(batch, width)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(x.device.type, torch.bfloat16):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()

    return step


def conditional(batch: int = 4, width: int = 6) -> Callable[[], Tensor]:
    """One of two branches, by data: with a product, or without."""
    model, x = nn.Linear(width, width), torch.randn(batch, width)
    return lambda: torch.cond(model(x).sum() > 0, lambda y: y @ y.T, lambda y: y[:, :batch] + 1, (model(x),))


def loop(width: int = 6) -> Callable[[], object]:
    """A loop whose body the Graph has once."""
    x = torch.randn(width, width)
    return lambda: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y @ y), (torch.tensor(0), x))


def collectives(batch: int = 4, width: int = 16) -> Callable[[], None]:
    """Data parallel training, as one of several processes."""
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    model = nn.parallel.DistributedDataParallel(perceptron(width))
    optimizer, x = torch.optim.Adam(model.parameters()), torch.randn(batch, width)

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


def two_devices(batch: int = 8, width: int = 16) -> Callable[[], None]:
    """A batch and an average of parameters on the host, the model on a GPU."""
    model, x, target = perceptron(width).to("cuda"), torch.randn(batch, width), torch.randn(batch, width)
    averages = [torch.zeros(parameter.shape) for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(model(x.to("cuda")), target.to("cuda")).backward()
        optimizer.step()
        with torch.no_grad():
            for average, parameter in zip(averages, model.parameters(), strict=True):
                average.lerp_(parameter.to("cpu"), 0.1)

    return step
