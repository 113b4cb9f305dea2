"""Files made for the workloads of the tests, and their runs."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tensortide import capture, timeline
from tensortide.graph import Graph
from tensortide.plans.planned import Planned
from tensortide.plans.remat.schedule import recorded
from tensortide.plans.under_budget.bound import EachOnce
from tensortide.plans.under_budget.idle import Least
from tensortide.recorder.changes import Change
from tensortide.studies.torch_file import Asked, TorchFile, make
from tensortide.timing import device, estimate, link
from tests.forked_script import forked
from tests.studies.torch_file import workloads

HOST = replace(link("pcie4"), name="host")


@functools.cache
def graph_of(name: str, settings: str = "{}") -> Graph:
    return captured(name, settings, ())


@functools.cache
def captured(name: str, settings: str, changes: tuple[Change, ...]) -> Graph:
    target = vars(workloads).get(name, name)
    return capture(target, hyperparameters=json.loads(settings), changes=changes, name=name)


@functools.cache
def made(name: str, share: float, settings: str = "{}", *, offload: bool = False, **may: Any) -> TorchFile:
    """The file of a workload for a budget of so much of what it takes, made without a plan to start from."""
    graph = graph_of(name, settings)
    recording = recorded(graph, estimate(graph, device("A100-SXM-80GB")).ns)
    links = (HOST,) if offload else ()
    return make(Asked(recording, nothing(graph, share), changed(name, settings), links, **may))


def changed(name: str, settings: str = "{}") -> Callable[[Sequence[Change]], Graph]:
    """Captures of the workload with changes, each made once: several budgets lead to the same."""
    return lambda changes: captured(name, settings, tuple(changes))


def nothing(graph: Graph, share: float) -> Planned:
    """In place of a plan: a budget for which none was found."""
    return Planned(
        status="none found",
        plan=None,
        step_ns=None,
        peak_bytes=None,
        base_ns=0,
        bound_ns=0,
        plan_class="",
        bound_name="",
        proof=EachOnce(),
        least=Least(0, -1, ()),
        rivals=(),
        budget_bytes=int(timeline(graph).peak_bytes * share),
        recorded_peak_bytes=0,
        device="cpu",
    )


@functools.cache
def run(name: str, settings: str = "{}", file: Path | None = None) -> dict[str, Any]:
    """Run the workload in a process of its own, with or without a file."""
    given = [name, settings, *([] if file is None else [str(file)])]
    done = forked(Path(workloads.__file__), *given, timeout_s=300)
    assert done.returncode == 0, done.stderr
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))  # type: ignore[no-any-return]
