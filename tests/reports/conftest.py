"""Documents of the small graphs."""

from __future__ import annotations

import pytest

from tensortide.graph.model import Graph
from tensortide.reports import report
from tensortide.reports.document import Document
from tests.reports.graphs import tower


@pytest.fixture(scope="session")
def graph() -> Graph:
    """A tower of four layers and one step of its training."""
    return tower()


@pytest.fixture(scope="session")
def document(graph: Graph) -> Document:
    return report(graph)
