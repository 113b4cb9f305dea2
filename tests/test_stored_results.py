"""Results are pickled and copied, and read then as before."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tensortide
from tensortide.timelines.intervals import Lives
from tests.graphs.files import stored

MLP = functools.partial(stored, "mlp")


def step() -> Callable[[], None]:
    """A function that no name finds."""
    return lambda: nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()


RESULTS: dict[str, Callable[[], Any]] = {
    "fits": lambda: tensortide.fits(nn.Linear(8, 8), torch.ones(2, 8), gpu="t4"),
    "fit of a step": lambda: tensortide.fit(step(), machine="t4"),
    "liveness": lambda: tensortide.liveness(MLP()),
    "timeline": lambda: tensortide.timeline(MLP()),
    "count": lambda: tensortide.count(MLP()),
    "compare": lambda: tensortide.compare(MLP(), MLP()),
    "footprint": lambda: tensortide.footprint(MLP(), work_limit=1000),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_the_same_once_it_was_stored(name: str) -> None:
    found = RESULTS[name]()
    for stored_one in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert type(stored_one) is type(found)
        assert str(stored_one) == str(found)


def test_lives_are_of_their_class() -> None:
    assert isinstance(Lives, type)
    assert isinstance(tensortide.liveness(MLP()), Lives)
