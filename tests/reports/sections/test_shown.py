"""Results show themselves: on a terminal, in a notebook, and in one line."""

from __future__ import annotations

import functools
import importlib
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console

import tensortide
from tensortide.cost import count, explain
from tensortide.formulas import DOMAINS, Symbolic, project, solve, sweep
from tensortide.graph.model import Graph, Meta
from tensortide.importers.imported import Imported
from tensortide.measures import Profiler
from tensortide.measures.layers import layers
from tensortide.measures.subject import StepSubject
from tensortide.parallelism import Degrees, per_rank
from tensortide.parallelism.closed import Configuration, Transformer
from tensortide.plans import footprint
from tensortide.plans.remat.schedule import recorded
from tensortide.replays.remat import Simulator
from tensortide.reports import report
from tensortide.run.generated.aot import CompiledGraph
from tensortide.run.usage import Usage
from tensortide.shown import Shown
from tensortide.studies.experiment.comparison import compared
from tensortide.studies.fit import Subject, fit
from tensortide.studies.fit.model import ModelVerdict
from tensortide.studies.fit.results import FitOnMachines
from tensortide.studies.job import job_from
from tensortide.studies.placement.examples import ExamplesRequest, answer
from tensortide.studies.scale import ClosedForm, Problem, scale
from tensortide.studies.scale.launched import Launch
from tensortide.studies.timing.request import TimedStep
from tensortide.studies.timing.steady import Steady
from tensortide.timelines import diff, idleness, liveness, timeline
from tensortide.timing import device, estimate
from tensortide.timing.cards import of_bytes
from tensortide.timing.clusters import Tier
from tensortide.timing.collectives import nodes_of
from tensortide.timing.stationarity import stationarity
from tests.formulas.samples import transformer, word_lm
from tests.graphs.files import stored
from tests.marks import some_slow
from tests.memory.test_communicators import with_groups
from tests.replays.test_lanes import HOST, stages, two_stages
from tests.reports.graphs import tower
from tests.reports.sections.test_trials import conducted
from tests.studies.torch_file.files import made
from tests.timelines.test_events import three_ops

CELL_BYTES = 12_000
"""Most bytes of a result in a cell of a notebook."""
NS = (100.0, 101.0, 99.0, 102.0, 100.0, 98.0, 101.0, 150.0, 100.0, 99.0)
"""Times of steps in a row."""


def differing() -> Any:
    graph = three_ops()
    return diff(timeline(graph, durations_ns=[1, 2, 3]), timeline(graph, durations_ns=[2, 2, 5]))


@functools.cache
def compiled_graph() -> CompiledGraph:
    backend = tensortide.aot_backend("1 GiB", effort=0.1)
    torch.compile(torch.nn.Linear(4, 4), backend=backend)(torch.ones(2, 4)).sum().backward()
    return backend.graphs[0]


def profiled(graph: Graph) -> Profiler:
    found = Profiler(graph)
    found.compute_all()
    return found


def saved(graph: Graph) -> Any:
    """A step that fits as it is, without a search for actions."""
    return fit(Subject("tower", graph, device("T4"), of_bytes(1 << 30), why_not="it is not captured"))


def placed() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        answer(ExamplesRequest(out=Path(folder)))
        return tensortide.place(tower(12), machine=Path(folder, "cluster.json"), budget=8)


def trials_compared() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        conducted(Path(folder))
        return compared(Path(folder), Path(folder))


def trials() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return conducted(Path(folder))


def job() -> Any:
    graphs = dict(enumerate(per_rank(stored("gpt2"), Degrees(pipeline=2)).graphs))
    return job_from("train.py", 2, graphs, nodes_of("H100-SXM-80GB", devices_per_node=2))


