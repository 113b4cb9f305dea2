"""Operations as Liger's scripts measure them: forward and backward, with the gradients of the call before resident."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.published.images import Step


def _call(function: Callable[..., Any], gradient: Any, *inputs: Any, beside: Any = None) -> Step:
    """The step of a script of Liger's: given a gradient it retains the graph. ``beside`` is what else it holds: each
    makes its own module and the ordinary one, whichever it measures."""

    def step() -> Any:
        function(*inputs).backward(gradient, retain_graph=gradient is not None)
        return beside

    return step


def _leaf(*shape: int, dtype: str = "float32") -> Any:
    return torch.randn(*shape, dtype=getattr(torch, dtype.removeprefix("torch.")), device="cuda", requires_grad=True)


def _gradient_like(x: Any) -> Any:
    """The gradient that is made once, beside the input."""
    return torch.randn_like(x, requires_grad=False)


def cross_entropy(V: int, B: int, T: int) -> Step:  # noqa: N803
    loss, target = torch.nn.CrossEntropyLoss(), torch.randint(V, (B * T,), device="cuda")
    return _call(loss, None, _leaf(B * T, V), target)


def layer_norm(N: int, M: int, dtype: str, eps: float) -> Step:  # noqa: N803
    x = _leaf(M, N, dtype=dtype)
    own, ordinary = (torch.nn.LayerNorm(N, eps=eps).cuda() for _ in range(2))
    return _call(ordinary, _gradient_like(x), x, beside=own)


def _llama_norm(width: int, eps: float) -> Any:
    class Norm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(width))

        def forward(self, x: Any) -> Any:
            wide = x.to(torch.float32)
            wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
            return self.weight * wide.to(x.dtype)

    return Norm().cuda()


def rms_norm(H: int, M: int, dtype: str, eps: float) -> Step:  # noqa: N803
    x = _leaf(M, H, dtype=dtype)
    return _call(_llama_norm(H, eps), _gradient_like(x), x, beside=_llama_norm(H, eps))


def _gated(width: int, inner: int, dtype: str) -> Any:
    class Gated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = torch.nn.Linear(width, inner, bias=False)
            self.up = torch.nn.Linear(width, inner, bias=False)
            self.down = torch.nn.Linear(inner, width, bias=False)

        def forward(self, x: Any) -> Any:
            return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))

    return Gated().cuda().to(getattr(torch, dtype.removeprefix("torch.")))


def swiglu(T: int, B: int, hidden_size: int, dtype: str, intermediate_size: int, hidden_act: str) -> Step:  # noqa: N803
    x = _leaf(B, T, hidden_size, dtype=dtype)
    return _call(_gated(hidden_size, intermediate_size, dtype), _gradient_like(x), x)


def fused_linear_cross_entropy(BT: int, H: int, V: int, mode: str, dtype: str) -> Step:  # noqa: N803
    x, target = _leaf(BT, H, dtype=dtype), torch.randint(V, (BT,), device="cuda")
    own, head = (torch.nn.Linear(H, V, bias=False, device="cuda", dtype=x.dtype) for _ in range(2))
    return _call(lambda x: torch.nn.functional.cross_entropy(head(x), target), None, x, beside=own)


KERNELS: dict[tuple[str, str], Callable[..., Step]] = {
    ("cross_entropy", "huggingface"): cross_entropy,
    ("layer_norm", "huggingface"): layer_norm,
    ("rms_norm", "huggingface"): rms_norm,
    ("swiglu", "huggingface"): swiglu,
    ("fused_linear_cross_entropy", "huggingface"): fused_linear_cross_entropy,
}
"""Operations that are ordinary PyTorch, by kernel and provider; parameters are the swept size and the row's config."""
