"""A live model with its data as the subject of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from tensortide.errors import MetricError, Unavailable
from tensortide.measures.backend import backend_of, forward_times_ns
from tensortide.measures.data import TRAIN, Data, splits_of
from tensortide.measures.forward_pass import ForwardPass
from tensortide.measures.subject import Captured

if TYPE_CHECKING:
    from tensortide.cost import ModelSizes
    from tensortide.timing import Durations


class ModelSubject:
    """A model in evaluation mode, called with random inputs like its data; nothing of it is changed.

    Args:
        model: of a framework that has a backend.
        data_splits: loaders by split, or in place of a loader the arguments of one call.
        forward_pass: how batches become arguments: one for the split ``train``, or a dict by split.
        device: to capture for, and to time on (default: where the model is).
        name: for people (default: the class of the model).

    Raises MetricError for a model of no known framework, and for data that are none.
    """

    def __init__(
        self,
        model: Any,
        data_splits: Mapping[str, Any] | None = None,
        forward_pass: ForwardPass | Mapping[str, ForwardPass] | None = None,
        device: str | None = None,
        name: str = "",
    ) -> None:
        self.model = model
        self.backend = backend_of(model)
        self.splits = splits_of(data_splits or {}, forward_pass)
        self.device = device
        self.name = name or type(model).__name__
        self.kind: Literal["step", "forward"] = "forward"
        self._forward_pass = forward_pass
        self._forwards: dict[int, Captured] = {}
        self._trainings: dict[int, Captured] = {}

    @property
    def of(self) -> dict[str, Any]:
        """The class of the model, and the device."""
        return {"model": type(self.model).__qualname__, "device": self.device or ""}

    def replaced(self, **parts: Any) -> ModelSubject:
        """Make the subject with another ``model``, or other ``data_splits``. A name that was given is kept."""
        model = parts.get("model", self.model)
        name = self.name if self.name != type(self.model).__name__ else ""
        if "data_splits" in parts:
            return ModelSubject(model, parts["data_splits"], self._forward_pass, self.device, name)
        return ModelSubject(model, self.splits, None, self.device, name)

    def loader(self, split: str) -> Data:
        """The data of a split. Raises Unavailable if there is none."""
        if split not in self.splits:
            known = ", ".join(map(repr, self.splits)) or "none"
            raise Unavailable(f"there is no data split {split!r}; there are {known}")
        return self.splits[split]

    def sizes(self) -> ModelSizes:
        """Elements and bytes of the parameters and buffers of the model; it is not called."""
        return self.backend.sizes(self.model)

    def captured(self, batch_size: int | None = None) -> Captured:
        """The inference forward on a batch of ``batch_size`` random samples (default: 1)."""
        size = _size(batch_size)
        if size not in self._forwards:
            call = self._pass.own_call
            graph = self.backend.forward_graph(self.model, self._arguments(size), device=self.device, call=call)
            self._forwards[size] = Captured(graph)
        return self._forwards[size]

    def training(self, batch_size: int | None = None) -> Captured:
        """A forward in training mode, and the backward of the sum of its outputs."""
        size = _size(batch_size)
        if size not in self._trainings:
            call = self._pass.own_call
            graph = self.backend.training_graph(self.model, self._arguments(size), device=self.device, call=call)
            self._trainings[size] = Captured(graph)
        return self._trainings[size]

    @property
    def durations(self) -> Durations:
        """Raise Unavailable: the ops of a live model are not timed."""
        raise Unavailable("no times of ops: predict them with machine=, or see execution_time")

    def forward_times_ns(
        self, batch_size: int | None = None, *, warmup: int, runs: int
    ) -> tuple[list[int], int | None]:
        """Times of forward calls of the model, and the samples in each."""
        size = _size(batch_size)
        arguments = self._arguments(size)
        call = self._pass.own_call
        times = forward_times_ns(
            self.backend, self.model, arguments, device=self.device, warmup=warmup, runs=runs, call=call
        )
        return times, size

    @property
    def _pass(self) -> ForwardPass:
        """The forward pass of the training data, else of the first split."""
        if not self.splits:
            raise Unavailable("a model needs data to be called with: data_splits={'train': loader, or arguments}")
        return self.splits.get(TRAIN, next(iter(self.splits.values()))).forward

    def _arguments(self, batch_size: int) -> Any:
        """Random inputs as the forward pass makes them."""
        return self._pass.random_arguments(batch_size)


def _size(batch_size: object) -> int:
    """A batch size; 1 where none is given. Raises MetricError for what is none."""
    if batch_size is None:
        return 1
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise MetricError(f"a batch size is an integer from 1, not {batch_size!r}")
    return batch_size
