"""Assumptions about values that a step reads, tested: does it run other ops with others?"""

from __future__ import annotations

import contextlib
import functools
import io
import warnings
from collections.abc import Callable

from msgspec.structs import replace

from tensortide.errors import CaptureError, DataDependent
from tensortide.graph.model import Graph
from tensortide.recorder.failure import needs_value
from tensortide.recorder.fake_mode import StepFakeMode
from tensortide.recorder.readings import Verdict
from tensortide.recorder.recorder import TooManyOps
from tensortide.recorder.trials import Ran, Trial, apart, findings, most_ops, ops_of


def with_findings(graph: Graph, again: Callable[..., Graph], mode: StepFakeMode, name: str) -> Graph:
    """``graph``, whose assumptions say whether its ops depend on stand-ins; ``again`` records its step once more.

    Raises DataDependent if they depend on an integer, which decides shapes or the number of iterations of a loop.
    """
    readings = mode.values.readings
    base = ops_of(graph)
    found = findings(base, list(readings.values()), functools.partial(_try, mode, again, most=most_ops(len(graph))))
    depend = (place for place, each in found.items() if each.verdict is Verdict.DEPENDS and readings[place].whole)
    if (place := min(depend, default=None)) is not None:
        reason = f"the ops of the step depend on the value of {place.text}"
        raise needs_value("step", name, reason, place, mode.remedy)
    every, decisive, untested = map(tuple, mode.assumptions(found))
    notes = [text for text in graph.meta.assumptions if text not in mode.assumptions().every]
    return replace(graph, meta=replace(graph.meta, assumptions=(*notes, *every), decisive=decisive, untested=untested))


def _try(mode: StepFakeMode, again: Callable[..., Graph], trial: Trial, most: int) -> Ran:
    """Record the step with other values, in silence: at ``most`` so many ops."""
    silence = io.StringIO()
    with (
        contextlib.redirect_stdout(silence),
        contextlib.redirect_stderr(silence),
        warnings.catch_warnings(action="ignore"),
        apart(),
        mode.values.tried(trial) as trying,
    ):
        ran = Ran(compared=trying.compared, reached=trying.reached)
        try:
            ran.ops = ops_of(again(most=most))
        except TooManyOps:
            ran.other = f"over {most:,} ops"
        except DataDependent as error:
            ran.other = error.reason
        except CaptureError as error:
            ran.error = error.reason or str(error).partition("\n")[0]
    return ran
