"""Capture of one training step of a real model as a Graph, without allocating it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tensortide.errors import WorkloadError
from tensortide.recorder.ranks_in_turn import in_turn
from tensortide.recorder.script_launch import place_of

if TYPE_CHECKING:
    from tensortide.cost import Cost
    from tensortide.cost.evaluate import How
    from tensortide.graph.model import Graph, OpView
    from tensortide.recorder.building import Named
    from tensortide.recorder.changes import Change
    from tensortide.recorder.messages import Messages

__all__ = ["capture", "resolver"]

Scalar = str | int | float | bool | None


def capture(
    target: Any,
    inputs: Any = None,
    *,
    hyperparameters: Mapping[str, Scalar] | None = None,
    loss: str | Callable[..., Any] | None = None,
    optimizer: str | Callable[..., Any] | None = None,
    real: bool | None = None,
    assume: Mapping[str, bool | int | float] | None = None,
    first_step: bool = False,
    device: str | None = None,
    machine: str | None = None,
    ranks: int | None = None,
    rank: int | None = None,
    compiled: bool = False,
    changes: Sequence[Change] = (),
    name: str = "",
    progress: Callable[[str], None] | None = None,
) -> Graph:
    """Capture one training step as a Graph, on fake tensors: it allocates nothing and leaves the user's objects as is.

    While it runs, parts of PyTorch are replaced for the whole process; a capture in another thread waits.

    Args:
        target: a *workload* (a function that builds a model, by its hyperparameters, and returns a step), a *step* (a
            function of no arguments that runs one step of a model that exists), a *model* (a module), or the text of a
            target: ``file.py:function``, ``package.module:function`` or a built-in example.
        inputs: of a model: a tensor, a tuple of positional inputs or a dict of keyword inputs, nested as you like. The
            step is inference, or with a ``loss`` and an ``optimizer`` it trains.
        hyperparameters: of a workload, in place of its defaults.
        loss: a function of the model's output that returns a scalar, or ``"sum"``, ``"mean"`` (of its floating-point
            tensors), ``"output"`` (its ``.loss``, or itself if a scalar) or ``"auto"`` (that, or else the mean).
        optimizer: a class of ``torch.optim`` by name (``"sgd"``, ``"adamw"``), or a function of the parameters.
        real: capture on clones of the user's tensors. On fake ones a value that the step reads (``loss.item()``) is a
            stand-in, listed in ``graph.meta.assumptions``; where values decide shapes, and the step fits on this
            machine, it is captured on real ones, unless ``real`` is False.
        assume: values, or numbers of selected elements, by line: ``{"train.py:41": 128}``.
        first_step: record the very first step, which creates the optimizer state, and not the one after it.
        device: ``"cuda"`` captures the step of a GPU, without one and on any build of PyTorch: ``torch.cuda`` answers
            as if there were one. A workload that puts no tensor on it is moved there as a whole.
        machine: the GPU whose kernels these are, by its name (default: an A100); implies the device.
        ranks: processes of a workload written for several, of which this one is ``rank`` (from 0, the default):
            collectives are recorded and move no data.
        compiled: record the graphs that ``torch.compile`` makes of the step, or of its models where it compiles
            nothing, and what is eager between them. Nothing is compiled.
        changes: (``recorder.changes``) made to the step while it is captured.

    Raises WorkloadError if the target cannot be found or built, CaptureError if the step fails, DataDependent if it
    needs values that fake tensors lack and is too large for real ones, TorchUnavailable if PyTorch is missing or old.
    """
    import tensortide.recorder.torch_compat  # noqa: F401  # before all else: it says what is wrong with PyTorch
    from tensortide.recorder.building import named
    from tensortide.recorder.cuda_mode import pretended_gpu

    _check_together(changes=bool(changes), real=bool(real), compiled=compiled, gpu=bool(device or machine))
    workload = named(target, inputs, loss, optimizer, name, verb="capture")
    how: dict[str, Any] = {"real": real, "assume": assume, "first_step": first_step, "compiled": compiled}
    how |= {"gpu": pretended_gpu(device, machine, real), "changes": changes, "progress": progress or (lambda _: None)}
    at = partial(_captured_at, workload, dict(hyperparameters or {}), how, ranks)
    return at(0, None) if (place := place_of(ranks, rank or 0)) is None else in_turn(at, place.rank)[place.rank]


def _check_together(*, changes: bool, real: bool, compiled: bool, gpu: bool) -> None:
    """Raise WorkloadError for what does not go together."""
    if changes and (real or compiled):
        raise WorkloadError("changes are made to eager steps on fake tensors: leave out real and compiled")
    if compiled and gpu:
        raise WorkloadError("--compiled (compiled=True) traces a step for the CPU: leave out --device and --machine")


def _captured_at(
    workload: Named,
    hyperparameters: Mapping[str, Scalar],
    how: Mapping[str, Any],
    ranks: int | None,
    rank: int,
    messages: Messages | None,
) -> Graph:
    """Capture ``workload`` while no other thread captures, as ``rank`` of several, which has ``messages`` of others."""
    from tensortide.recorder.building import captured, with_assumption
    from tensortide.recorder.ranks import as_rank
    from tensortide.recorder.surroundings import alone

    place = place_of(ranks, rank)
    assumed: set[str] = set()
    with alone(), as_rank(place, assumed.add, messages):
        graph = captured(workload, hyperparameters, **how)
    for assumption in [*sorted(assumed, reverse=True), *([] if place is None else [str(place)])]:
        graph = with_assumption(graph, assumption)
    return graph


def resolver(op: OpView) -> tuple[Cost, How] | None:
    """Cost of an op without a rule, from PyTorch if it is installed: its own formula, or the op's decomposition."""
    try:
        from tensortide.recorder.fallback import fallback
    except ImportError:
        return None
    return fallback(op)
