"""Common parts of all workloads: an optimizer by name, one training step, synthetic inputs.

No code names a device, so ``with torch.device("cuda"): step = gpt2(...)`` builds the whole workload on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

__all__ = [
    "Step",
    "as_dtype",
    "choose",
    "default_dtype",
    "divide",
    "make_optimizer",
    "next_token_loss",
    "tokens",
    "training_step",
]

Step: TypeAlias = Callable[[], Tensor]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def choose(what: str, name: str, names: Iterable[str]) -> str:
    """``name`` if it is one of ``names``; a ValueError that lists them if not."""
    known = list(names)
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}; choose one of: {', '.join(known)}")
    return name


def divide(what: str, total: int, parts_name: str, parts: int) -> int:
    """``total / parts`` where that is a whole number; a ValueError with both names if not."""
    if total % parts:
        raise ValueError(f"{what}={total} cannot be divided by {parts_name}={parts}")
    return total // parts


def as_dtype(name: str) -> torch.dtype:
    """The floating-point type of that name."""
    return _DTYPES[choose("dtype", name, _DTYPES)]


@contextmanager
def default_dtype(name: str) -> Iterator[None]:
    """Floating-point tensors are made in this type: ``Module.to`` afterwards is refused by fake parameters."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(as_dtype(name))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def make_optimizer(name: str, params: Iterable[nn.Parameter], lr: float) -> Optimizer:
    """``sgd`` (momentum 0.9), ``adam`` or ``adamw``, each with PyTorch's other defaults."""
    choose("optimizer", name, ("sgd", "adam", "adamw"))
    if name == "sgd":
        return SGD(params, lr=lr, momentum=0.9)
    return Adam(params, lr=lr) if name == "adam" else AdamW(params, lr=lr)


def training_step(
    model: nn.Module,
    inputs: Sequence[Tensor] | Mapping[str, Tensor],
    loss_fn: Callable[[Any], Tensor],
    optimizer: str,
    *,
    lr: float = 1e-3,
    clip: float = 0.0,
    train: bool = True,
) -> Step:
    """One step of ``model`` on ``inputs``: forward, loss, backward, update, gradients dropped.

    ``clip`` above 0 bounds the global norm of the gradients. With ``train=False`` the step is the forward pass
    alone, in evaluation mode and without gradients, and it returns the model's (first) output.
    """
    updater = make_optimizer(optimizer, model.parameters(), lr)
    model.train(train)

    def forward() -> Any:
        return model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)

    @torch.no_grad()
    def inference_step() -> Tensor:
        output = forward()
        first: Tensor = output if isinstance(output, Tensor) else output[0]
        return first

    def step() -> Tensor:
        loss = loss_fn(forward())
        loss.backward()
        if clip > 0:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        updater.step()
        updater.zero_grad()
        return loss

    return step if train else inference_step


def tokens(vocab: int, *shape: int) -> Tensor:
    """Random token ids below ``vocab``."""
    return torch.randint(0, vocab, shape)


def next_token_loss(logits: Tensor, targets: Tensor, padding: int = -1) -> Tensor:
    """Mean cross entropy of ``logits`` (..., vocab) over the ``targets`` (...) that are not ``padding``."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=padding)
