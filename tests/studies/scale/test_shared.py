"""A search shares what configurations have in common, and answers as if each were predicted alone."""

from __future__ import annotations

import functools

import pytest

import tensortide
from tensortide.errors import DegreesError
from tensortide.graph import Graph
from tensortide.parallelism.closed import Configuration
from tensortide.parallelism.tensor import tensor_parallel
from tensortide.recorder import resolver
from tensortide.studies.scale import Captured, Problem, scale
from tensortide.timing import device
from tensortide.timing.collectives import nodes_of

A100 = "A100-SXM-80GB"


@functools.cache
def graph() -> Graph:
    sizes = {"layers": 1, "hidden": 32, "heads": 2, "seq": 16, "batch": 2, "vocab": 64, "positions": 16}
    return tensortide.capture("gpt2", hyperparameters={**sizes, "optimizer": "sgd"})


def predictor() -> Captured:
    return Captured(graph(), device(A100), batch=2, tokens=16, resolver=resolver)


def request(devices: int) -> Problem:
    base = Configuration(batch=2, micro_batch=1, recompute="none")
    return Problem(nodes=nodes_of(A100, devices_per_node=devices), base=base)


@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_every_outcome_is_that_of_a_predictor_that_knows_nothing(devices: int) -> None:
    asked = request(devices)
    found = scale(asked, predictor())
    assert found.legal
    assert found.refused or devices == 2
    for each in found.outcomes:
        fresh = predictor()
        faults = fresh.objections(each.configuration, devices)
        if faults:
            assert each.reason == "; ".join(faults)
        elif each.found is None:
            with pytest.raises(DegreesError) as error:
                fresh.predict(each.configuration, asked.nodes)
            assert each.reason == str(error.value)
        else:
            assert repr(fresh.predict(each.configuration, asked.nodes)) == repr(each.found)


def test_parts_and_tensor_ranks_are_divided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[tuple[int, int]] = []

    def counted(step, ranks, *args, **options):  # type: ignore[no-untyped-def]  # as the function it stands for
        met.append((step.analysis.graph.tensors[0].numel, ranks))
        return tensor_parallel(step, ranks, *args, **options)

    monkeypatch.setattr("tensortide.parallelism.tensor.tensor_parallel", counted)
    outcomes = scale(request(4), predictor()).outcomes
    tensor = {(one.configuration.micro_batch, one.configuration.tensor) for one in outcomes}
    assert 0 < len(met) <= len([ranks for _, ranks in tensor if ranks > 1])