RESULTS: dict[str, Callable[[], Any]] = {
    "job": job,
    "sweep": lambda: sweep(transformer(), {"batch": [1, 2]}),
    "solution": lambda: solve(transformer(), "batch", "peak_bytes <= 24GiB"),
    "projection": lambda: project(word_lm(), DOMAINS["word_lm"], "h", batch="b", samples_per_step="b*s"),
    "difference": differing,
    "symbolic": lambda: Symbolic(formulas=transformer(), rows=()),
    "graph": lambda: tower(12),
    "imported": lambda: Imported(tower(12)),
    "count": lambda: count(tower(12)),
    "explain": lambda: explain(tower(), 0),
    "timeline": lambda: timeline(tower(12)),
    "footprint": lambda: footprint(tower()),
    "lives": lambda: liveness(tower(12)),
    "lanes": lambda: two_stages(stages(), (Tier(HOST),)),
    "timed_step": lambda: TimedStep("tower", tower(12), estimate(tower(12), device("T4"))),
    "steady": lambda: Steady("tower", "10 steps", NS, stationarity(NS)),
    "usage": lambda: Usage(1 << 20, *range(8)),
    "idleness": lambda: idleness(tower(), range(len(tower()))),
    "profiler": lambda: profiled(tower(12)),
    "status": lambda: profiled(tower(12)).status,
    "metrics compared": lambda: profiled(tower(12)).compare(profiled(tower(8))),
    "checks": lambda: tensortide.check(tower(12), ["peak <= 1 KB", "no recomputation", "time <= 1 s"]),
    "compared": lambda: tensortide.compare(tower(12), tower(8)),
    "fit": lambda: saved(tower(12)),
    "fit on machines": lambda: FitOnMachines((saved(tower(12)), saved(tower(12)))),
    "verdict on a model": lambda: ModelVerdict(saved(tower(12)), "the mean of the output"),
    "metrics": lambda: tensortide.metrics(tower(12)),
    "placed": placed,
    "planned": lambda: tensortide.plan(tower(12), "100%", work_limit=1e-3),
    "frontier": lambda: tensortide.frontier(tower(12), points=2, work_limit=1e-3),
    "budgeted": lambda: tensortide.simulate(tower(12), budget="100%"),
    "compiled_graph": compiled_graph,
    "trials": trials,
    "trials compared": trials_compared,
    "torch_file": lambda: made("tower", 0.6),
    "scale": lambda: scale(
        Problem(nodes=nodes_of("A100-SXM-80GB"), base=Configuration(batch=8)),
        ClosedForm(Transformer(layers=4, hidden=64, heads=4)),
    ),
    "launch": lambda: Launch("torchrun train.py", nodes_of("A100-SXM-80GB", devices_per_node=8), 2**34).study(
        with_groups(group=("all_reduce", 8)), {}, lambda _: tower(12)
    ),
    "layers": lambda: layers(StepSubject(tower(12))),
    "simulation": lambda: Simulator(recorded(tower(), [1000] * len(tower()), "made up")).run(
        "dtr-eq", None, compiled=False
    ),
}


@functools.cache
def result_of(name: str) -> Any:
    return RESULTS[name]()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch imports
@pytest.mark.parametrize("name", some_slow(RESULTS, ["compiled_graph", "torch_file"]))
def test_a_result_shows_itself(name: str) -> None:
    result = result_of(name)
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(result)
    assert len(out.getvalue().splitlines()) > 4
    assert len(result._repr_html_().encode()) < CELL_BYTES
    assert result.page()._repr_html_().startswith("<iframe")
    line = repr(result)
    assert line.startswith(f"<{type(result).__name__} ")
    assert len(line) < 200
    assert "\n" not in line


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch imports
def test_every_kind_of_result_is_among_these() -> None:
    """A class that shows itself names ``Shown``; importing all modules would take seconds."""
    (package,) = map(Path, tensortide.__path__)
    for path in package.rglob("*.py"):
        if path.name not in ("__init__.py", "__main__.py") and "Shown" in path.read_text("utf-8"):
            importlib.import_module(".".join(path.relative_to(package.parent).with_suffix("").parts))
    made = tuple(map(result_of, RESULTS))
    ours = [one for one in Shown.__subclasses__() if one.__module__.startswith("tensortide.")]
    assert [one for one in ours if not any(isinstance(result, one) for result in made)] == []


def test_other_results_have_a_short_line_too() -> None:
    long = msgspec.structs.replace(tower(12), meta=Meta(workload="a long name\n" * 40))
    for result in (report(long), long, Imported(long), count(long), liveness(tower(12)), tensortide.budget("1GiB")):
        line = repr(result)
        assert line.startswith(f"<{type(result).__name__} ")
        assert len(line) < 200
        assert "\n" not in line
