"""Forward passes: how a batch becomes the arguments of a model, and how random ones are made."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tensortide.errors import MetricError
from tensortide.measures.backend import Arguments, Backend, Call, Distribution, Range, backend_of, backend_of_tensors
from tensortide.measures.patterns import DEFAULT_PATTERN, InputPattern, Pattern

if TYPE_CHECKING:
    from tensortide.measures.data import Data


class ForwardPass:
    """A way to call a model on a batch, and on random inputs like those of the data that it is attached to.

    >>> ForwardPass((0, "_"))  # the first element of a batch in, the second left out
    ForwardPass((0, '_'))

    Override ``inputs``, ``random_inputs``, ``call`` or ``shapes`` where a pattern does not say it. ``inputs`` and
    ``random_inputs`` return Arguments, a tuple of positional arguments, a dict of named ones, or a single argument.

    Args:
        pattern: which elements of a batch are which arguments; see ``InputPattern``.
        common: whether inputs are arguments of the model made of tensors. Others are whatever ``inputs`` returns; then
            ``random_inputs`` and ``call`` must be overridden.
        distribution: of random floats: ``uniform`` between 0 and 1, or ``normal``.
        ranges: least and greatest random value of an argument, by position or name. Integers are by default in the
            range of the first batch.
        seed: of the random inputs.

    Raises:
        TypeError: there is neither a pattern nor an ``inputs`` of its own, or inputs are not common and there is no
            ``random_inputs`` of its own.
    """

    def __init__(
        self,
        pattern: Pattern | None = None,
        *,
        common: bool = True,
        distribution: Distribution = "uniform",
        ranges: Mapping[int | str, Range] | None = None,
        seed: int = 0,
    ) -> None:
        if pattern is None and not self._overrides("inputs"):
            raise TypeError("a ForwardPass needs an input pattern, such as (0, '_'), or its own inputs(batch)")
        if not common and not self._overrides("random_inputs"):
            raise TypeError("a ForwardPass whose inputs are not common needs its own random_inputs(batch_size)")
        if distribution not in ("uniform", "normal"):
            raise MetricError(f"random floats are 'uniform' or 'normal', not {distribution!r}")
        self.pattern = None if pattern is None else InputPattern(pattern)
        self.common = common
        self.distribution: Distribution = distribution
        self.ranges = dict(ranges or {})
        self.seed = seed
        self.data: Data | None = None
        """The data that it is attached to."""
        self._sampled: tuple[Backend, Any] | None = None

    def __repr__(self) -> str:
        given = "" if self.pattern is None else repr(self.pattern.pattern)
        return f"{type(self).__name__}({given})"

    # -- to override --------------------------------------------------------------------------------

    def inputs(self, batch: Any) -> Any:
        """Extract the inputs of the model from a batch. Raises ValueError for one that the pattern does not fit."""
        assert self.pattern is not None
        return self.pattern.arguments(batch)

    def random_inputs(self, batch_size: int) -> Any:
        """Make random inputs of ``batch_size`` samples, like those of the first batch. Raises MetricError if that has
        anything but tensors and NumPy arrays, or the forward pass is attached to no data."""
        backend, sample = self._sample()
        return Arguments(*backend.random(sample, batch_size, seed=self.seed))

    def call(self, model: Any, inputs: Any) -> Any:
        """Call the model. Raises TypeError where inputs are not common: how to call is then not known."""
        if not self.common:
            raise TypeError(
                f"{type(self).__name__} has inputs that are not common: it needs its own call(model, inputs)"
            )
        return model(*inputs.positional, **inputs.named)

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """List the shapes of all inputs, without the batch axis, in one flat tuple."""
        backend, sample = self._sample()
        return backend.shapes(sample)

    # -- attachment ---------------------------------------------------------------------------------

    def attach(self, data: Data) -> None:
        """Make random inputs like those of ``data`` from now on. Nothing of it is looked at before it is needed."""
        self.data, self._sampled = data, None

    @property
    def own_call(self) -> Call | None:
        """The ``call`` of a subclass, apart from the data, for a capture, which searches all that a step reaches; None
        where the model is called plainly."""
        if not self._overrides("call"):
            return None
        apart = copy.copy(self)
        apart.data = apart._sampled = None
        return apart.call

    # -- operations ---------------------------------------------------------------------------------

    def arguments(self, batch: Any) -> Any:
        """Extract inputs: Arguments, unless they are not common."""
        return self._arguments(self.inputs(batch))

    def random_arguments(self, batch_size: int = 1) -> Any:
        """Make random inputs: Arguments, unless they are not common."""
        return self._arguments(self.random_inputs(batch_size))

    def perform(self, model: Any, batch: Any, *, device: str | None = None) -> Any:
        """Call the model on a batch, in evaluation mode, without gradients. Returns its output."""
        return self.timed(model, batch, device=device)[0]

    def perform_random(self, model: Any, batch_size: int = 1, *, device: str | None = None) -> Any:
        """Call the model on random inputs, in evaluation mode, without gradients. Returns its output."""
        return self.timed_random(model, batch_size, device=device)[0]

    def timed(self, model: Any, batch: Any, *, device: str | None = None) -> tuple[Any, int]:
        """Call the model as ``perform`` does. Returns its output and the wall time of the call in ns."""
        return self._timed(model, self.arguments(batch), device)

    def timed_random(self, model: Any, batch_size: int = 1, *, device: str | None = None) -> tuple[Any, int]:
        """Call the model as ``perform_random`` does. Returns its output and the wall time of the call in ns."""
        return self._timed(model, self.random_arguments(batch_size), device)

    def left_out(self, batch: Any) -> dict[Any, Any]:
        """Collect the elements of a batch that are no inputs, by position or key: labels. Without a pattern: all of a
        dict, and all but the first of a tuple."""
        if self.pattern is not None:
            return self.pattern.left_out(batch)
        if isinstance(batch, Mapping):
            return dict(batch)
        return dict(enumerate(batch[1:], 1)) if isinstance(batch, tuple | list) else {}

    def _timed(self, model: Any, arguments: Any, device: str | None) -> tuple[Any, int]:
        backend = backend_of(model)
        with backend.evaluating(model, device) as place:
            given = place(arguments)
            return backend.clocked(model, lambda: self.call(model, given))

    def _arguments(self, inputs: Any) -> Any:
        return arguments_of(inputs) if self.common else inputs

    def _sample(self) -> tuple[Backend, Any]:
        """Describe the inputs of the first batch, once."""
        if self._sampled is None:
            if self.data is None:
                raise MetricError("the forward pass is attached to no data: Data(loader, forward) attaches it")
            arguments = self.arguments(self.data.first())
            backend = backend_of_tensors(arguments)
            self._sampled = backend, backend.sample(arguments, distribution=self.distribution, ranges=self.ranges)
        return self._sampled

    def _overrides(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(ForwardPass, name)


class AsGiven(ForwardPass):
    """The forward pass of arguments that are given in place of a loader: the batch is what the model is called with."""

    def inputs(self, batch: Any) -> Any:
        """Return the batch."""
        return batch

    def left_out(self, batch: Any) -> dict[Any, Any]:
        """Return nothing: all are inputs."""
        return {}


def default_pass() -> ForwardPass:
    """Make the forward pass of batches of inputs and labels."""
    return ForwardPass(DEFAULT_PATTERN.pattern)


def arguments_of(inputs: Any) -> Arguments:
    """Make Arguments of what ``inputs`` of a ForwardPass returns."""
    if isinstance(inputs, Arguments):
        return inputs
    if isinstance(inputs, Mapping):
        return Arguments((), dict(inputs))
    return Arguments(tuple(inputs)) if isinstance(inputs, tuple | list) else Arguments((inputs,))
