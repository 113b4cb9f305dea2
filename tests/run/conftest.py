"""What tests of live runs share."""

from __future__ import annotations

import contextlib
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
def _much(_hidden: None, _imported: None) -> list[int]:
    """The number of objects from which ``_hidden_within`` tries to hide them, in its only item: ``MANY`` in each
    module, twice as many as there were where it could not."""
    return [MANY]


@pytest.fixture(autouse=True)
def _hidden_within(_much: list[int]) -> None:
    """Hide what earlier tests of the module left behind, unless tensors with elements are among it: a budget passes
    over hidden ones. What other modules left is hidden already, tensors as well."""
    if len(gc.get_objects()) < _much[0]:
        return
    gc.collect()
    left = gc.get_objects()
    if any(type(each) in ORDINARY and each.numel() for each in left):
        _much[0] = 2 * len(left)
    else:
        gc.freeze()


@pytest.fixture(scope="package")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """A group of two processes."""
    ranks = Ranks(2, tmp_path_factory.mktemp("two"))
    yield ranks
    ranks.close()
