"""What tests of live runs share."""

from __future__ import annotations

import gc

import pytest
import torch  # noqa: F401  # before anything is frozen

from tensortide.errors import TorchUnavailable

try:
    from tensortide.run.core.build import library
except TorchUnavailable:
    collect_ignore_glob = ["*"]  # this PyTorch is too old for a budget


@pytest.fixture(autouse=True, scope="package")
def compiled_core() -> None:
    """The compiled core is there from the first test on, where it can be built."""
    found = library()
    if found is not None:
        found.wait()


@pytest.fixture(autouse=True, scope="package")
def only_tensors_of_the_test() -> None:
    """What other modules have made so far is passed over when a budget looks for tensors, and by the collector, which
    takes most of the time of these tests otherwise."""
    gc.collect()
    gc.freeze()
