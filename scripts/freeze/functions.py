"""Figures of every public function and class of the package."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import tensortide
from scripts.freeze.lines import Recorder, digest_of, value_of
from scripts.freeze.names import PREFIX
from scripts.freeze.settings import CHEAP, CROSSED, PYTHON_LIMITS, Subject
from tensortide import Graph, GraphBuilder, Out, Phase, Role, frontier, plan
from tensortide.plans.planned import Planned
from tensortide.reports.render.json import render_json
from tensortide.timing import load_durations
from tensortide.timing.links import link


def record_functions(into: Recorder) -> None:
    """Add the figures of all functions. The current folder has the files of ``record_verbs``."""
    for subject in CROSSED:
        _record_step(into, subject)
    _record_workload(into, CROSSED[0])
    _record_built(into)
    for kind in (Phase, Role):
        into.add(f"{PREFIX}{kind.__name__}/members", "all", value_of([each.value for each in kind]))
    for name, error in sorted(vars(tensortide.errors).items()):
        if isinstance(error, type) and issubclass(error, Exception):
            bases = [base.__name__ for base in error.__mro__[1:-2]]
            into.add(f"{PREFIX}errors/{name}", "all", value_of(bases))


def _record_step(into: Recorder, subject: Subject) -> None:
    name, step = subject.name, Path(f"{subject.name}.tide")
    graph = tensortide.open(step).graph
    into.facts(f"{PREFIX}open", name, _graph_facts(graph))
    tensortide.save(graph, "saved.tide")
    into.facts(f"{PREFIX}save", name, _graph_facts(tensortide.open("saved.tide").graph))
    durations = load_durations(Path(f"{name}.durations.json"), graph)
    played = tensortide.timeline(graph, durations_ns=durations.ns)
    if name in CHEAP:
        _record_plans(into, name, graph, durations.ns)
    shown = {
        "compare": tensortide.compare(graph, graph),
        "check": tensortide.check(graph, ["peak <= 1MiB", "no recomputation"]),
        "count": tensortide.count(graph),
        "explain": tensortide.explain(graph, 0),
        "footprint": tensortide.footprint(graph, **PYTHON_LIMITS["footprint"]),
        "liveness": tensortide.liveness(graph, durations=durations.ns),
        "report": tensortide.report(graph, durations=durations),
        "timeline": played,
    }
    for function, found in shown.items():
        _record_document(into, function, name, found)
    values = tensortide.Profiler(graph).compute_all()
    known = {key: value for key, value in values.items() if isinstance(value, int | float)}
    into.facts(f"{PREFIX}Profiler", name, known | {"unavailable": sorted(values.keys() - known.keys())})


def _record_plans(into: Recorder, name: str, graph: Graph, times: Sequence[int]) -> None:
    budget, links = tensortide.timeline(graph).peak_bytes * 3 // 4, [link("25GB/s,10us")]
    into.facts(
        f"{PREFIX}plan", name, _planned(plan(graph, budget, durations_ns=times, links=links, **PYTHON_LIMITS["plan"]))
    )
    points = frontier(graph, points=2, durations_ns=times, **PYTHON_LIMITS["frontier"]).points
    into.facts(f"{PREFIX}frontier", name, {f"point_{n}": _planned(each) for n, each in enumerate(points)})


def _record_workload(into: Recorder, subject: Subject) -> None:
    """Functions that take a workload."""
    settings, example = subject.settings, subject.example
    how: dict[str, Any] = {"hyperparameters": settings, "device": subject.device}
    graph = tensortide.capture(example, **how)
    into.facts(f"{PREFIX}capture", subject.name, _graph_facts(graph))
    over = tensortide.symbolic(example, over=["batch"], hyperparameters=settings, **PYTHON_LIMITS["symbolic"])
    _record_document(into, "symbolic", subject.name, over)
    times = (1000,) * len(graph)
    planned = plan(graph, tensortide.timeline(graph).peak_bytes * 9 // 10, durations_ns=times, **PYTHON_LIMITS["plan"])
    made = tensortide.torch_file(example, planned, durations_ns=times, **how)
    _record_document(into, "torch_file", subject.name, made)

    @tensortide.legal("hidden % heads == 0", depth=(18, 34))
    def declared() -> None:
        """Do nothing."""

    into.add(f"{PREFIX}legal/declared", "all", value_of(vars(declared)))


def _record_built(into: Recorder) -> None:
    """A Graph made by hand."""
    builder = GraphBuilder("by hand")
    batch = builder.symbol("batch", 4)
    weight, given = builder.parameter("weight", (8, 8)), builder.input("given", (batch, 8))
    hidden = builder.op("aten.mm.default", given, weight, out=Out((batch, 8), "float32"))
    builder.output(builder.op("aten.relu.default", hidden, out=hidden))
    graph = builder.build()
    into.facts(f"{PREFIX}Graph", "built", _graph_facts(graph))
    into.add(f"{PREFIX}Out/shapes", "built", value_of([tensor.shape for tensor in graph.tensors]))
    _record_document(into, "GraphBuilder", "built", tensortide.count(graph))


def _planned(found: Planned) -> dict[str, Any]:
    """The figures of a plan."""
    lanes = [] if found.plan is None else msgspec.to_builtins(found.plan.lanes)
    names = ("status", "step_ns", "peak_bytes", "base_ns", "bound_ns", "work", "complete", "enough_bytes", "proved")
    return {
        **{name: getattr(found, name) for name in names},
        "least_bytes": found.least.nbytes,
        "plan": digest_of(lanes),
    }


def _graph_facts(graph: Graph) -> dict[str, Any]:
    nbytes = [int(storage.nbytes) for storage in graph.storages]
    roles = {role.value: sum(each.role is role for each in graph.storages) for role in Role}
    return {
        "digest": graph.index.digest[:12],
        "ops": {"op": [view.name for view in graph], "phase": [view.phase.value for view in graph]},
        "storages": {"nbytes": nbytes, "role": [each.role.value for each in graph.storages]},
        "roles": {role: count for role, count in roles.items() if count},
        "storage_bytes": sum(nbytes),
    }


def _record_document(into: Recorder, function: str, case: str, found: Any) -> None:
    document = found if hasattr(found, "sections") else found.document()
    into.document(f"{PREFIX}{function}", case, json.loads(render_json(document)), 0)
