"""The one-op programs of the reference data, as steps: each builds its inputs and returns what to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[], Any]
PROGRAMS: dict[str, Callable[[], Step]] = {}


def program(name: str) -> Callable[[Callable[[], Step]], Callable[[], Step]]:
    def register(build: Callable[[], Step]) -> Callable[[], Step]:
        PROGRAMS[name] = build
        return build

    return register


def tokens() -> torch.Tensor:
    return torch.randn(2, 64, 64)


def square() -> torch.Tensor:
    return torch.randn(64, 64)


def image() -> torch.Tensor:
    return torch.randn(2, 16, 16, 16)


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(2, 64, 4, 16).transpose(1, 2)


def of_tokens(function: Callable[[torch.Tensor, torch.Tensor], Any]) -> Callable[[], Step]:
    """A program that is a function of x (2,64,64) and w (64,64)."""

    def build() -> Step:
        x, w = tokens(), square()
        return lambda: function(x, w)

    return build


def of_module(make: Callable[[], nn.Module], make_input: Callable[[], torch.Tensor], *, train: bool = False) -> Any:
    def build() -> Step:
        module, x = make().train(train), make_input()

        def step() -> Any:
            with torch.no_grad():
                return module(x)

        return step

    return build


for name, function in {
    "F.linear": F.linear,
    "x @ w": lambda x, w: x @ w,
    "torch.matmul 4-D": lambda x, w: heads(x) @ heads(x).transpose(-1, -2),
    "torch.bmm": lambda x, w: torch.bmm(x, x.transpose(1, 2)),
    "torch.mm": lambda x, w: torch.mm(x[0], w),
    "torch.addmm": lambda x, w: torch.addmm(w, x[0], w),
    "torch.mv": lambda x, w: torch.mv(w, x[0, 0]),
    "torch.dot": lambda x, w: torch.dot(x[0, 0], x[0, 1]),
    "torch.baddbmm": lambda x, w: torch.baddbmm(x[:, :, :64], x, x.transpose(1, 2)),
    "einsum bhid,bhjd": lambda x, w: torch.einsum("bhid,bhjd->bhij", heads(x), heads(x)),
    "einsum bid,dk": lambda x, w: torch.einsum("bid,dk->bik", x, w),
    "F.sdpa (default)": lambda x, w: F.scaled_dot_product_attention(heads(x), heads(x), heads(x)),
    "F.sdpa causal": lambda x, w: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), is_causal=True),
    "F.sdpa GQA": lambda x, w: F.scaled_dot_product_attention(
        heads(x), heads(x)[:, :1], heads(x)[:, :1], enable_gqa=True
    ),
    "cdist (euclid, mm)": lambda x, w: torch.cdist(x, x),
    "torch.fft.fft (5NlogN/2)": lambda x, w: torch.fft.fft(x).abs(),
    "elementwise mul+add": lambda x, w: x * 2 + x,
    "softmax (5/elt)": lambda x, w: torch.softmax(x, -1),
    "GELU": lambda x, w: F.gelu(x),
}.items():
    program(name)(of_tokens(function))

for name, make, make_input in (
    ("Linear(3-D)", lambda: nn.Linear(64, 64), tokens),
    ("Conv2d 3x3", lambda: nn.Conv2d(16, 32, 3, padding=1), image),
    ("Conv2d depthwise", lambda: nn.Conv2d(16, 16, 3, padding=1, groups=16), image),
    ("Conv2d groups=4", lambda: nn.Conv2d(16, 32, 3, padding=1, groups=4), image),
    ("Conv2d dilated,same-string", lambda: nn.Conv2d(16, 32, 3, padding="same", dilation=2), image),
    ("ConvTranspose2d s2", lambda: nn.ConvTranspose2d(16, 32, 4, 2, 1), image),
    ("ConvTranspose2d 16->16 g4", lambda: nn.ConvTranspose2d(16, 16, 4, 2, 1, groups=4), image),
    ("Conv1d", lambda: nn.Conv1d(16, 32, 3, padding=1), lambda: torch.randn(2, 16, 100)),
    ("Conv3d", lambda: nn.Conv3d(4, 8, 3, padding=1), lambda: torch.randn(2, 4, 8, 8, 8)),
    ("LSTM 1-layer", lambda: nn.LSTM(64, 64, batch_first=True), tokens),
    ("LSTM bidir 2-layer", lambda: nn.LSTM(64, 64, 2, bidirectional=True, batch_first=True), tokens),
    ("GRU 1-layer", lambda: nn.GRU(64, 64, batch_first=True), tokens),
    ("LayerNorm (5/elt)", lambda: nn.LayerNorm(64), tokens),
    ("BatchNorm2d eval", lambda: nn.BatchNorm2d(16), image),
    ("interpolate bilinear", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), image),
    (
        "TransformerEncoderLayer eval",
        lambda: nn.TransformerEncoderLayer(64, 4, dim_feedforward=128, batch_first=True),
        tokens,
    ),
    ("Embedding", lambda: nn.Embedding(100, 64), lambda: torch.randint(0, 100, (2, 64))),
):
    program(name)(of_module(make, make_input))


class Sequence(nn.Module):
    """Modules called one after the other, as a function says."""

    def __init__(self, call: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.call = call
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: torch.Tensor) -> Any:
        return self.call(self, x)


def attend(self: Any, x: torch.Tensor) -> Any:
    return self.attention(x, x, x, need_weights=False)[0]


def attention() -> nn.Module:
    return Sequence(attend, attention=nn.MultiheadAttention(64, 4, batch_first=True))


program("MHA train")(of_module(attention, tokens, train=True))
program("MHA eval,no_grad")(of_module(attention, tokens))
program("Bilinear")(of_module(lambda: Sequence(lambda self, x: self.b(x, x), b=nn.Bilinear(64, 64, 8)), tokens))
program("module called 5x")(
    of_module(lambda: Sequence(lambda self, x: self.a(self.a(self.a(self.a(self.a(x))))), a=nn.Linear(64, 64)), tokens)
)


@program("shared module (a is b)")
def shared() -> Step:
    linear, x = nn.Linear(64, 64), tokens()
    both = Sequence(lambda self, x: self.b(self.a(x)), a=linear, b=linear)
    return lambda: both(x)


@program("LSTMCell loop")
def cells() -> Step:
    cell, x = nn.LSTMCell(64, 64), tokens()

    def step() -> Any:
        state = None
        for t in range(8):
            state = cell(x[:, t], state)
        return state

    return step


@program("F.conv2d")
def functional_convolution() -> Step:
    x, w = image(), torch.randn(32, 16, 3, 3)
    return lambda: F.conv2d(x, w, padding=1)


@program("unfold+matmul")
def unfolded() -> Step:
    x, w = image(), torch.randn(32, 144)
    return lambda: w @ F.unfold(x, 3, padding=1)


@program("MoE index loop top1")
def experts() -> Step:
    x, router = tokens(), nn.Linear(64, 4, bias=False)
    layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def step() -> Any:
        rows = x.reshape(-1, 64)
        chosen = router(rows).argmax(-1)
        out = torch.zeros_like(rows)
        for i, expert in enumerate(layers):
            index = (chosen == i).nonzero().squeeze(-1)
            out[index] = expert(rows[index])
        return out

    return step


@program("grouped_mm (4 experts)")
def grouped() -> Step:
    x, w = tokens().reshape(128, 64).bfloat16(), torch.randn(4, 64, 64).bfloat16()
    offsets = torch.tensor([32, 64, 96, 128], dtype=torch.int32)
    return lambda: torch._grouped_mm(x, w, offs=offsets)


@program("quantized dynamic Linear int8")
def quantized() -> Step:
    from torch.ao.quantization import quantize_dynamic

    model = nn.Sequential(nn.Linear(64, 64)).eval()
    made, x = quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8), tokens()
    return lambda: made(x)
