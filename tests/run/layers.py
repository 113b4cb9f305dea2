"""Modules over rows of WIDTH numbers: each does something else to memory, to autograd or to the dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

WIDTH = 16


class Apply(nn.Module):
    """A function of a linear layer and the rows."""

    def __init__(self, function: Callable[[nn.Linear, Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.linear = function, nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear, x)


class Recurrent(nn.Module):
    """Rows as sequences of four."""

    def __init__(self, kind: Callable[..., nn.RNNBase], layers: int, both_ways: bool) -> None:
        super().__init__()
        size = WIDTH // 2 if both_ways else WIDTH
        self.inside = kind(WIDTH, size, num_layers=layers, bidirectional=both_ways, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[0] // 4 * 4
        made = self.inside(x[:rows].reshape(-1, 4, WIDTH))[0]
        return torch.cat([made.reshape(rows, WIDTH), x[rows:]])


class Cell(nn.Module):
    """A cell that is unrolled for as many steps as the data says."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.GRUCell(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        state: Tensor = torch.zeros_like(x)
        for _ in range(1 + int(x.detach().abs().sum().item()) % 3):
            state = self.inside(x, state)
        return state


class Attend(nn.Module):
    """Attention among groups of four rows."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.MultiheadAttention(WIDTH, 4, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[0] // 4 * 4
        groups = x[:rows].reshape(-1, 4, WIDTH)
        made = self.inside(groups, groups, groups, need_weights=False)[0]
        return torch.cat([made.reshape(rows, WIDTH), x[rows:]])


class Convolve(nn.Module):
    """Rows as images of four by four."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Conv2d(3, 1, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.inside(x.reshape(-1, 1, 4, 4))
        return x + made.flatten(1)


class Memory(nn.Module):
    """Keeps a running mean of what it has seen in buffers, one of which is replaced in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(WIDTH))
        self.register_buffer("last", torch.zeros(WIDTH))
        self.seen: Tensor
        self.last: Tensor

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.seen.lerp_(x.float().mean(0), 0.5)
            self.last = x.float().mean(0)
        return x - self.seen + self.last.sin()


class Clipped(torch.autograd.Function):
    """The hyperbolic tangent; its gradient is clipped, and needs one tensor that was saved and one that was not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.tanh()
        ctx.save_for_backward(y)
        ctx.scale = x.detach().abs().amax(0, keepdim=True) + 1
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return (gradient * (1 - y * y) / ctx.scale).clamp(-1, 1)


def _residual(linear: nn.Linear, x: Tensor) -> Any:
    return x + F.dropout(F.gelu(linear(x)), 0.2)


def _in_place(linear: nn.Linear, x: Tensor) -> Any:
    y = linear(x)
    y *= 0.5
    y[:, :4] += x[:, 4:8]
    return y.add_(x).relu_()


def _views(linear: nn.Linear, x: Tensor) -> Any:
    windows = x.unfold(1, 4, 2)
    strided = linear.weight.as_strided((WIDTH, 4), (1, WIDTH))
    wide = x[:, :1].expand(-1, WIDTH)
    return linear(x) + F.pad(windows.mean(-1), (0, WIDTH - windows.shape[1])) + wide * strided.sum(1)


def _flat(linear: nn.Linear, x: Tensor) -> Any:
    flat = torch.cat([linear.weight.flatten(), linear.bias])
    weight, bias = flat[:-WIDTH].view(WIDTH, WIDTH), flat[-WIDTH:]
    return F.scaled_dot_product_attention(x[None], (x @ weight + bias).to(x.dtype)[None], x[None])[0]


def _complex(linear: nn.Linear, x: Tensor) -> Any:
    spectrum = torch.fft.rfft(linear(x).float())
    turned = spectrum.conj() * torch.polar(torch.ones(()), spectrum.imag.detach().sum().sin())
    return torch.fft.irfft(turned, n=WIDTH).to(x.dtype) + torch.view_as_real(spectrum)[..., 1].sum(-1, keepdim=True)


def _half(linear: nn.Linear, x: Tensor) -> Any:
    return (x.to(torch.bfloat16) @ linear.weight.to(torch.bfloat16)).to(x.dtype) + x.half().to(x.dtype)


def _custom(linear: nn.Linear, x: Tensor) -> Any:
    y: Tensor = Clipped.apply(linear(x))
    return y + x


def _checkpointed(reentrant: bool) -> Callable[[nn.Linear, Tensor], Tensor]:
    def forward(linear: nn.Linear, x: Tensor) -> Any:
        def inside(rows: Tensor) -> Any:
            return F.dropout(linear(rows), 0.3).relu() + rows

        y: Any = checkpoint(inside, x, use_reentrant=reentrant)
        return y

    return forward


def _branch(linear: nn.Linear, x: Tensor) -> Any:
    if float(x.detach().sum()) > 0:
        return linear(x).sigmoid()
    chosen = x.detach().float().amax(1) > 0.5
    if not bool(chosen.any()):
        return x
    y = x.clone()
    y[chosen] = linear(x[chosen]).to(y.dtype)
    return y


def _scatter(linear: nn.Linear, x: Tensor) -> Any:
    y = linear(x)
    where = torch.randint(0, x.shape[0], (x.shape[0],))
    sums = torch.zeros_like(y).index_put_((where,), y, accumulate=True)
    return sums.scatter_add(1, y.argsort(1), y).index_add(0, where, x.to(y.dtype))


