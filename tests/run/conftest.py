"""What tests of live runs share."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

import pytest

from tensortide.errors import TorchUnavailable
from tests.conftest import hide
from tests.run.ranks import Ranks

try:
    from tensortide.run.core.build import library
except TorchUnavailable:
    collect_ignore_glob = ["*"]  # this PyTorch is too old for a budget


TABLE_OF_OPS = "torch.testing._internal.common_methods_invocations"
"""PyTorch's own examples of each op."""


@pytest.fixture(autouse=True, scope="package")
def compiled_core() -> None:
    """The compiled core is there from the first test on, where it can be built."""
    found = library()
    if found is not None:
        found.wait()


@pytest.fixture(autouse=True, scope="package")
def _hidden(request: pytest.FixtureRequest) -> None:
    """Hide what is resident once, not before each module: a budget passes over hidden tensors, those of earlier tests
    included. The table of ops is hidden too, if a test uses it: every budget would search its 200,000 objects."""
    if any(item.path.stem == "test_every_op" for item in request.session.items):
        with contextlib.suppress(ImportError):
            importlib.import_module(TABLE_OF_OPS)
    hide()


@pytest.fixture(scope="package")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """A group of two processes."""
    ranks = Ranks(2, tmp_path_factory.mktemp("two"))
    yield ranks
    ranks.close()
