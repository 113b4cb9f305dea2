"""Common parts of all workloads: an optimizer by name, one training step, synthetic inputs.

No code names a device, so ``with torch.device("cuda"): step = gpt2(...)`` builds the whole workload on it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

__all__ = [
    "Parts",
    "Step",
    "as_dtype",
    "choose",
    "classifier",
    "default_dtype",
    "divide",
    "draw_weights",
    "language_model",
    "make_optimizer",
    "next_token_loss",
    "tokens",
    "trained",
    "training_step",
]

Step: TypeAlias = Callable[[], Tensor]
Inputs: TypeAlias = Sequence[Tensor] | Mapping[str, Tensor]
Loss: TypeAlias = Callable[[Any], Tensor]
Parts: TypeAlias = tuple[nn.Module, Inputs, Loss]
"""A model, what it is called with, and the loss of its output."""

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
    inputs: Inputs,
    loss_fn: Loss,
    optimizer: str,
    *,
    lr: float = 1e-3,
    clip: float = 0.0,
    train: bool = True,
) -> Step:
    """One step of ``model`` on ``inputs``: forward, loss, backward, update, gradients dropped.

    ``clip`` above 0 bounds the global norm of the gradients. With ``train=False`` the step is the forward pass
    alone, in evaluation mode and without gradients, and it returns the model's (first) output; inputs that are called
    ``labels``, with which a model computes its loss itself, are left out.
    """
    updater = make_optimizer(optimizer, model.parameters(), lr)
    model.train(train)
    if not train and isinstance(inputs, Mapping):
        inputs = {name: given for name, given in inputs.items() if name != "labels"}

    def forward() -> Any:
        return model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)

    @torch.no_grad()
    def inference_step() -> Tensor:
        output = forward()
        return output if isinstance(output, Tensor) else output[0]

    def step() -> Tensor:
        loss = loss_fn(forward())
        loss.backward()
        if clip > 0:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        updater.step()
        updater.zero_grad()
        return loss

    return step if train else inference_step


def trained(
    lr: float, clip: float = 0.0, optimizer: str = "sgd"
) -> Callable[[Callable[..., Parts]], Callable[..., Step]]:
    """Decorate a function that makes Parts: it becomes a workload, the training step of these.

    The workload has two more hyperparameters, ``optimizer`` (whose default is given here) and ``train``.
    """

    def decorate(parts: Callable[..., Parts]) -> Callable[..., Step]:
        @functools.wraps(parts)
        def workload(*args: Any, optimizer: str = optimizer, train: bool = True, **settings: Any) -> Step:
            return training_step(*parts(*args, **settings), optimizer, lr=lr, clip=clip, train=train)

        own, added = (inspect.signature(f, follow_wrapped=False).parameters for f in (parts, workload))
        both = [*own.values(), added["optimizer"], added["train"]]
        vars(workload)["__signature__"] = inspect.Signature(both)
        return workload

    return decorate


def classifier(model: nn.Module, inputs: Tensor, classes: int, *each: int) -> Parts:
    """Parts that learn random labels of ``inputs``: one for every row, or of the shape ``each`` for every row."""
    labels = torch.randint(0, classes, (len(inputs), *each))
    return model, [inputs], lambda logits: F.cross_entropy(logits, labels)


def language_model(
    model: nn.Module, vocab: int, *shape: int, padding: int = -1
) -> tuple[nn.Module, list[Tensor], Loss]:
    """Parts that learn to predict random tokens from others; ``padding`` has no loss."""
    ids, targets = tokens(vocab, *shape), tokens(vocab, *shape)
    return model, [ids], lambda logits: next_token_loss(logits, targets, padding)


def draw_weights(model: nn.Module) -> None:
    """Initialize as language models do: normal weights of deviation 0.02, biases 0."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def tokens(vocab: int, *shape: int) -> Tensor:
    """Random token ids below ``vocab``."""
    return torch.randint(0, vocab, shape)


def next_token_loss(logits: Tensor, targets: Tensor, padding: int = -1) -> Tensor:
    """Mean cross entropy of ``logits`` (..., vocab) over the ``targets`` (...) that are not ``padding``."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=padding)
