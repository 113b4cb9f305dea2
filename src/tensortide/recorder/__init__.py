"""Capture of one training step of a real model as a Graph, without allocating it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensortide.errors import WorkloadError

if TYPE_CHECKING:
    from tensortide.cost import Cost
    from tensortide.cost.evaluate import How
    from tensortide.graph.model import Graph, OpView
    from tensortide.recorder.changes import Change

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
    compiled: bool = False,
    changes: Sequence[Change] = (),
    name: str = "",
    progress: Callable[[str], None] | None = None,
) -> Graph:
    """Capture one training step as a Graph, on fake tensors: it allocates nothing and leaves the user's objects as is.

    While it runs, parts of PyTorch are replaced for the whole process; a capture in another thread waits.

    ``target`` is one of

    - a *workload*: a function with hyperparameters as keyword arguments that builds a model and returns a step
      (``hyperparameters`` overrides its defaults),
    - a *step*: a function of no arguments that runs one step of a model that exists,
    - a *model* (a module), with ``inputs``: a tensor, a tuple of positional inputs, or a dict of keyword inputs
      (nested structures of tensors are fine). With ``loss`` and ``optimizer`` the step trains; without a loss
      it is inference. ``loss`` is a function of the model's output that returns a scalar, or one of ``"sum"``,
      ``"mean"`` (of all its floating-point tensors), ``"output"`` (the output's own ``.loss``, or the output if it is a
      scalar) and ``"auto"`` (that, or else the mean); ``optimizer`` is ``"sgd"``, ``"adam"``, ``"adamw"`` or any other
      class of ``torch.optim`` by name, or a function of the parameters that makes one.
    - the *text* of a target as the command line takes it: ``file.py:function``, ``package.module:function``
      or the name of a built-in example.

    ``real`` captures on real tensors instead (clones of the user's). On fake tensors a value that the step reads
    (``loss.item()``) is replaced by a stand-in, which ``graph.meta.assumptions`` lists with the line that reads it.
    Where values decide shapes, the step is captured on real tensors if it fits on this machine, unless ``real`` is
    False. ``assume`` gives values, or numbers of selected elements, by line: ``{"train.py:41": 128}``. ``first_step``
    records the very first step, which creates the optimizer state; by default one step runs before the recorded one.

    ``device="cuda"`` captures the step of a GPU on any build of PyTorch, without a GPU: ``torch.cuda`` answers as if
    there were one, and kernels are those of ``machine``, a GPU by its name in the catalogue (``"H100-SXM-80GB"``;
    default: an A100). A workload that puts no tensor on ``cuda`` is moved there as a whole. ``machine`` alone implies
    the device.

    ``ranks`` captures a workload written for several processes (DDP, FSDP, tensor parallel) as rank 0 of that many, in
    this process: ``init_process_group`` joins a group whose collectives are recorded and move no data.

    ``compiled`` records the graphs that ``torch.compile`` makes of the step, op by op in the order in which they run,
    with what is eager between them; of a workload that compiles nothing, those of its models. Nothing is compiled.

    ``changes`` (``recorder.changes``) are made to the step while it is captured, as its author would write them.

    Raises WorkloadError if the target cannot be found or built, CaptureError if the step fails (with op, module
    path and source line), DataDependent if it needs a value that fake tensors do not have and is too large to capture
    on real ones, TorchUnavailable if PyTorch is missing or too old.
    """
    import tensortide.recorder.torch_compat  # noqa: F401  # before all else: it says what is wrong with PyTorch
    from tensortide.recorder.building import captured, named, with_assumption
    from tensortide.recorder.cuda_mode import pretended_gpu
    from tensortide.recorder.ranks import as_rank_0
    from tensortide.recorder.surroundings import alone

    if changes and (real or compiled):
        raise WorkloadError("changes are made to eager steps on fake tensors: leave out real and compiled")
    if compiled and (device or machine):
        raise WorkloadError("--compiled (compiled=True) traces a step for the CPU: leave out --device and --machine")
    workload = named(target, inputs, loss, optimizer, name, verb="capture")
    say, gpu = progress or (lambda message: None), pretended_gpu(device, machine, real)
    given = dict(hyperparameters or {})
    with alone(), as_rank_0(ranks):
        how: dict[str, Any] = {"gpu": gpu, "first_step": first_step, "compiled": compiled, "changes": changes}
        graph = captured(workload, given, real, assume, **how, progress=say)
    return graph if ranks is None else with_assumption(graph, f"rank 0 of {ranks}: collectives move no data")


def resolver(op: OpView) -> tuple[Cost, How] | None:
    """Cost of an op without a rule, from PyTorch if it is installed: its own formula, or the op's decomposition."""
    try:
        from tensortide.recorder.fallback import fallback
    except ImportError:
        return None
    return fallback(op)
