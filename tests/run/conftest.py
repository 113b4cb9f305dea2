"""What tests of live runs share."""

from __future__ import annotations

import contextlib
import ctypes
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
    from tensortide.run.sizes import sizes_on
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


IMPORTED = ("networkx", "scipy.optimize", "torch._dynamo.backends.common", "torch._inductor")
"""What tests import on their way: by far the most of what they leave behind."""


@pytest.fixture(autouse=True, scope="package")
def _imported(request: pytest.FixtureRequest) -> None:
    """Hide what is resident and what tests will import: they run the collector, and budgets look through all objects,
    dozens of times each. The table of ops has 200,000, and is hidden if a test uses it."""
    for name in filter(importlib.util.find_spec, IMPORTED):
        importlib.import_module(name)
    if any(item.path.stem == "test_every_op" for item in request.session.items):
        with contextlib.suppress(ImportError):
            importlib.import_module(TABLE_OF_OPS)
    hide()


@pytest.fixture(autouse=True, scope="module")
def _nothing_learnt() -> None:
    """Budgets remember in a process what calls allocated: what other modules have run decides nothing."""
    sizes_on.cache_clear()


MANY = 30_000
"""Objects that are worth hiding: a library that a test imports leaves more behind."""


@pytest.fixture(autouse=True, scope="module")
def _hidden(_imported: None) -> None:
    """Hide what tests of other modules left behind."""
    hide_all_but_tensors()


@pytest.fixture(autouse=True)
def _hidden_within(_hidden: None) -> None:
    """Collect what earlier tests of the module left behind, which budgets would count until then, and hide it once it
    is much."""
    gc.collect()
    if len(gc.get_objects()) > MANY:
        hide_all_but_tensors()


def hide_all_but_tensors() -> None:
    """Hide all that is resident from the garbage collector but tensors: a budget passes over hidden ones, and would
    count them only when an op meets them."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if type(each) in ORDINARY]
    gc.freeze()
    for tensor in tensors:
        for again in (ctypes.pythonapi.PyObject_GC_UnTrack, ctypes.pythonapi.PyObject_GC_Track):
            again(ctypes.py_object(tensor))


@pytest.fixture(scope="package")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """A group of two processes."""
    ranks = Ranks(2, tmp_path_factory.mktemp("two"))
    yield ranks
    ranks.close()
