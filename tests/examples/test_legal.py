"""What a workload declares to be legal is what it accepts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tensortide import legal
from tensortide.examples import examples, find
from tensortide.formulas.space import Space
from tensortide.recorder.fake_mode import StepFakeMode, same_paths
from tests.examples.tiny import LARGE, OF_A_KIND, OTHER_SIZES, TINY, Settings
from tests.marks import some_slow

ALIASES = (OTHER_SIZES | {"resnet18", "resnet18_cifar", "resnet50"}) - {"densenet100", "resnet20"}
"""Workloads at other settings; but those whose conditions are their own."""

DECLARED = [e.name for e in examples() if e.available and e.name not in ALIASES and hasattr(e.load(), "where")]
FREE = [e.name for e in examples() if e.available and not hasattr(e.load(), "where")]

LEGAL, ILLEGAL = 1, 2
"""Settings of each kind per workload."""


def accepts(workload: Callable[..., Any], settings: Settings) -> bool:
    try:
        with same_paths(), StepFakeMode():
            workload(**{**settings, "optimizer": "sgd"})()
    except (IndexError, RuntimeError, ValueError):
        return False
    return True


def drawn(name: str) -> Iterator[tuple[Settings, bool]]:
    """Random tiny settings, and whether they are declared legal."""
    workload, dice, tiny = find(name).load(), random.Random(name), TINY[name]
    space = Space(workload, [], {})
    sizes = {key: value for key, value in tiny.items() if type(value) is int}
    while True:
        given = {key: dice.randint(1, 2 * value) for key, value in sizes.items()}
        given |= {key: dice.choice(values) for key, values in space.values.items() if key in given}
        for key in given.keys() & {"depth", "layers"}:
            given[key] = min(space.values.get(key, (1,)))  # the deeper ones differ in length only
        yield {**tiny, **given}, space.allows(given)


@pytest.mark.parametrize(
    "name",
    some_slow(
        DECLARED, LARGE | OF_A_KIND | {"alexnet", "densenet100", "hf_gpt2", "llama", "resnet20", "transformer", "vit"}
    ),
)
def test_a_workload_accepts_what_it_declares_and_nothing_else(name: str) -> None:
    workload, left = find(name).load(), {True: LEGAL, False: ILLEGAL}
    for settings, declared in drawn(name):
        if left[declared]:
            assert accepts(workload, settings) == declared, settings
            left[declared] -= 1
        if not any(left.values()):
            break


@pytest.mark.parametrize("name", some_slow(FREE, ("hf_t5", "nmt", "speech", "unrolled_gan")))
def test_a_workload_that_declares_nothing_accepts_everything(name: str) -> None:
    draws = drawn(name)
    for _ in range(LEGAL):
        assert accepts(find(name).load(), next(draws)[0])


@pytest.mark.parametrize(("name", "wrong"), [("vgg", 12), ("resnet", 20), ("densenet", 120)])
def test_a_depth_that_is_not_declared_is_refused(name: str, wrong: int) -> None:
    assert not accepts(find(name).load(), {**TINY[name], "depth": wrong})


def test_a_declaration_changes_nothing_else() -> None:
    def workload(hidden: int = 4, heads: int = 2) -> int:
        return hidden // heads

    declared = legal("hidden % heads == 0", heads=(1, 2))(workload)
    assert declared is workload
    assert vars(declared) == {"where": ("hidden % heads == 0",), "values": {"heads": (1, 2)}}
