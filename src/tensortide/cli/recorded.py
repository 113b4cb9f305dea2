"""Targets that are other tools' records of a step, and the compiler's graphs taken from a model: Traces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.cli.source import CaptureOptions, option, progress, symbol_values
from tensortide.errors import WorkloadError
from tensortide.importers.traces import read_recorded

if TYPE_CHECKING:
    from tensortide.importers.trace import Trace

__all__ = ["DumpOptions", "compiled", "recorded_trace"]


@Parameter(name="*")
@dataclass(frozen=True)
class DumpOptions:
    """Which graphs of PyTorch's compiler belong to a step."""

    backward: Annotated[
        Path | None, option("--backward", "Of a dump fx_graph_transformed.py: that of the backward graph.")
    ] = None
    weight: Annotated[
        Path | None, option("--weight", "Of a dump fx_graph_transformed.py: that of the optimizer's graph.")
    ] = None
    compiled: Annotated[
        bool, option("--compiled", "The forward and backward graph that torch.compile makes of the workload's model.")
    ] = False


def recorded_trace(target: str, options: CaptureOptions, dumps: DumpOptions) -> Trace:
    """The Trace in ``target``; settings are values of symbolic dimensions."""
    if dumps.compiled:
        raise WorkloadError(f"{target} is recorded already: --compiled goes with a workload")
    bind = symbol_values(target, options)
    return read_recorded(target, backward=dumps.backward, weight=dumps.weight, bind=bind)


def compiled(target: str, options: CaptureOptions, *, quiet: bool) -> Trace:
    """The Trace of the graphs that the compiler makes of the model of ``target``."""
    if options.real or options.first_step:
        raise WorkloadError("--compiled traces a model on fake tensors: leave out --real and --first-step")
    from tensortide.importers.inductor.compiled import compiled_trace
    from tensortide.recorder.target import find, parse_settings

    workload = find(target)
    settings = parse_settings(options.set, workload, target)
    with progress(quiet) as say:
        return compiled_trace(workload, hyperparameters=settings, name=target, progress=say)