def _many_results(linear: nn.Linear, x: Tensor) -> Any:
    spread, mean = torch.std_mean(linear(x).float(), 1, keepdim=True)
    top, _ = x.topk(4, dim=1)
    first, *others = x.split([4, 4, 8], dim=1)
    return torch.cat([top * first, *others], 1) * (spread + 1) - mean


def _functional(linear: nn.Linear, x: Tensor) -> Any:
    def energy(weight: Tensor, row: Tensor) -> Tensor:
        return (weight @ row).tanh().square().sum()

    rows = x.detach().float()
    slopes = torch.func.vmap(torch.func.grad(energy), in_dims=(None, 0))(linear.weight.detach().float(), rows)
    return linear(x) + slopes.diagonal(dim1=1, dim2=2).to(x.dtype)


def _forward_mode(linear: nn.Linear, x: Tensor) -> Any:
    rows = x.detach().float()
    y, change, *_ = torch.func.jvp(lambda r: r.sin() * r, (rows,), (torch.ones_like(rows),))
    return linear(x) + (y - change).to(x.dtype)


def _penalised(linear: nn.Linear, x: Tensor) -> Any:
    with torch.enable_grad():
        rows = x.detach().float().requires_grad_()
        with torch.autocast("cpu", enabled=False):
            energy = (rows @ linear.weight).tanh().sum()
        (slope,) = torch.autograd.grad(energy, rows, create_graph=True)
    return linear(x) + slope.to(x.dtype)


def _hooked(linear: nn.Linear, x: Tensor) -> Any:
    y = linear(x)
    if y.requires_grad:
        y.register_hook(lambda gradient: gradient * 0.5 + gradient.mean())
    return y.relu()


def _evaluated(linear: nn.Linear, x: Tensor) -> Any:
    with torch.no_grad():
        gate = linear(x).softmax(1)
    with torch.inference_mode():
        shift = linear(x).amax(0).sum().item()
    return x * gate + linear(x) * float(0 < shift < 9)


def _out(linear: nn.Linear, x: Tensor) -> Any:
    with torch.no_grad():
        into = torch.empty(0)
        torch.mul(x.float(), 2.0, out=into)
        torch.add(into, 1.0, out=into)
        low, _ = torch.min(into, 1, keepdim=True, out=(torch.empty(0), torch.empty(0, dtype=torch.long)))
    return linear(x) + (into - low).to(x.dtype) * 0.1


class Symmetric(nn.Module):
    """Weights that are symmetric."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).transpose(-1, -2)


def _symmetric() -> nn.Module:
    layer = nn.Linear(WIDTH, WIDTH)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


def _with_module_hooks() -> nn.Module:
    layer = nn.Linear(WIDTH, WIDTH)
    layer.register_forward_pre_hook(lambda module, given: (given[0] * 0.9,))
    layer.register_forward_hook(lambda module, given, made: made + given[0].detach().to(made.dtype))

    def smaller(module: nn.Module, into: Any, out: Any) -> Any:
        return tuple(None if gradient is None else gradient * 0.9 for gradient in into)

    layer.register_full_backward_hook(smaller)
    return layer


MODULES: dict[str, Callable[[], nn.Module]] = {
    "batch-norm": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()),
    "layer-norm": lambda: nn.Sequential(
        nn.Linear(WIDTH, WIDTH, bias=False), nn.LayerNorm(WIDTH), nn.SiLU(inplace=True)
    ),
    "dropout": lambda: nn.Sequential(nn.Dropout(0.3), nn.Linear(WIDTH, 2 * WIDTH), nn.GLU()),
    "group-norm": lambda: nn.Sequential(nn.GroupNorm(4, WIDTH), nn.Linear(WIDTH, WIDTH), nn.RReLU()),
    "weight-norm": lambda: parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "spectral-norm": lambda: parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH)),
    "symmetric": _symmetric,
    "lstm": lambda: Recurrent(nn.LSTM, 2, False),
    "gru": lambda: Recurrent(nn.GRU, 1, True),
    "rnn": lambda: Recurrent(nn.RNN, 1, False),
    "cell": Cell,
    "attention": Attend,
    "convolution": Convolve,
    "memory": Memory,
    "module-hooks": _with_module_hooks,
}

FUNCTIONS: dict[str, Callable[[nn.Linear, Tensor], Tensor]] = {
    "residual": _residual,
    "in-place": _in_place,
    "views": _views,
    "flat": _flat,
    "complex": _complex,
    "half": _half,
    "custom": _custom,
    "checkpoint": _checkpointed(False),
    "checkpoint-reentrant": _checkpointed(True),
    "branch": _branch,
    "scatter": _scatter,
    "many-results": _many_results,
    "functional": _functional,
    "forward-mode": _forward_mode,
    "penalised": _penalised,
    "hooked": _hooked,
    "evaluated": _evaluated,
    "out": _out,
}

LAYERS: dict[str, Callable[[], nn.Module]] = {
    **{name: (lambda function=function: Apply(function)) for name, function in FUNCTIONS.items()},  # type: ignore[misc]
    **MODULES,
}
"""Every kind of layer by name."""
QUICK = sorted(LAYERS.keys() - {"forward-mode"})
"""Those for which PyTorch compiles nothing."""
