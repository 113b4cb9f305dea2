"""Evaluation functions: misclassification, accuracy, top-k and mean loss, each weighted by samples.

All call the model in evaluation mode without gradients, batch by batch, and leave its modes and its device as they
were. They share these options:

- ``device``: where to evaluate (default: where the model is),
- ``transform``: a function of the inputs and the labels of a batch that returns both. Inputs are a single argument by
  itself, several as a tuple, named ones as a dict,
- ``target``: the position or key of the labels in a batch (default: the one element that is no input).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tensortide.errors import MetricError
from tensortide.measures.backend import Arguments, Backend, backend_of
from tensortide.measures.data import Data, count
from tensortide.measures.forward_pass import arguments_of
from tensortide.measures.metric import Direction

if TYPE_CHECKING:
    import numpy as np

Transform: TypeAlias = Callable[[Any, Any], tuple[Any, Any]]
Target: TypeAlias = int | str | None
PERCENT = "%"


def misclassification(
    model: Any,
    loader: Any,
    *,
    device: str | None = None,
    transform: Transform | None = None,
    target: Target = None,
    sequence: bool = False,
    ignore: int | None = None,
) -> float:
    """Percentage of labels whose class is not the one with the highest score.

    Classes lie along axis 1 of the output; along the last one of a ``sequence`` model (batch, positions, classes). An
    output of one column is the logit of class 1 against 0. Labels of the shape of the output have a number for each
    class, as one-hot ones. Labels equal to ``ignore``, padding say, do not count.

    Raises MetricError for batches without labels, and where outputs and labels do not match.
    """
    right, total = _ranked(model, loader, (1,), device, transform, target, sequence=sequence, ignore=ignore)
    return 100 * (total - right[0]) / total


def accuracy(
    model: Any,
    loader: Any,
    *,
    device: str | None = None,
    transform: Transform | None = None,
    target: Target = None,
    sequence: bool = False,
    ignore: int | None = None,
) -> float:
    """Percentage of labels whose class is the one with the highest score: 100 minus ``misclassification``."""
    right, total = _ranked(model, loader, (1,), device, transform, target, sequence=sequence, ignore=ignore)
    return 100 * right[0] / total


def top_k(
    model: Any,
    loader: Any,
    *,
    k: int | Iterable[int] = (1, 5),
    device: str | None = None,
    transform: Transform | None = None,
    target: Target = None,
    sequence: bool = False,
    ignore: int | None = None,
) -> dict[str, float]:
    """Percentage of labels whose class is among the ``k`` with the highest scores, as ``top-1``, ``top-5``, ...

    Other options are those of ``misclassification``. Raises MetricError too for a ``k`` below 1.
    """
    ks = (k,) if isinstance(k, int) else tuple(k)
    if not ks or min(ks) < 1:
        raise MetricError(f"top-k takes numbers of classes from 1, not {k!r}")
    right, total = _ranked(model, loader, ks, device, transform, target, sequence=sequence, ignore=ignore)
    return {f"top-{each}": 100 * hits / total for each, hits in zip(ks, right, strict=True)}


def mean_loss(
    model: Any,
    loader: Any,
    *,
    loss: Callable[[Any, Any], Any],
    summed: bool = False,
    device: str | None = None,
    transform: Transform | None = None,
    target: Target = None,
) -> float:
    """Loss per sample. ``loss`` is a function of the output and the labels that returns a scalar, or a dict of scalars
    to add up: the mean over a batch, or the sum over it if ``summed``.

    Raises MetricError for a loss that is no scalar, and for batches whose samples cannot be counted.
    """

    def measure(backend: Backend, output: Any, labels: Any, samples: int | None) -> tuple[list[float], int]:
        if samples is None:
            raise MetricError("the batches have no tensor to count samples by: a mean loss needs one")
        found = loss(output, labels)
        parts = found.values() if isinstance(found, Mapping) else (found,)
        value = sum(_scalar(backend, part) for part in parts)
        return [value if summed else value * samples], samples

    total, samples = _totals(model, loader, measure, device, transform, target)
    return total[0] / samples


class Score(NamedTuple):
    """The unit of an evaluation function, and the direction in which it is better."""

    unit: str
    direction: Direction


SCORES: dict[Callable[..., Any], Score] = {
    misclassification: Score(PERCENT, "lower"),
    accuracy: Score(PERCENT, "higher"),
    top_k: Score(PERCENT, "higher"),
    mean_loss: Score("", "lower"),
}
"""Every evaluation function of ours."""
NO_SCORE = Score("", "")
"""Stands for any other function, of which nothing is known."""

_Measure: TypeAlias = Callable[[Backend, Any, Any, int | None], tuple[list[float], int]]
"""A function of an output, labels and the samples of the batch: amounts, and their weight."""


def _totals(
    model: Any, loader: Any, measure: _Measure, device: str | None, transform: Transform | None, target: Target
) -> tuple[list[float], int]:
    """Sum up what ``measure`` finds in all batches. Raises MetricError if that weighs nothing."""
    backend, data = backend_of(model), Data.of(loader)
    totals: list[float] = []
    weight = 0
    with backend.evaluating(model, device) as place:
        for batch in data:
            inputs, labels = place(data.forward.arguments(batch)), place(_labels(data, batch, target))
            if transform is not None:
                inputs, labels = _transformed(transform, inputs, labels)
            output = data.forward.call(model, inputs)
            amounts, more = measure(backend, output, labels, count(inputs))
            totals = [a + b for a, b in zip(totals or [0] * len(amounts), amounts, strict=True)]
            weight += more
    if not weight:
        raise MetricError("the loader has no samples to evaluate, or is an iterator that was used up")
    return totals, weight


def _ranked(
    model: Any,
    loader: Any,
    ks: tuple[int, ...],
    device: str | None,
    transform: Transform | None,
    target: Target,
    *,
    sequence: bool,
    ignore: int | None,
) -> tuple[list[float], int]:
    """Count the labels that are among the first k classes, for each of ``ks``, and all labels."""

    def measure(backend: Backend, output: Any, labels: Any, samples: int | None) -> tuple[list[float], int]:
        del samples
        if labels is None:
            raise MetricError("the batches have no element that is no input: an evaluation needs labels")
        scores = _scores(output)
        best = backend.ranking(scores, max(ks), last=sequence)
        true = _classes(backend, labels, getattr(scores, "shape", ()), last=sequence)
        if len(best) != len(true):
            raise MetricError(
                f"the model scores {len(best)} positions of a batch, which has {len(true)} labels: sequence=True takes "
                "classes along the last axis, transform changes inputs and labels"
            )
        if ignore is not None:
            best, true = best[true != ignore], true[true != ignore]
        hits = best == true[:, None]
        return [int(hits[:, :k].sum()) for k in ks], len(true)

    return _totals(model, loader, measure, device, transform, target)


def _classes(backend: Backend, labels: Any, shape: Sequence[int], *, last: bool) -> np.ndarray[Any, Any]:
    """The class of each position: its number, or the place of the largest of the numbers that it has for each class,
    as those of one-hot labels."""
    found: np.ndarray[Any, Any] = backend.array(labels)
    axis = -1 if last else 1
    if found.ndim > 1 and found.shape == tuple(shape) and found.shape[axis] > 1:
        found = found.argmax(axis)
    return found.reshape(-1)


def _scores(output: Any) -> Any:
    """The scores in the output of a model: its ``logits``, the first of a tuple, or the output itself."""
    if isinstance(output, Mapping) and "logits" in output:
        return output["logits"]
    if hasattr(output, "logits"):
        return output.logits
    return output[0] if isinstance(output, tuple | list) and output else output


def _labels(data: Data, batch: Any, target: Target) -> Any:
    """The labels of a batch; None if all of it is input."""
    if target is not None:
        try:
            return batch[target]
        except (LookupError, TypeError) as error:
            raise MetricError(f"the batch has no element {target!r} to take labels from: {error!r}") from None
    others = data.forward.left_out(batch)
    if len(others) > 1:
        raise MetricError(f"labels may be any of the elements {', '.join(map(repr, others))}: say which (target=...)")
    return next(iter(others.values()), None)


def _transformed(transform: Transform, inputs: Any, labels: Any) -> tuple[Any, Any]:
    if not isinstance(inputs, Arguments):
        return transform(inputs, labels)
    if len(inputs.positional) == 1 and not inputs.named:
        single, labels = transform(inputs.positional[0], labels)
        return Arguments((single,)), labels
    given: Any = inputs if inputs.named and inputs.positional else inputs.named or inputs.positional
    found, labels = transform(given, labels)
    return arguments_of(found), labels


def _scalar(backend: Backend, value: Any) -> float:
    numbers = backend.array(value)
    if numbers.size != 1:
        raise MetricError(f"a loss is a scalar, not {numbers.size} numbers: reduce it to a mean or a sum")
    return float(numbers.reshape(()))
