"""``fits``: does training a model fit a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal

from tensortide.errors import ExitStatus, RequestError, WorkloadError
from tensortide.importers.door import as_text
from tensortide.progress import Search, silent
from tensortide.recorder.target import Workload
from tensortide.shown import Shown
from tensortide.studies.fit.request import FitRequest, answer
from tensortide.studies.fit.results import Fit
from tensortide.targets.requests import CaptureRequest
from tensortide.units import format_bytes, format_ns, format_percent

if TYPE_CHECKING:
    from tensortide.studies.fit.dominant import Dominant

Answer = Literal["yes", "no", "unsure"]
_ANSWERS: dict[ExitStatus, Answer] = {ExitStatus.HOLDS: "yes", ExitStatus.FAILS: "no", ExitStatus.UNDECIDED: "unsure"}


@dataclass(frozen=True, repr=False)
class ModelVerdict(Shown):
    """The answer to whether a step of a model fits a GPU, true only if it surely does; ``fit`` has all figures."""

    SECTION = "verdict.of_model"
    fit: Fit
    loss: str
    """What was taken for the loss, in words; empty for inference."""

    @property
    def answer(self) -> Answer:
        """``yes``, ``no``, or ``unsure``: the limit is within the interval of what the step takes."""
        return _ANSWERS[self.status]

    def __bool__(self) -> bool:
        return self.answer == "yes"

    @property
    def status(self) -> ExitStatus:
        """The answer as that of a program."""
        return self.fit.status

    @property
    def peak_bytes(self) -> int:
        """Bytes of tensors at the peak of the step."""
        return self.fit.base.peak_bytes

    @property
    def needed_bytes(self) -> int:
        """Bytes that PyTorch's allocator takes for them."""
        return self.fit.base.reserved_bytes

    @property
    def usable_bytes(self) -> int:
        """Bytes that the GPU has for a step."""
        return self.fit.subject.limit_bytes

    @property
    def step_ns(self) -> int | None:
        """The predicted time of a step; None if the GPU is known by its size alone."""
        return self.fit.base.step_ns

    @property
    def dominant(self) -> Dominant | None:
        """The largest part of the memory."""
        return self.fit.verdict.dominant

    def __repr__(self) -> str:
        figures = [
            f"needs {format_bytes(self.needed_bytes)} of {format_bytes(self.usable_bytes)} on {self.fit.machine}"
        ]
        if self.step_ns is not None:
            figures.append(f"a step in {format_ns(self.step_ns)}")
        if self.dominant is not None:
            largest = shorten(self.dominant.sentence.partition(",")[0], 80, placeholder="...")
            figures.append(f"{format_percent(self.dominant.share)} of the peak: {largest}")
        figures += [f"loss: {self.loss}"] * bool(self.loss)
        return f"<ModelVerdict {self.answer}: {'; '.join(figures)}>"


def fits(
    model: Any,
    inputs: Any = None,
    optimizer: str | Callable[..., Any] | None = "adamw",
    *,
    gpu: str = "",
    loss: str | Callable[..., Any] = "auto",
    **others: Any,
) -> ModelVerdict:
    """Tell whether a training step of ``model`` on ``inputs`` fits a GPU: yes, no, or unsure, with its figures.

    >>> if tensortide.fits(model, {"input_ids": ids, "labels": ids}, gpu="rtx4090"):  # doctest: +SKIP
    ...     train()

    Nothing is allocated and the model is left as it is, wherever it is: in memory, on a GPU, or on the device ``meta``.
    It is captured in the mode for training, or without an optimizer in that for inference.

    Args:
        model: a module of PyTorch.
        inputs: of its forward: a tensor, a tuple of positional ones, or a dict of those with names.
        optimizer: its name in ``torch.optim`` (``"adamw"``, ``"sgd"``, ...), a function of the parameters that makes
            one, or None for inference without gradients.
        gpu: its name in the catalogue (``tensortide time --list``), or its size, ``"24GB"``.
        loss: a function ``loss(output)`` of what the model returns, whose result is a tensor of one element:
            ``lambda output: torch.nn.functional.cross_entropy(output, labels)``; or as in ``tensortide.capture``.
            ``"auto"`` is the output's own ``.loss`` (or the output, if it is a scalar), or else the mean of its
            floating-point tensors, which takes less memory than most losses do. The answer says which it was.

    Raises:
        WorkloadError: ``model`` is no module, or there is no such optimizer or loss.
        CaptureError: the step fails, as it does where the inputs are not those of the model.
        RequestError: no GPU is given, or it is none by name or size; or another option, which ``fits`` does not have.
        TensortideError: the catalogue has no such GPU.
    """
    import tensortide.recorder.torch_compat  # noqa: F401  # before all else: it says what is wrong with PyTorch
    from tensortide.recorder.model_step import NotedLoss, in_mode, is_model, step_of_pair

    if not is_model(model):
        raise WorkloadError(
            f"fits takes a model of PyTorch and its inputs, not a {type(model).__name__}: "
            "tensortide.fit takes a workload, a script or a file"
        )
    if others:
        hint = 'the GPU is gpu="rtx4090"' if "machine" in others else "help(tensortide.fits) lists those that it has"
        raise RequestError(f"fits has no option {next(iter(others))!r}: {hint}")
    name: Any = gpu
    if not isinstance(name, str) or not name:
        got = f", not {name!r}" if name != "" else ""
        raise RequestError(f'fits takes gpu="rtx4090", a name, or gpu="24GB", a size{got}')
    asked = CaptureRequest(machines=(gpu,))
    asked.kernels  # noqa: B018  # an error for a GPU that there is not, before the model is looked at
    noted = None if optimizer is None else NotedLoss(loss)
    step = step_of_pair(model, inputs, noted, optimizer)
    with in_mode(model, training=optimizer is not None):
        target = as_text(Workload(type(model).__name__, step))
        found = answer(FitRequest(target=target, capture=asked), Search(silent, _at_once))
    assert isinstance(found, Fit)
    return ModelVerdict(found, "" if noted is None else noted.words)


def _at_once() -> bool:
    """End a search before it tries an action: the step as it is answers the question."""
    return True
