"""Data of a model: loaders of any kind, inspected only when something asks, and the forward passes of splits."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from tensortide.errors import MetricError
from tensortide.measures.backend import leaves, undisturbed
from tensortide.measures.forward_pass import AsGiven, ForwardPass, default_pass

Splits: TypeAlias = dict[str, "Data"]
TRAIN = "train"
"""The split that a single forward pass is attached to, and whose batches random inputs are like."""


class Data:
    """A loader with its forward pass: iterates over batches, and knows their sizes as far as the loader tells.

    Other attributes are those of the loader.

    Args:
        loader: anything that yields batches; or in place of it the arguments of one call of the model: a tuple of
            positional ones, a dict of named ones, or a single tensor.
        forward: how batches become arguments (default: the first of two elements; arguments are taken as they are).
            One that is attached to other data already is copied.
    """

    def __init__(self, loader: Any, forward: ForwardPass | None = None) -> None:
        given = isinstance(loader, tuple | Mapping) or hasattr(loader, "shape")
        if not given and not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
            raise MetricError(f"a loader yields batches, which a {type(loader).__name__} does not")
        self.loader = loader
        self._batches: Any = [loader] if given else loader
        if forward is None:
            forward = AsGiven() if given else default_pass()
        self.forward = forward if forward.data is None else copy.copy(forward)
        self.forward.attach(self)
        self._first: list[Any] = []
        self._back: Iterator[Any] | None = None

    @classmethod
    def of(cls, loader: Any) -> Data:
        """Return a loader as Data, which it may be already."""
        return loader if isinstance(loader, cls) else cls(loader)

    def __iter__(self) -> Iterator[Any]:
        batches, self._back = self._back, None
        return iter(self._batches) if batches is None else batches

    def __len__(self) -> int:
        """The number of batches. Raises TypeError where the loader does not tell."""
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    def first(self) -> Any:
        """Take the first batch. The next iteration has it again: a loader that knows its length starts over, as do
        the random generators that it draws from; an iterator, or a loader without a length, is continued from there.

        Raises MetricError if there is none.
        """
        if not self._first:
            restarts = _length(self._batches) is not None and not isinstance(self._batches, Iterator)
            with undisturbed(self.loader) if restarts else contextlib.nullcontext():
                batches = iter(self._batches)
                self._first = [*itertools.islice(batches, 1)]
            if not self._first:
                raise MetricError("the loader has no batches, or is an iterator that was used up")
            if not restarts:
                self._back = itertools.chain(self._first, batches)
        return self._first[0]

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch: as the loader says, else those of the first batch; None if they cannot be counted."""
        said = getattr(self.loader, "batch_size", None)
        return said if isinstance(said, int) else count(self.first())

    @property
    def samples(self) -> int | None:
        """Samples in all batches, a last one that is smaller counted as it is; None if the loader does not tell."""
        if isinstance(self._batches, list):
            counts = [count(batch) for batch in self._batches]
            return None if None in counts else sum(filter(None, counts))
        by_batch = getattr(self.loader, "batch_sampler", None)
        if isinstance(by_batch, list | tuple):
            return sum(map(len, by_batch))
        size, drawn = getattr(self.loader, "batch_size", None), _length(getattr(self.loader, "sampler", None))
        if not isinstance(size, int) or drawn is None:
            return None
        return drawn - drawn % size if getattr(self.loader, "drop_last", False) else drawn


def splits_of(data: Mapping[str, Any], forward: ForwardPass | Mapping[str, ForwardPass] | None = None) -> Splits:
    """Make Data of each split. One forward pass is attached to the split ``train`` alone, a dict by split.

    Raises MetricError for a forward pass of a split that does not exist, and for anything but a ForwardPass.
    """
    passes = {TRAIN: forward} if isinstance(forward, ForwardPass) else dict(forward or {})
    for split, one in passes.items():
        if split not in data:
            known = ", ".join(map(repr, data)) or "none"
            raise MetricError(
                f"there is no split {split!r} to attach a forward pass to; there are {known}: give a dict of forward "
                "passes by split"
            )
        if not isinstance(one, ForwardPass):
            raise MetricError(f"the forward pass of {split!r} is a {type(one).__name__}, not a ForwardPass")
    return {
        split: loader if isinstance(loader, Data) and split not in passes else Data(loader, passes.get(split))
        for split, loader in data.items()
    }


def count(batch: Any) -> int | None:
    """The samples in a batch: the first size of its first tensor that has one; None if it has no such tensor."""
    shapes: Iterator[Any] = (getattr(leaf, "shape", ()) for leaf in leaves(batch))
    return next((int(shape[0]) for shape in shapes if len(shape)), None)


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None
