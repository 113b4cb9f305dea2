"""The dumps of a real training step: kernels, tensors, uses, births, deaths and periods as they are expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensortide.graph import Role, validate
from tensortide.importers.inductor.importer import find_dumps
from tensortide.importers.inductor.read import read_dumps
from tensortide.importers.inductor.types import type_text
from tensortide.timelines import liveness, timeline


@pytest.fixture(scope="module")
def sample(reference: Path) -> Path:
    return reference / "g10" / "fx_sample"


@pytest.fixture(scope="module")
def expected(sample: Path) -> Any:
    return json.loads((sample / "expected_liveness.json").read_text())


def test_forward_and_backward(sample: Path, expected: Any) -> None:
    dumps = find_dumps(sample)
    trace = read_dumps(dumps.forward, dumps.backward)
    validate(trace.graph)
    for kernel, op, text in zip(expected["kernels"], trace.graph.ops, trace.kernels, strict=True):
        assert (kernel["name"], kernel["text"], kernel["phase"]) == (op.label, text, op.phase)
        assert (kernel["inputs"], kernel["outputs"]) == (list(dict.fromkeys(op.inputs)), list(op.outputs))
    lives = liveness(trace.graph, "compat")
    for row, life, name, tensor in zip(expected["tensors"], lives, trace.tensors, trace.graph.tensors, strict=True):
        assert (row["name"], row["dims"]) == (name, type_text(tensor.dtype, tensor.shape))
        assert (row["bytes"], row["uses"]) == (life.nbytes, list(life.uses))
        assert (bool(row["is_global"]), row.get("birth"), row.get("death")) == (life.persistent, life.birth, life.death)
        assert row["periods"] == [[period.start, period.end] for period in life.intervals]
        assert row.get("looped", [False] * len(life.intervals)) == [period.looped for period in life.intervals]


def test_the_optimizer_uses_the_weights_and_gradients_of_the_model(sample: Path, expected: Any) -> None:
    trace = read_dumps(*find_dumps(sample))
    validate(trace.graph)
    assert len(trace.graph) == 100
    assert len(trace.tensors) == 97 + 15, "new tensors only: ten arguments are weights and gradients"
    lives = {row["name"]: life for row, life in zip(expected["tensors"], liveness(trace.graph, "compat"), strict=False)}
    assert lives["primals_1"].uses == (0, 84, 86, 95)
    assert lives["mm_1"].death == 92, "the optimizer reads this gradient"
    roles = {storage.name: storage.role for storage in trace.graph.storages}
    assert {name for name, role in roles.items() if role is Role.PARAMETER} == {f"primals_{i}" for i in (1, 6, 7, 8, 9)}
    assert {name for name, role in roles.items() if role is Role.BUFFER} == {f"primals_{i}" for i in (3, 4, 5)}
    assert roles["primals_2"] is Role.INPUT
    assert trace.graph[85].source is not None
    assert trace.graph[85].source.code == "buf = grad.detach().clone()"
    assert timeline(trace.graph).peak_bytes < sum(storage.nbytes for storage in trace.graph.storages)
