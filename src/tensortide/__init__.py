"""tensortide: what does one training step cost, and how do I make it fit?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensortide import errors
from tensortide.errors import BudgetInfeasible, RunError, RunWarning, TensortideError
from tensortide.recorder import capture
from tensortide.reports import report  # not lazily: the room of that name would take its place
from tensortide.version import VERSION
from tensortide.workload import legal

if TYPE_CHECKING:
    from tensortide.formulas import symbolic
    from tensortide.graph import Graph, GraphBuilder, Out, Phase, Role, save
    from tensortide.importers.door import open
    from tensortide.measures import Profiler
    from tensortide.measures.checks.checking import check
    from tensortide.measures.differences.compared import compare
    from tensortide.plans import footprint
    from tensortide.questions import draw, experiment, fit, metrics, place, scale, simulate, time
    from tensortide.recorder.recording import record
    from tensortide.run import live
    from tensortide.run.budget import budget
    from tensortide.studies.compiled import aot_backend, compile_step
    from tensortide.studies.fit.model import fits
    from tensortide.studies.planning.frontier import frontier
    from tensortide.studies.planning.planning import plan
    from tensortide.studies.torch_file import torch_file
    from tensortide.targets.counted import count, explain
    from tensortide.timelines import liveness, timeline

__version__ = VERSION

__all__ = [
    "BudgetInfeasible",
    "Graph",
    "GraphBuilder",
    "Out",
    "Phase",
    "Profiler",
    "Role",
    "RunError",
    "RunWarning",
    "TensortideError",
    "aot_backend",
    "budget",
    "capture",
    "check",
    "compare",
    "compile_step",
    "count",
    "draw",
    "errors",
    "experiment",
    "explain",
    "fit",
    "fits",
    "footprint",
    "frontier",
    "legal",
    "live",
    "liveness",
    "metrics",
    "open",
    "place",
    "plan",
    "record",
    "report",
    "save",
    "scale",
    "simulate",
    "symbolic",
    "time",
    "timeline",
    "torch_file",
]

_LAZY = {
    "draw": "tensortide.questions",
    "experiment": "tensortide.questions",
    "fit": "tensortide.questions",
    "fits": "tensortide.studies.fit.model",
    "metrics": "tensortide.questions",
    "place": "tensortide.questions",
    "scale": "tensortide.questions",
    "simulate": "tensortide.questions",
    "time": "tensortide.questions",
    "aot_backend": "tensortide.studies.compiled",
    "compile_step": "tensortide.studies.compiled",
    "budget": "tensortide.run.budget",
    "check": "tensortide.measures.checks.checking",
    "compare": "tensortide.measures.differences.compared",
    "count": "tensortide.targets.counted",
    "explain": "tensortide.targets.counted",
    "Graph": "tensortide.graph",
    "GraphBuilder": "tensortide.graph",
    "Out": "tensortide.graph",
    "Phase": "tensortide.graph",
    "Role": "tensortide.graph",
    "Profiler": "tensortide.measures",
    "open": "tensortide.importers.door",
    "frontier": "tensortide.studies.planning.frontier",
    "plan": "tensortide.studies.planning.planning",
    "record": "tensortide.recorder.recording",
    "save": "tensortide.graph",
    "footprint": "tensortide.plans",
    "live": "tensortide.run.live",
    "liveness": "tensortide.timelines",
    "timeline": "tensortide.timelines",
    "torch_file": "tensortide.studies.torch_file.making",
    "symbolic": "tensortide.formulas",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _LAZY:
        raise AttributeError(f"module 'tensortide' has no attribute {name!r}")
    module = importlib.import_module(_LAZY[name])
    value = getattr(module, name, module)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
