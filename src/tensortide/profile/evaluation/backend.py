"""PyTorch as the Backend that metrics ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from tensortide.cost import ModelSizes
from tensortide.errors import MetricError
from tensortide.graph.model import Graph
from tensortide.profile.evaluation import graphs, modes, sampling
from tensortide.profile.evaluation.calls import Arguments, Call
from tensortide.profile.evaluation.sampling import Distribution, Range


class TorchBackend:
    """Answers of PyTorch to what metrics ask; see ``tensortide.measures.backend.Backend``."""

    name = "torch"

    def recognizes(self, value: object) -> bool:
        """Return whether a model or a tensor is PyTorch's."""
        return isinstance(value, torch.nn.Module | torch.Tensor)

    def sizes(self, model: Any) -> ModelSizes:
        """Sum up parameters, tied ones once, buffers, and the weights that quantized modules have packed."""
        parameters, buffers = [*model.parameters(), *_packed(model)], [*model.buffers()]
        trained = [tensor for tensor in parameters if tensor.requires_grad]
        return ModelSizes(
            parameters=_elements(parameters),
            trainable=_elements(trained),
            parameter_bytes=_bytes(parameters),
            trainable_bytes=_bytes(trained),
            buffers=_elements(buffers),
            buffer_bytes=_bytes(buffers),
        )

    def forward_graph(
        self, model: Any, arguments: Arguments, *, device: str | None = None, call: Call | None = None
    ) -> Graph:
        """Capture the inference forward on fake tensors."""
        return graphs.forward_graph(model, arguments, device=device, call=call)

    def training_graph(
        self, model: Any, arguments: Arguments, *, device: str | None = None, call: Call | None = None
    ) -> Graph:
        """Capture a forward in training mode and the backward of the sum of its floating-point outputs. Raises
        Unavailable if nothing takes gradients."""
        return graphs.training_graph(model, arguments, device=device, call=call)

    def layer_shapes(
        self, model: Any, arguments: Arguments, *, call: Call | None = None
    ) -> Mapping[str, tuple[tuple[int, ...], ...]]:
        """List the shapes of what each module returns, as hooks see it in a forward."""
        return modes.layer_shapes(model, arguments, call=call)

    def sample(
        self,
        arguments: Arguments,
        *,
        distribution: Distribution = "uniform",
        ranges: Mapping[int | str, Range] | None = None,
    ) -> Any:
        """Describe arguments, so that random ones can be made."""
        return sampling.sample(arguments, distribution=distribution, ranges=ranges)

    def random(self, sample: Any, batch_size: int, *, seed: int = 0) -> Any:
        """Make random arguments like the sample."""
        return sampling.random(sample, batch_size, seed=seed)

    def shapes(self, sample: Any) -> tuple[tuple[int, ...], ...]:
        """The shapes of all tensors of a sample, without the batch axis."""
        return sampling.shapes(sample)

    def clocked(self, model: Any, function: Callable[[], Any]) -> tuple[Any, int]:
        """Call a function; return its result and the wall time in ns until the devices of the model have finished."""
        self._wait(model)
        start = time.perf_counter_ns()
        result = function()
        self._wait(model)
        return result, time.perf_counter_ns() - start

    def evaluating(self, model: Any, device: str | None = None) -> AbstractContextManager[Callable[[Any], Any]]:
        """Have the model in evaluation mode without gradients on a device; yield what puts tensors beside it."""
        return modes.evaluating(model, device)

    def undisturbed(self, loader: object = None) -> AbstractContextManager[None]:
        """Restore the random generators of the process and of a loader on exit."""
        return modes.undisturbed(loader)

    def ranking(self, scores: Any, count: int, *, last: bool = False) -> np.ndarray[Any, Any]:
        """Rank the classes of each position by their scores, the first ``count`` of them: one row per position.

        Classes lie along axis 1, or along the ``last``. Of equal scores the first class leads. One column, or none, is
        the logit of class 1 against 0. Raises MetricError for what are no scores.
        """
        if not isinstance(scores, torch.Tensor):
            raise MetricError(f"scores of classes are a tensor, not a {type(scores).__name__}")
        axis = -1 if last else 1
        if scores.dim() < 2 or scores.shape[axis] == 1:
            positive = (scores > 0).reshape(-1).long()
            rows = torch.stack([positive, 1 - positive], 1)
        elif count == 1:
            rows = scores.argmax(axis).reshape(-1, 1)
        else:
            by_class = scores.movedim(axis, -1)
            rows = by_class.reshape(-1, by_class.shape[-1]).sort(dim=1, descending=True, stable=True).indices
        return np.asarray(rows[:, :count].cpu())

    def array(self, value: Any) -> np.ndarray[Any, Any]:
        """The numbers of a tensor, an array or a list."""
        if not isinstance(value, torch.Tensor):
            return np.asarray(value)
        found = value.detach().cpu()
        return np.asarray(found.float() if found.dtype is torch.bfloat16 else found)

    def _wait(self, model: Any) -> None:
        """Wait for the accelerators that hold the model."""
        for device in {tensor.device for tensor in modes.tensors_of(model)}:
            if device.type != "cpu":
                torch.accelerator.synchronize(device)


def _packed(model: torch.nn.Module) -> list[torch.Tensor]:
    """Weights and biases of quantized modules: no parameters to PyTorch, but results of methods of those names."""
    found: list[torch.Tensor] = []
    for module in model.modules():
        methods = [getattr(module, name, None) for name in ("weight", "bias")]
        if callable(methods[0]) and hasattr(module, "scale"):
            found += [tensor for method in methods if callable(method) and isinstance(tensor := method(), torch.Tensor)]
    return found


def _elements(several: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() for tensor in several)


def _bytes(several: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in several)


BACKEND = TorchBackend()
"""PyTorch's row of ``tensortide.measures.backend.BACKENDS``."""
