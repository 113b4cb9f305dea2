"""Searches side by side: the same answer in this process, in others and on Ray, with a worker killed in the middle."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from tensortide.executors import LOCAL, SERIAL, Where
from tensortide.parallelism.closed import Configuration, Transformer
from tensortide.studies.scale import Candidate, Captured, ClosedForm, DegreeRequest, Problem, ScalePrediction, scale
from tensortide.timing import device
from tensortide.timing.collectives import Nodes, nodes_of
from tests.studies.scale.test_captured import A100, graph, node, plain

SHAPE = Transformer(layers=8, hidden=1024, heads=16)


class Killed(ClosedForm):
    """A closed form that kills the first process which comes to a pipeline of two ranks."""

    def __init__(self, folder: Path) -> None:
        super().__init__(SHAPE)
        self.mark, self.asker = folder / "killed", os.getpid()

    def predict(self, one: Configuration, nodes: Nodes) -> ScalePrediction:
        if one.pipeline == 2 and os.getpid() != self.asker:
            try:
                self.mark.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().predict(one, nodes)


@pytest.mark.slow
@pytest.mark.parametrize("where", [Where(workers=2), Where(workers=2, cluster=LOCAL)])
def test_a_killed_worker_changes_no_answer(where: Where, tmp_path: Path) -> None:
    request = Problem(nodes=nodes_of(A100, nodes=1), base=Configuration(batch=32), memory_bytes=30 << 30)
    alone = scale(request, ClosedForm(SHAPE))
    beside = scale(request, Killed(tmp_path), where=where)
    assert (tmp_path / "killed").exists()
    assert replace(beside, timeline=None) == replace(alone, timeline=None)
    lines = [found.timeline for found in (beside, alone) if found.timeline is not None]
    assert len(lines) == 2
    assert lines[0].makespan_ns == lines[1].makespan_ns
    assert len(alone.outcomes) > 20


@pytest.mark.parametrize(
    "where", [Where(workers=2, kind="threads"), pytest.param(Where(workers=2), marks=pytest.mark.slow)]
)
def test_a_captured_step_is_searched_side_by_side(where: Where) -> None:
    request = Problem(nodes=node(2), base=plain(), degrees=DegreeRequest(micro_batch=2))
    found = [scale(request, Captured(graph(), device(A100), batch=8, tokens=32), where=at) for at in (SERIAL, where)]
    assert found[0].outcomes == found[1].outcomes
    assert found[0].strong == found[1].strong


def degrees(one: Candidate) -> tuple[int, int, int]:
    """Those of which all candidates are one task."""
    return one.configuration.data, one.configuration.tensor, one.configuration.pipeline


def test_a_search_side_by_side_ends_when_it_is_told_to() -> None:
    request = Problem(nodes=nodes_of(A100, nodes=1), base=Configuration(batch=32))
    told: list[str] = []
    found = scale(request, ClosedForm(SHAPE), told.append, lambda: len(told) > 3, Where(workers=2, kind="threads"))
    ended = {degrees(one) for one in found.outcomes}
    whole = [one for one in scale(request, ClosedForm(SHAPE)).outcomes if degrees(one) in ended]
    assert {one.configuration for one in found.outcomes} == {one.configuration for one in whole}
    assert found.untried > 10
