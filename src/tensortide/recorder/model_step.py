"""A model and its inputs as a step: forward, and with a loss backward and the optimizer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from tensortide.errors import WorkloadError
from tensortide.recorder.surroundings import alone
from tensortide.recorder.torch_compat import pytree

Loss = str | Callable[..., Any] | None
Optimizer = str | Callable[..., Any] | None
_LEARNING_RATE = 1e-3
_LOSSES = "'sum', 'mean', 'output', 'auto' or a function"
_OWN = "the model's own loss"
_WORDS = {"sum": "the sum of the output", "mean": "the mean of the output", "output": _OWN, "auto": _OWN}
_CHOSEN = f"{_WORDS['mean']} (give another by loss=)"


def step_of_pair(model: torch.nn.Module, inputs: Any, loss: Loss, optimizer: Optimizer) -> Callable[[], Any]:
    """The step of ``model`` on ``inputs``; with an optimizer the workload that makes it, from stand-ins of parameters,
    and returns the step. Raises WorkloadError for a loss or optimizer it cannot make."""
    args, kwargs = _arguments(inputs)
    if loss is None:
        if optimizer is not None:
            raise WorkloadError(f"an optimizer needs a loss: give loss={_LOSSES}")

        def infer() -> Any:
            with torch.no_grad():
                return model(*args, **kwargs)

        return infer
    reduce = _loss(loss)
    if optimizer is not None:
        return _training(lambda: reduce(model(*args, **kwargs)), optimizer, model)

    def step() -> Any:
        value = reduce(model(*args, **kwargs))
        value.backward()
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
    if loss == "auto":
        return lambda output: _reduced(output, "mean") if _loss_of(output) is None else _own_loss(output)
    if loss in ("sum", "mean"):
        return lambda output: _reduced(output, loss)
    raise WorkloadError(
        f"unknown loss {loss!r}: give {_LOSSES} of the model's output that returns a tensor, as "
        "loss=lambda output: torch.nn.functional.cross_entropy(output, labels)"
    )


class NotedLoss:
    """The loss that ``loss`` names; ``words`` say what it was, once it was taken."""

    def __init__(self, loss: str | Callable[..., Any]) -> None:
        self._auto, self._of = loss == "auto", _loss(loss)
        name = getattr(loss, "__name__", type(loss).__name__)
        self.words = _WORDS[loss] if isinstance(loss, str) else f"the given function {name}"

    def __call__(self, output: Any) -> torch.Tensor:
        if self._auto:
            self.words = _CHOSEN if _loss_of(output) is None else _OWN
        return self._of(output)


def _own_loss(output: Any) -> torch.Tensor:
    if (value := _loss_of(output)) is None:
        raise WorkloadError(f"the model's output ({type(output).__name__}) has no loss: pass labels, or another loss")
    return value


def _loss_of(output: Any) -> torch.Tensor | None:
    """The loss that is, or is in, the output of a model; None if there is none."""
    if isinstance(output, torch.Tensor):
        return output if output.dim() == 0 else None
    value = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return value if isinstance(value, torch.Tensor) else None


def _reduced(output: Any, loss: str) -> torch.Tensor:
    leaves = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not leaves:
        raise WorkloadError("the model's output has no tensor that requires a gradient")
    total: torch.Tensor = sum((leaf.sum() if loss == "sum" else leaf.mean()) for leaf in leaves)  # type: ignore[assignment]
    return total


def is_model(target: object) -> bool:
    """Tell a model from anything else."""
    return isinstance(target, torch.nn.Module)


@contextmanager
def in_mode(model: torch.nn.Module, *, training: bool) -> Iterator[None]:
    """``model`` in the mode for training or for inference, for as long as the context lasts: where it is in it already,
    its modules stay as they are."""
    with alone():
        modes = {module: module.training for module in model.modules()}
        try:
            if model.training != training:
                model.train(training)
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode


def _training(loss: Callable[[], torch.Tensor], optimizer: Any, model: torch.nn.Module) -> Callable[[], Any]:
    made = _optimizer(optimizer)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise WorkloadError("the model has no parameter that requires a gradient: nothing is trained")

    def workload() -> Callable[[], Any]:
        update = made([parameter for parameter in model.parameters() if parameter.requires_grad])
        if not (callable(getattr(update, "step", None)) and callable(getattr(update, "zero_grad", None))):
            raise WorkloadError(
                f"the function for an optimizer returned {'None' if update is None else f'a {type(update).__name__}'}: "
                "it returns the optimizer that it makes of the parameters"
            )

        def step() -> Any:
            value = loss()
            value.backward()
            update.step()
            update.zero_grad()
            return value

        return step

    return workload


def _optimizer(name: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function of parameters that makes an optimizer."""
    if callable(name):
        return name
    if not isinstance(name, str):
        raise WorkloadError(f"an optimizer is a name or a function of parameters, not a {type(name).__name__}")
    kinds: dict[str, Any] = {
        kind.lower(): item
        for kind, item in vars(torch.optim).items()
        if inspect.isclass(item) and issubclass(item, torch.optim.Optimizer) and item is not torch.optim.Optimizer
    }
    if name.lower() not in kinds:
        raise WorkloadError(f"unknown optimizer {name!r}: one of {', '.join(sorted(kinds))}")
    return functools.partial(kinds[name.lower()], lr=_LEARNING_RATE)
