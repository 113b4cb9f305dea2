"""What tests of live runs share."""

from __future__ import annotations

import gc
import importlib
import importlib.util
from collections.abc import Iterator

import pytest

from tensortide.errors import TorchUnavailable
from tests.conftest import hide
from tests.run.ranks import Ranks

try:
    from tensortide.run.block import ORDINARY
    from tensortide.run.core.build import library
except TorchUnavailable:
    collect_ignore_glob = ["*"]  # this PyTorch is too old for a budget


@pytest.fixture(autouse=True, scope="package")
def compiled_core() -> None:
    """The compiled core is there from the first test on, where it can be built."""
    found = library()
    if found is not None:
        found.wait()


IMPORTED = ("networkx", "scipy.optimize", "torch._dynamo.backends.common", "torch._inductor")
"""What tests import on their way: by far the most of what they leave behind."""


@pytest.fixture(autouse=True, scope="package")
def _imported() -> None:
    """Hide what is resident and what tests will import: they run the collector, and budgets look through all objects,
    dozens of times each."""
    for name in filter(importlib.util.find_spec, IMPORTED):
        importlib.import_module(name)
    hide()


@pytest.fixture(autouse=True, scope="module")
def _hidden(_imported: None) -> None:
    """Hide what earlier modules left behind, unless tensors with elements are among it: a budget passes over hidden
    ones."""
    gc.collect()
    if not any(type(each) in ORDINARY and each.numel() for each in gc.get_objects()):
        gc.freeze()


@pytest.fixture(scope="package")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """A group of two processes."""
    ranks = Ranks(2, tmp_path_factory.mktemp("two"))
    yield ranks
    ranks.close()
