"""A model and its inputs as a step: forward, and with a loss backward and the optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tensortide.errors import WorkloadError
from tensortide.recorder.torch_compat import pytree

Loss = str | Callable[..., Any] | None
_LEARNING_RATE = 1e-3


def step_of_pair(model: torch.nn.Module, inputs: Any, loss: Loss, optimizer: str | None) -> Callable[[], Any]:
    """The step of ``model`` on ``inputs``. Raises WorkloadError for a loss or optimizer it cannot make."""
    args, kwargs = _arguments(inputs)
    if loss is None:
        if optimizer is not None:
            raise WorkloadError("an optimizer needs a loss: give loss='sum', 'mean', 'output' or a function")

        def infer() -> Any:
            with torch.no_grad():
                return model(*args, **kwargs)

        return infer
    reduce = _loss(loss)
    update = None if optimizer is None else _optimizer(optimizer, model)

    def step() -> Any:
        value = reduce(model(*args, **kwargs))
        value.backward()
        if update is not None:
            update.step()
            update.zero_grad()
        else:
            model.zero_grad()
        return value

    return step


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if inputs is None:
        return (), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    return (inputs,), {}


def _loss(loss: str | Callable[..., Any]) -> Callable[[Any], torch.Tensor]:
    if callable(loss):
        return loss
    if loss == "output":
        return _own_loss
    if loss in ("sum", "mean"):
        return lambda output: _reduced(output, loss)
    raise WorkloadError(f"unknown loss {loss!r}: give 'sum', 'mean', 'output' or a function of the model's output")


def _own_loss(output: Any) -> torch.Tensor:
    if isinstance(output, torch.Tensor) and output.dim() == 0:
        return output
    value = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if not isinstance(value, torch.Tensor):
        raise WorkloadError(f"the model's output ({type(output).__name__}) has no loss: pass labels, or another loss")
    return value


def _reduced(output: Any, loss: str) -> torch.Tensor:
    leaves = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not leaves:
        raise WorkloadError("the model's output has no tensor that requires a gradient")
    total: torch.Tensor = sum((leaf.sum() if loss == "sum" else leaf.mean()) for leaf in leaves)  # type: ignore[assignment]
    return total


def _optimizer(name: str, model: torch.nn.Module) -> Any:
    kinds: dict[str, Any] = {
        kind.lower(): item
        for kind, item in vars(torch.optim).items()
        if inspect.isclass(item) and issubclass(item, torch.optim.Optimizer) and item is not torch.optim.Optimizer
    }
    if name.lower() not in kinds:
        raise WorkloadError(f"unknown optimizer {name!r}: one of {', '.join(sorted(kinds))}")
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return kinds[name.lower()](trainable, lr=_LEARNING_RATE)
