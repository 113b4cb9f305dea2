"""Stored graphs: what tests take from files is what capturing gives."""

from __future__ import annotations

import msgspec
import pytest
import torch

from scripts.make_graphs import EXPRESSIONS, ROWS, made
from tensortide.expr import expr_of
from tensortide.graph import Graph
from tests.graphs.files import FOLDER, stored

NAMES = [*ROWS, EXPRESSIONS]
MOST_BYTES = 60_000


def comparable(graph: Graph) -> Graph:
    """``graph`` without the lines of its sources, which move when files are edited."""
    meta = msgspec.structs.replace(graph.meta, python="")
    return msgspec.structs.replace(graph, meta=meta, sources=())


def test_there_is_a_small_file_of_each_row_and_no_other() -> None:
    files = {path.stem: path.stat().st_size for path in FOLDER.glob("*.tide")}
    assert sorted(files) == sorted(NAMES)
    assert max(files.values()) <= MOST_BYTES


@pytest.mark.parametrize("name", ["mlp", "collectives"])
def test_a_row_that_is_captured_anew_is_its_file(name: str) -> None:
    assert comparable(made(name)) == comparable(stored(name))


def test_sizes_of_the_graph_of_expressions_are_expressions() -> None:
    anew, kept = (
        [str(expr_of(s.nbytes)) for s in graph.storages] for graph in (made(EXPRESSIONS), stored(EXPRESSIONS))
    )
    assert anew == kept
    assert any("b" in expression for expression in kept)


@pytest.mark.slow
@pytest.mark.skipif(
    not torch.__version__.startswith(stored("mlp").meta.framework.removeprefix("torch ").partition("+")[0]),
    reason="the files were captured with another PyTorch",
)
@pytest.mark.parametrize("name", NAMES)
def test_every_stored_graph_is_what_capturing_gives(name: str) -> None:
    assert comparable(made(name)) == comparable(stored(name)), f"run python -m scripts.make_graphs {name}"
