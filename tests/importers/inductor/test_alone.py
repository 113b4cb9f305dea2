"""Dumps without the framework that made them."""

from __future__ import annotations

import sys

import pytest

from tensortide.graph import validate
from tensortide.importers.inductor import values
from tensortide.timelines import liveness
from tests.importers.inductor.dumps import BACKWARD, FORWARD, trace


def test_a_dump_is_read_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels, tensors and lives are the same; ops and arguments have names of their own."""
    known = trace(FORWARD, BACKWARD)
    values._schema.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", None)
    try:
        alone = trace(FORWARD, BACKWARD)
    finally:
        values._schema.cache_clear()
    assert {op.name.split(".")[0] for op in alone.graph} == {"fx"}
    assert (alone.kernels, alone.tensors) == (known.kernels, known.tensors)
    assert alone.graph.storages == known.graph.storages
    assert liveness(alone.graph, "compat") == liveness(known.graph, "compat")
    validate(alone.graph)
