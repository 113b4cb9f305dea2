"""Times of real batches of a network of layers: PyTorch trains it, each layer on its own device.

The modules are made of the layers themselves, so placements need no other names. Biases, normalisations and activations
run where the description names them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tensortide.errors import PlacementError
from tensortide.placements.genes import OnDevices
from tensortide.placements.nets.net import Net
from tensortide.placements.nets.sharding import expand
from tensortide.timing.paleo import Layer
from tensortide.timing.paleo.layers import Entry

CLASSES = 1000
"""Labels are drawn of as many as the last layer has outputs, and at most so many."""


class _LayerModule(nn.Module):
    """One layer. Tensors are NCHW, shapes of layers NHWC."""

    def __init__(self, layer: Layer, entry: Entry) -> None:
        super().__init__()
        self.layer, self.entry = layer, entry
        self.product: nn.Module | None = None
        self.normalizer: nn.Module | None = None
        if layer.kind == "Convolution" and layer.window is not None:
            window = layer.window
            self.product = nn.Conv2d(*window.channels, window.size, window.strides)
        elif layer.kind == "InnerProduct":
            columns = layer.params // layer.output[-1] - 1
            self.product = nn.Linear(columns, layer.output[-1])
        if entry.normalizer_fn and len(layer.output) == 4:
            self.normalizer = nn.BatchNorm2d(layer.output[3])

    def forward(self, *inputs: Tensor) -> Tensor:
        made = self._made(*inputs)
        made = made if self.normalizer is None else self.normalizer(made)
        return functional.relu(made) if self.entry.activation_fn else made

    def _made(self, *inputs: Tensor) -> Tensor:
        x, layer = inputs[0], self.layer
        match layer.kind:
            case "Convolution" | "Pooling" | "AvgPool":
                return self._windowed(x)
            case "InnerProduct":
                assert self.product is not None
                product: Tensor = self.product(x.flatten(1))
                return product
            case "Dropout":
                return functional.dropout(x)
            case "Concatenate":
                return torch.cat(inputs, (0, 2, 3, 1)[self.entry.dim] if x.ndim == 4 else self.entry.dim)
            case "Elementwise":
                return torch.stack(inputs).sum(0) if len(inputs) > 2 else inputs[0] + inputs[-1]
            case "Softmax":
                return functional.log_softmax(x.flatten(1), 1)
            case _:
                return x

    def _windowed(self, x: Tensor) -> Tensor:
        """Slide the window; padding that is not the same on both sides goes behind."""
        window = self.layer.window
        assert window is not None
        most = float("-inf") if self.layer.kind == "Pooling" else 0.0
        sides: list[int] = []
        for axis in (1, 0):
            spare = (self.layer.output[1 + axis] - 1) * window.strides[axis] + window.size[axis] - x.shape[2 + axis]
            sides += [window.pad[axis], max(0, spare - window.pad[axis])]
        x = functional.pad(x, sides, value=most) if any(sides) else x
        if self.product is not None:
            made: Tensor = self.product(x)
            return made
        pool = functional.max_pool2d if self.layer.kind == "Pooling" else functional.avg_pool2d
        return pool(x, window.size, window.strides)


KINDS = frozenset(
    ("Input", "Convolution", "Pooling", "AvgPool", "InnerProduct", "Dropout", "Concatenate", "Elementwise", "Softmax")
)
"""Kinds of layers that are trained."""


def torch_device(number: int, names: Mapping[str, str]) -> torch.device:
    """The device of PyTorch for the device ``number``: as ``names`` says, else 0 is the CPU and n the GPU n - 1.

    Raises PlacementError for one that this machine lacks.
    """
    name = names.get(str(number), f"cuda:{number - 1}" if number else "cpu")
    try:
        found = torch.device(name)
    except RuntimeError:
        raise PlacementError(f"device_map: PyTorch has no device called {name!r}.") from None
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise PlacementError(
            f"device {number} of the placement is {name}, and this machine has {torch.cuda.device_count()} GPUs: "
            f'name another device in device_map of benchmarking_function, as {{"{number}": "cpu"}}.'
        )
    return found


def check_trains(net: Net) -> None:
    """Raise PlacementError for a network with layers that cannot be trained here."""
    for name, entry in net.entries.items():
        if entry.type not in KINDS:
            raise PlacementError(f"{net.name}: layer {name!r} is a {entry.type}: only {', '.join(sorted(KINDS))} run.")


def batch_ms(
    net: Net,
    placement: Mapping[str, OnDevices],
    *,
    batch: int,
    batches: int,
    dropped: int,
    rate: float,
    names: Mapping[str, str],
    limit_bytes: float | None = None,
) -> float | None:
    """Train ``net`` on random images for ``batches`` batches and return the mean time, ms, of all but the first
    ``dropped`` ones, which are fewer; None where memory does not suffice (of a GPU: ``limit_bytes``).

    A batch is forward pass, loss, backward pass and SGD at ``rate``; copying the images is left out. A convolution on
    several devices is trained as shards on each. Raises PlacementError for a net without weights.
    """
    net, numbers = expand(net, [of if isinstance(of, tuple) else (of,) for of in map(placement.__getitem__, net.order)])
    devices = {name: torch_device(number, names) for name, number in zip(net.order, numbers, strict=True)}
    gpus = {device for device in devices.values() if device.type == "cuda"}
    for gpu in gpus:
        whole = torch.cuda.get_device_properties(gpu).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, (limit_bytes or whole) / whole), gpu)
    try:
        return _trained(net, devices, batch, batches, dropped, rate)
    except torch.cuda.OutOfMemoryError:
        return None
    finally:
        for _ in gpus:
            torch.cuda.empty_cache()


def _trained(
    net: Net, devices: Mapping[str, torch.device], batch: int, batches: int, dropped: int, rate: float
) -> float:
    by_name = {layer.name: layer for layer in net.layers(batch)}
    modules = {name: _LayerModule(by_name[name], net.entries[name]).to(devices[name]) for name in net.order}
    weights = [weight for module in modules.values() for weight in module.parameters()]
    if not weights:
        raise PlacementError(f"{net.name or 'the network'} has no layer with weights: there is nothing to train")
    optimizer = torch.optim.SGD(weights, lr=rate)
    read = {parent for layer in by_name.values() for parent in layer.parents}
    ends = [name for name in net.order if name not in read]
    times: list[float] = []
    images = {
        name: torch.randn(_nchw(layer.output), device=devices[name])
        for name, layer in by_name.items()
        if not layer.parents
    }
    labels = {end: torch.randint(min(CLASSES, by_name[end].output[-1]), (batch,), device=devices[end]) for end in ends}
    for _ in range(batches):
        _synchronize(devices)
        began = time.perf_counter()
        made = dict(images)
        for name in net.order:
            if name not in made:
                inputs = [made[parent].to(devices[name]) for parent in by_name[name].parents]
                made[name] = modules[name](*inputs)
        losses = [functional.cross_entropy(made[end].flatten(1), labels[end]) for end in ends]
        optimizer.zero_grad()
        torch.autograd.backward(losses)
        optimizer.step()
        _synchronize(devices)
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.fmean(times[dropped:])


def _synchronize(devices: Mapping[str, torch.device]) -> None:
    for device in {device for device in devices.values() if device.type == "cuda"}:
        torch.cuda.synchronize(device)


def _nchw(shape: Sequence[int]) -> tuple[int, ...]:
    return (shape[0], shape[3], shape[1], shape[2]) if len(shape) == 4 else tuple(shape)
