"""Forward passes, loaders and samplers by the method names of deeplite-profiler, on our own of any framework."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tensortide.measures import forward_pass
from tensortide.measures.backend import Arguments, Call, backend_of_tensors
from tensortide.measures.compat.keys import Device
from tensortide.measures.data import Data


class ForwardPass(forward_pass.ForwardPass):
    """Conversion of a batch to arguments: override ``extract_model_inputs``, ``create_random_model_inputs``,
    ``model_call`` or ``get_model_input_shapes``.

    Raises TypeError without a pattern and an own extraction, and without own random inputs where those are not common.
    """

    def __init__(self, model_input_pattern: Any = None, expecting_common_inputs: bool = True) -> None:
        if model_input_pattern is None and not self._own("extract_model_inputs"):
            raise TypeError(
                f"a {type(self).__name__} needs a model_input_pattern, or its own extract_model_inputs(batch)"
            )
        if not expecting_common_inputs and not self._own("create_random_model_inputs"):
            raise TypeError("inputs that are not common need an own create_random_model_inputs(batch_size)")
        super().__init__(model_input_pattern, common=expecting_common_inputs)
        self.expecting_common_inputs = expecting_common_inputs

    def _own(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(ForwardPass, name)

    def extract_model_inputs(self, batch: Any) -> Any:
        """Extract the inputs from a batch."""
        return super().inputs(batch)

    def create_random_model_inputs(self, batch_size: int) -> Any:
        """Make random inputs."""
        return _plain(super().random_inputs(batch_size))

    def model_call(self, model: Any, x: Any, device: Device) -> Any:
        """Call the model."""
        del device
        if not self.common:
            raise TypeError("inputs that are not common need an own model_call(model, x, device)")
        return model(**x) if isinstance(x, Mapping) else model(*x)

    def get_model_input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of all inputs, without the batch axis."""
        return super().shapes()

    def random_perform(self, model: Any, batch_size: int, device: Device | str = Device.CPU) -> Any:
        """Call the model on random inputs."""
        return self.perform_random(model, batch_size, device=Device(device).framework)

    # what our own machinery calls

    def inputs(self, batch: Any) -> Any:
        """Extract the inputs from a batch."""
        return self.extract_model_inputs(batch)

    def random_inputs(self, batch_size: int) -> Any:
        """Make random inputs."""
        return self.create_random_model_inputs(batch_size)

    def call(self, model: Any, inputs: Any) -> Any:
        """Call the model."""
        return self.model_call(model, _plain(inputs), Device.CPU)

    @property
    def own_call(self) -> Call | None:
        """The call of a subclass; None where the model is called plainly, which every framework can trace."""
        return super().own_call if self._own("model_call") or not self.common else None


class TorchForwardPass(ForwardPass):
    """Forward pass of a model of PyTorch."""


class TFForwardPass(ForwardPass):
    """Forward pass of a model of Keras or TensorFlow Lite."""


def _plain(inputs: Any) -> Any:
    """Arguments as that tool passes them: a tuple, or a dict of named ones."""
    return (inputs.named or inputs.positional) if isinstance(inputs, Arguments) else inputs


class DataLoader(Data):
    """A loader with its forward pass."""

    def __init__(self, dl: Any, fp: forward_pass.ForwardPass | None = None) -> None:
        super().__init__(dl, fp)

    @property
    def native_dl(self) -> Any:
        """The loader."""
        return self.loader

    @property
    def forward_pass(self) -> forward_pass.ForwardPass:
        """Return how its batches become arguments."""
        return self.forward

    @property
    def dataset_size(self) -> int | None:
        """Samples in all batches; None if the loader does not tell."""
        return self.samples

    def sample_forward(self, model: Any, device: Device | str = Device.CPU) -> Any:
        """Call the model on the first batch."""
        return self.forward.perform(model, self.first(), device=Device(device).framework)

    def sample_random_forward(
        self, model: Any, batch_size: int | None = None, device: Device | str = Device.CPU
    ) -> Any:
        """Call the model on random inputs."""
        size = (self.batch_size or 1) if batch_size is None else batch_size
        return self.forward.perform_random(model, size, device=Device(device).framework)

    def timed_forward(self, model: Any, device: Device | str = Device.CPU) -> float:
        """Seconds of a call on the first batch."""
        begun = time.perf_counter()
        self.sample_forward(model, device)
        return time.perf_counter() - begun

    def timed_random_forward(self, model: Any, batch_size: int, device: Device | str = Device.CPU) -> float:
        """Seconds of a call on random inputs."""
        begun = time.perf_counter()
        self.sample_random_forward(model, batch_size, device)
        return time.perf_counter() - begun


class TorchDataLoader(DataLoader):
    """Loader of tensors of PyTorch."""


class TFDataLoader(DataLoader):
    """Loader of tensors of TensorFlow or JAX, or of arrays: a ``tf.data.Dataset``, or any iterable of batches."""


class TensorSampler:
    """Random tensors like those of a tuple of inputs: in their containers, by their shapes and dtypes."""

    def __init__(self, tensors_tuple_sample: Any) -> None:
        arguments = Arguments(tuple(tensors_tuple_sample))
        self._backend = backend_of_tensors(arguments)
        self._sample = self._backend.sample(arguments)

    def create_random_tensors(self, batch_size: int) -> tuple[Any, ...]:
        """Make random tensors of ``batch_size`` samples."""
        made: tuple[Any, ...] = self._backend.random(self._sample, batch_size)[0]
        return made

    def get_flat_shapes_tuple(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of all tensors, without the batch axis."""
        return self._backend.shapes(self._sample)
